"""Every git call: plumbing only, with a repository's own hooks, monitors, filters and programs switched off.

The user's repository is only ever read; what has to be fetched or written is fetched into and pushed from
a private one (``Scratch``).
"""
