"""Runs in the agent's interpreter; standard library and google-adk only."""
