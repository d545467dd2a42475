"""The command: one file per subcommand."""
