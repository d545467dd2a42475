"""Outside systems as the tests meet them: over real sockets and processes."""
