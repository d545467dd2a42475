"""All git calls: plumbing commands only, with the repository's hooks, monitors, filters and programs disabled.

The user's repository is only read; fetches and pushes go through a private repository (``Scratch``).
"""
