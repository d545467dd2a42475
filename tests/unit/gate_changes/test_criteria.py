"""Which criteria are in force on a change: what it adds advises, unless new cases are to block."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_eval_action.config.models import Policy
from agent_eval_action.gate_changes.changes import plan_in_force
from agent_eval_action.gate_changes.snapshot import BaseSnapshot
from agent_eval_action.results.case_matching import CaseMatches
from agent_eval_action.run.plan import Plan, PlannedSet
from support.results import info


@pytest.mark.parametrize(("rule", "added"), [("advise", True), ("block", False)])
def test_a_set_that_only_the_change_has_advises_unless_new_cases_block(rule: str, added: bool) -> None:
    new = PlannedSet(agent="bot", key="new", path="new.evalset.json", cases=(), criteria=(), infos=(info(),))
    base = BaseSnapshot(source=None, settings=None, snapshot=None)  # type: ignore[arg-type] # a base without sets
    found = plan_in_force(Plan((new,)), base, CaseMatches(), Policy(new_cases=rule), Path())
    assert [one.added for one in found.sets[0].infos] == [added]
