"""Sets up a project: surveys it, proposes the files that a gate needs, and captures an agent's first cases."""
