"""Extensions of agent-eval, found by the entry points of pyproject.toml."""
