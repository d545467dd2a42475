"""Read files with line positions, and report problems with path, line and suggestions."""
