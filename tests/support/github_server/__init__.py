"""A strict local GitHub: the REST and GraphQL this project uses, and nothing else.

``client.running`` starts it. What it did not expect, and scripted faults nobody met, are
recorded: ``RunningGitHub.check`` fails on them, and ``running`` checks at its end.
"""
