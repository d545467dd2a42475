"""Criteria whose scores come from code that is not ours."""
