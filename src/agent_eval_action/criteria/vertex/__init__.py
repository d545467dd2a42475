"""Criteria that Vertex AI's evaluation service scores."""
