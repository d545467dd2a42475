"""A case's digest: pinned, blind to what does not define the case, and to nothing else."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.formats import case_digest
from agent_eval_action.results.evalset import EvalCase

CASE: dict[str, Any] = {
    "eval_id": "a",
    "conversation": [
        {
            "invocation_id": "i",
            "user_content": {"role": "user", "parts": [{"text": "hi"}]},
            "final_response": {"role": "model", "parts": [{"text": "yes"}]},
            "intermediate_data": {
                "tool_uses": [{"id": "1", "name": "roll", "args": {"sides": 6, "again": None}}],
                "tool_responses": [],
                "intermediate_responses": [["agent", [{"text": "rolling"}]]],
            },
            "rubrics": [{"rubric_id": "r", "rubric_content": {"text_property": "good"}}],
            "creation_timestamp": 1.0,
        }
    ],
    "session_input": {"app_name": "app", "user_id": "u", "state": {"k": 1}},
}


def digest(value: Any) -> str:
    return case_digest(EvalCase.model_validate_json(json.dumps(value)))


def changed(at: tuple[Any, ...], new: Any) -> Any:
    value = copy.deepcopy(CASE)
    inside = value
    for step in at[:-1]:
        inside = inside[step]
    if new is ...:
        del inside[at[-1]]
    else:
        inside[at[-1]] = new
    return value


TURN = ("conversation", 0)
CALL = (*TURN, "intermediate_data", "tool_uses", 0)


def test_pinned():
    """A change here makes every stored baseline incomparable: only with a new scoring of all of them."""
    assert digest(CASE) == "059a4bcf17c9d410"
    assert digest({"eval_id": "x", "conversation": []}) == "44136fa355b3678a"


@pytest.mark.parametrize(
    ("at", "new"),
    [
        (("eval_id",), "b"),
        (("note",), "unknown keys"),
        (("creation_timestamp",), 5),
        (("rubrics",), []),
        (("final_session_state",), None),
        (("conversation_scenario",), None),
        ((*TURN, "invocation_id"), "other"),
        ((*TURN, "creation_timestamp"), ...),
        ((*TURN, "duration"), 3.5),
        ((*TURN, "app_details"), {"agent_details": {}}),
        ((*TURN, "intermediate_data", "tool_responses"), ...),
        ((*TURN, "user_content", "role"), ...),
        ((*TURN, "final_response", "parts"), [{"text": ""}, {"text": "yes", "thought_signature": "YQ=="}]),
        ((*CALL, "id"), None),
        ((*CALL, "args"), {"again": None, "sides": 6.0}),
        (("session_input", "session_id"), None),
        (("session_input", "app_name"), "renamed_agent"),
    ],
)
def test_what_does_not_define_the_case(at, new):
    assert digest(changed(at, new)) == digest(CASE)


@pytest.mark.parametrize(
    ("at", "new"),
    [
        ((*TURN, "user_content", "parts", 0, "text"), "ho"),
        ((*TURN, "final_response"), ...),
        ((*TURN, "final_response", "parts"), [{"text": "yes", "thought": True}]),
        ((*CALL, "name"), "roll2"),
        ((*CALL, "args"), {"sides": 6}),
        ((*CALL, "args"), {"sides": 6, "again": ""}),
        ((*CALL, "args"), {"sides": "6", "again": None}),
        ((*CALL, "args"), {"sides": 6, "again": None, "id": 1}),
        ((*TURN, "intermediate_data", "intermediate_responses", 0, 0), "other"),
        ((*TURN, "rubrics", 0, "rubric_content", "text_property"), "bad"),
        (("conversation",), CASE["conversation"] * 2),
        (("session_input", "state"), {"k": 2}),
        (("session_input", "user_id"), "v"),
        (("final_session_state",), {"done": True}),
        (("rubrics",), [{"rubric_id": "r", "rubric_content": {}}]),
    ],
)
def test_what_does(at, new):
    assert digest(changed(at, new)) != digest(CASE)


def camel(word: str) -> str:
    first, *rest = word.split("_")
    return first + "".join(one.capitalize() for one in rest)


def respelled(value: Any, free: bool = False) -> Any:
    if isinstance(value, dict):
        items = reversed(value.items())
        return {key if free else camel(key): respelled(item, free or key in ("args", "state")) for key, item in items}
    return [respelled(item, free) for item in value] if isinstance(value, list) else value


def test_spelling_and_key_order_do_not_count():
    assert digest(respelled(CASE)) == digest(CASE)


@given(args=st.dictionaries(st.text(max_size=3), st.none() | st.integers(-5, 5) | st.text(max_size=2), max_size=3))
def test_args_are_never_pruned(args):
    """Free objects count whole; no args and empty args are one."""
    same = digest(changed((*CALL, "args"), args)) == digest(changed((*CALL, "args"), None))
    assert same == (not args)


def test_numbers_no_json_has():
    assert digest(changed((*CALL, "args"), {"a": float("nan")})) == digest(
        changed((*CALL, "args"), {"a": float("nan")})
    )
    assert digest(changed((*CALL, "args"), {"a": 1e308 * 10})) != digest(changed((*CALL, "args"), {"a": 0}))
