"""Criteria: one class per criterion, its fields its options."""
