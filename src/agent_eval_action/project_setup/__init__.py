"""Sets a project up: what it has, which files a gate needs, and the first cases of an agent that has none."""
