"""Processes that run in the agent's interpreter, workers and metric functions, and the protocol with them."""
