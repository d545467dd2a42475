"""What pydantic refuses is said in one way: the place as it is written, what is wrong, what was meant."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from agent_eval_action.diagnostics.validation import Issue, invalid, invalid_parts, issues_of, known_keys, models_at
from agent_eval_action.results.base import AdkModel, Frozen
from agent_eval_action.results.evalset import EvalSet, IntermediateData, InvocationEvents, Part


class Inner(AdkModel):
    full_name: str
    mode: Literal["fast", "slow"] = "fast"


class Price(Frozen):
    input: float


class Outer(AdkModel):
    inner: Inner | None = None
    many: tuple[Inner, ...] = ()
    prices: dict[str, Price] = Field(default_factory=dict)


def found(value: Any, kind: Any = Outer) -> list[Issue]:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(value)
    return list(issues_of(caught.value, value, kind))


LIKELY = "did you mean `{}`?".format


@pytest.mark.parametrize(
    ("value", "issue"),
    [
        (
            {"inner": {"fullNam": "x", "full_name": "y"}},
            Issue("unknown key `fullNam`", ("inner", "fullNam"), None, LIKELY("full_name")),
        ),
        ({"many": [{"mode": "slow"}]}, Issue("`full_name` is required", ("many", 0))),
        (
            {"many": [{"fullName": "x", "mode": "slo"}]},
            Issue("must be one of fast, slow", ("many", 0, "mode"), '"slo"', LIKELY("slow")),
        ),
        ({"inner": {"fullName": 3}}, Issue("must be a string", ("inner", "fullName"), "3")),
        ({"inner": {"full_name": 3}}, Issue("must be a string", ("inner", "full_name"), "3")),
        ({"inner": 3}, Issue("must be a mapping", ("inner",), "3")),
        (
            {"prices": {"m": {"inptu": 1, "input": 2}}},
            Issue("unknown key `inptu`", ("prices", "m", "inptu"), None, LIKELY("input")),
        ),
        (
            {"inner": {"fullName": "a", "full_name": "b"}},
            Issue("is given twice, as `fullName` and `full_name`", ("inner", "full_name")),
        ),
    ],
)
def test_a_refusal_has_its_place_as_written_and_what_was_meant(value, issue):
    assert found(value) == [issue]


def test_what_a_validator_says_keeps_its_hint_and_a_part_its_place():
    def refuse(value: Any) -> Any:
        raise invalid("is {no} name", "take {another}") if value == "x" else invalid_parts(Issue("is old", (1,), "y"))

    kind = dict[str, Annotated[list[str], BeforeValidator(refuse)]]
    assert found({"a": "x"}, kind) == [Issue("is {no} name", ("a",), '"x"', "take {another}")]
    assert found({"a": ["x", "secret"]}, kind) == [Issue("is old", ("a", 1), "y")]


def test_known_keys_are_those_of_the_model_or_mapping_at_the_place():
    assert known_keys(Outer, ("many", 0)) == known_keys(Outer, ("inner",)) == ("full_name", "mode")
    assert known_keys(Outer, ("prices", "m")) == ("input",)
    assert known_keys(Outer, ("prices",)) == ()
    assert known_keys(Outer, ("nowhere", "x")) == ()


def test_a_place_that_may_be_one_of_several_models_has_the_keys_of_all_of_them():
    data = ("eval_cases", 0, "conversation", 0, "intermediate_data")
    assert set(models_at(EvalSet, data)) == {IntermediateData, InvocationEvents}
    assert {"tool_uses", "invocation_events"} <= {*known_keys(EvalSet, data)}
    assert models_at(EvalSet, (*data, "intermediateResponses", 0, 1, 2)) == [Part]
    assert models_at(EvalSet, (*data, "intermediateResponses", 0, 0)) == []
