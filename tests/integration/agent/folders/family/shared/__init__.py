NAME = "cousin"
