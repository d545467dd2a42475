"""Limits what a change's code may see and reach: its users, its copy of the tree, closed folders."""
