"""On which events the base's rules hold is decided in one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_eval_action.baseline.lookup import event_of
from agent_eval_action.ci.github.event import Kind, job_from
from agent_eval_action.gate_changes.base import CommandContext

CHANGES = (
    "pull_request",
    "pull_request_target",
    "pull_request_review",
    "pull_request_review_comment",
    "merge_group",
)


@pytest.mark.parametrize("name", [*CHANGES, "push", "schedule", "workflow_dispatch", "workflow_run", "release"])
def test_the_rules_of_the_base_hold_on_every_event_of_a_change(name):
    environ = {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": name}
    context = CommandContext({}, environ, Path.cwd(), discover=None)  # type: ignore[arg-type]  # nothing is read
    assert context.is_change == (name in CHANGES)
    assert context.is_change == event_of(environ).is_change
    assert context.is_change == (job_from(environ).kind in {Kind.PULL_REQUEST, Kind.TARGET, Kind.QUEUE})
