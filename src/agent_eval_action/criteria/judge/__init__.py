"""Criteria that ask a judge."""
