"""OpenTelemetry: receives spans and reads the trajectories of turns from them."""
