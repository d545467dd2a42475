"""What code of a change may see and reach: users, its copy of the tree, closed folders."""
