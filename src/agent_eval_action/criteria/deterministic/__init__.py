"""Criteria that need no model."""
