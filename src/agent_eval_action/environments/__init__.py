"""The agent's Python environment: found, or built from its lock file and cached."""
