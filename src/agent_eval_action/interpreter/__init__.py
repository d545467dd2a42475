"""The agent's own interpreter, and the client of the worker that runs in it."""
