"""What the tests' model servers share: HTTP, faults, a rate, control from outside. Each adds its own wire."""
