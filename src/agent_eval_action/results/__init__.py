"""The values that pass between the stages: eval sets, attempts, results. Frozen pydantic; no I/O."""
