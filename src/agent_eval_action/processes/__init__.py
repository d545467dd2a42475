"""Processes in the agent's interpreter: workers, metric functions, and the protocol between."""
