"""The base classes of values: what they keep of how they were made."""

from __future__ import annotations

import copy
import gc
import pickle

import pytest

from agent_eval_action.config.models import CriterionPolicy
from agent_eval_action.results.evalset import FunctionCall
from agent_eval_action.results.run_result import Usage

USAGE = Usage(model_calls=3)


@pytest.mark.parametrize(
    "value",
    [
        USAGE,
        Usage.model_validate_json('{"model_calls": 3}'),
        Usage.model_construct(model_calls=3),
        USAGE.model_copy(update={"tool_calls": 1}),
        copy.deepcopy(USAGE),
        pickle.loads(pickle.dumps(USAGE)),  # noqa: S301 - made in this line
        FunctionCall.model_validate({"name": "look_up", "more": 1}).model_copy(update={"name": "find"}),
    ],
)
def test_a_value_keeps_no_set_of_the_names_it_was_given(value: Usage) -> None:
    assert not [kept for kept in gc.get_referents(value) if isinstance(kept, set)]
    assert value.model_fields_set == set(type(value).model_fields)


def test_values_are_equal_by_what_they_hold_and_not_by_how_they_were_made() -> None:
    assert Usage(model_calls=3) == Usage(model_calls=3, tool_calls=0) == copy.copy(USAGE)
    assert hash(Usage(model_calls=3)) == hash(Usage(model_calls=3, tool_calls=0))


def test_rules_of_a_criterion_know_which_of_them_were_given() -> None:
    rules = CriterionPolicy.model_validate({"mode": "off"})
    assert rules.model_dump(exclude_unset=True) == {"mode": "off"}
    assert rules.model_copy(update={"max_drop": 0.1}).model_fields_set == {"mode", "max_drop"}
