"""Generates files of this repository from its code: schemas, action inputs, tables of docs. Not in the wheel."""
