"""Files read with positions; problems with path and line, and suggestions."""
