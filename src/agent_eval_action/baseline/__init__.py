"""Stored baselines."""
