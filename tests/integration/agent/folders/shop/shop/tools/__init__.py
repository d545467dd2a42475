"""A sub-package, to be imported in every way there is."""

STOCK = {"apples": 3}
