"""An agent's package whose agent must not be imported for a metric's sake: it has none."""
