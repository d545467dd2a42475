"""Makes files of this repository from its code: schemas, inputs of the actions, tables of docs. Not in the wheel."""
