"""What GitHub gives a step and takes from it."""
