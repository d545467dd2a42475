"""Eval files to EvalSet, with line numbers."""
