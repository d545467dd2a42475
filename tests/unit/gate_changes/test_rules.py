"""Which value of a rule demands less of a run."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from agent_eval_action.config.models import CriterionPolicy, Policy, Settings, is_looser, is_rule

STRICT_AND_LOOSE: list[tuple[type[BaseModel], str, Any, Any]] = [
    (CriterionPolicy, "mode", "blocking", "advisory"),
    (CriterionPolicy, "mode", "advisory", "off"),
    (CriterionPolicy, "threshold_on", "case", "regression"),
    (CriterionPolicy, "threshold_on", "regression", "suite"),
    (CriterionPolicy, "threshold_on", "suite", "off"),
    (CriterionPolicy, "max_drop", 0.05, 0.1),
    (CriterionPolicy, "max_drop", 0.05, None),
    (CriterionPolicy, "max_rise", 0.1, 0.2),
    (CriterionPolicy, "max_rise", 0.1, None),
    (Policy, "threshold_on", "case", "off"),
    (Policy, "max_drop", 0.05, None),
    (Policy, "max_rise", 0.1, None),
    (Policy, "on_weakened", "fail", "warn"),
    (Policy, "accept", "ignore", "honour"),
    (Policy, "new_cases", "block", "advise"),
    (Policy, "withheld", "fail", "neutral"),
    (Policy, "withheld", "neutral", "pass"),
    (Policy, "agents_see_evals", False, True),
    (Policy, "confidence", 0.95, 0.99),
    (Policy, "min_effect", 0.1, 0.2),
    (Settings, "fail_on", "inconclusive", "fail"),
    (Settings, "fail_on", "fail", "never"),
    (Settings, "repeats", 5, 1),
]


@pytest.mark.parametrize(("model", "rule", "strict", "loose"), STRICT_AND_LOOSE)
def test_a_rule_is_looser_in_one_direction(model, rule, strict, loose):
    assert is_looser(model, rule, strict, loose)
    assert not is_looser(model, rule, loose, strict)
    assert not is_looser(model, rule, strict, strict)


def test_every_rule_of_the_policy_has_a_direction():
    assert all(is_rule(CriterionPolicy, name) for name in CriterionPolicy.model_fields)
    assert {name for name in Policy.model_fields if not is_rule(Policy, name)} == {"criteria", "sets"}


def test_nobody_can_say_which_value_of_another_setting_is_looser():
    assert not is_looser(Settings, "reruns", "off", "on")
    assert not is_looser(Settings, "no_such_setting", 1, 2)
