"""The comment as GitHub shows it, in pictures for the documentation: `make screenshots`."""
