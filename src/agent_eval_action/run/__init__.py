"""Planning, making and scoring attempts, and joining them into a result."""
