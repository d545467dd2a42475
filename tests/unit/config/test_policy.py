"""What a criterion is held to, from the general rules and its own."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from agent_eval_action.config.models import CriterionPolicy, Policy


def test_a_criterion_without_rules_of_its_own_has_the_general_ones() -> None:
    policy = Policy(threshold_on="suite", max_drop=0.2)
    assert policy.for_criterion("tool_trajectory_avg_score", "maximize") == CriterionPolicy(
        threshold_on="suite", max_drop=0.2
    )


def test_the_limit_of_the_other_direction_never_applies() -> None:
    policy = Policy(max_drop=0.2, max_rise=0.1)
    up, down = policy.for_criterion("a", "maximize"), policy.for_criterion("a", "minimize")
    assert (up.max_drop, up.max_rise) == (0.2, None)
    assert (down.max_drop, down.max_rise) == (None, 0.1)


def test_own_rules_replace_the_general_ones_for_that_criterion_alone() -> None:
    policy = Policy(criteria={"a": CriterionPolicy(mode="off", max_drop=None)})
    assert policy.for_criterion("a", "maximize").mode == "off"
    assert policy.for_criterion("a", "maximize").max_drop is None
    assert policy.for_criterion("b", "maximize") == CriterionPolicy()


def test_seconds_advise_and_tokens_block() -> None:
    policy = Policy(max_rise=0.1)
    assert policy.for_criterion("invocation_duration_v1", "minimize").mode == "advisory"
    assert policy.for_criterion("token_usage_v1", "minimize").mode == "blocking"


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_a_limit_is_a_finite_amount(value: float) -> None:
    with pytest.raises(ValidationError):
        Policy(max_drop=value)
    with pytest.raises(ValidationError):
        CriterionPolicy(max_rise=value)
