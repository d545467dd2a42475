"""Comparison and decision: pure functions over counts and scores."""
