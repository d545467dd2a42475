"""Agent drivers: one conversation port, one file per driver."""
