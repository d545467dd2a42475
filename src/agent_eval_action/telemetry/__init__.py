"""OpenTelemetry: what the spans of a turn say of its trajectory."""
