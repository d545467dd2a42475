"""The CI system a step runs on: its event, its log and what is published there."""
