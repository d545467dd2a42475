"""What a function may return, as events: texts, mappings, and messages as the frameworks have them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from agent_eval_worker_errors import WorkerError
from agent_eval_worker_function import FunctionSession, events_of
from agent_eval_worker_protocol import encode
from hypothesis import given
from hypothesis import strategies as st

CALL = {"id": "c1", "name": "roll", "args": {"sides": 6}}
ANSWER = {"id": "c1", "name": "roll", "response": {"result": "4"}}
TEXT = {"text": "It is a 4."}

OPENAI = [
    {"role": "user", "content": "an earlier turn"},
    {"role": "assistant", "content": "its answer"},
    {"role": "user", "content": "Roll."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "roll", "arguments": '{"sides": 6}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "4"},
    {"role": "assistant", "content": [{"type": "text", "text": "It is "}, {"type": "text", "text": "a 4."}]},
]
RESPONSES = [
    {"role": "user", "content": "Roll."},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "roll", "arguments": '{"sides": 6}'},
    {"type": "function_call_output", "call_id": "c1", "output": "4"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is a 4."}]},
]
LANGCHAIN = [
    SimpleNamespace(type="human", content="Roll.", tool_calls=None),
    SimpleNamespace(type="ai", content="", tool_calls=[{"name": "roll", "args": {"sides": 6}, "id": "c1"}]),
    SimpleNamespace(type="tool", content="4", name="roll", tool_call_id="c1"),
    SimpleNamespace(type="ai", content="It is a 4.", tool_calls=[]),
]
PYDANTIC_AI = [
    SimpleNamespace(parts=[SimpleNamespace(part_kind="user-prompt", content="Roll.")]),
    SimpleNamespace(
        parts=[SimpleNamespace(part_kind="tool-call", tool_name="roll", args='{"sides": 6}', tool_call_id="c1")]
    ),
    SimpleNamespace(parts=[SimpleNamespace(part_kind="tool-return", tool_name="roll", content="4", tool_call_id="c1")]),
    SimpleNamespace(
        parts=[SimpleNamespace(part_kind="thinking"), SimpleNamespace(part_kind="text", content=TEXT["text"])]
    ),
]

ANTHROPIC = [
    {"role": "user", "content": "Roll."},
    SimpleNamespace(
        role="assistant",
        content=[SimpleNamespace(type="tool_use", id="c1", name="roll", input={"sides": 6})],
    ),
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "4"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "It is a 4."}]},
]


def session(**request: Any) -> FunctionSession:
    return FunctionSession({"s": "1", "user": "u", "app": "a", **request})


def parts(result: Any) -> list[dict[str, Any]]:
    return [part for event in events_of(result, session()) for part in event["c"]["parts"]]


@pytest.mark.parametrize("messages", [OPENAI, RESPONSES, LANGCHAIN, PYDANTIC_AI, ANTHROPIC])
def test_messages_after_the_newest_of_the_user_are_the_turn(messages: list[Any]) -> None:
    assert parts(messages) == [{"function_call": CALL}, {"function_response": ANSWER}, TEXT]
    *others, last = events_of(messages, session())
    assert (last["f"], [event["f"] for event in others]) == (True, [False, False])


def test_a_text_is_the_answer() -> None:
    assert parts("It is a 4.") == [TEXT]


def test_a_mapping_has_calls_with_their_results_a_text_state_and_usage() -> None:
    holder = session(state={"kept": 1})
    result = {
        "text": "It is a 4.",
        "tool_calls": [{"id": "c1", "name": "roll", "arguments": {"sides": 6}, "result": "4"}],
        "state": {"rolled": 4},
        "usage": {"prompt_tokens": 10, "completion_tokens": 3},
    }
    events = list(events_of(result, holder))
    assert [part for event in events for part in event["c"]["parts"]] == [
        {"function_call": CALL},
        {"function_response": ANSWER},
        TEXT,
    ]
    assert events[-1]["u"] == {"prompt_token_count": 10, "candidates_token_count": 3, "total_token_count": 13}
    assert holder.state == {"kept": 1, "rolled": 4}


def test_what_agents_hand_each_other_in_a_turn_does_not_begin_it() -> None:
    handed = {"role": "user", "name": "critic", "content": "It has been checked."}
    events = events_of([*OPENAI[:-1], handed, OPENAI[-1]], session(), "Roll.")
    assert [part for event in events for part in event["c"]["parts"]] == [
        {"function_call": CALL},
        {"function_response": ANSWER},
        TEXT,
    ]


def test_a_custom_tool_of_openai_has_its_input() -> None:
    call = {"type": "custom_tool_call", "call_id": "c1", "name": "run", "input": "ls"}
    answer = {"type": "custom_tool_call_output", "call_id": "c1", "output": "a"}
    assert parts([call, answer]) == [
        {"function_call": {"id": "c1", "name": "run", "args": {"arguments": "ls"}}},
        {"function_response": {"id": "c1", "name": "run", "response": {"result": "a"}}},
    ]


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (None, "nothing"),
        ({"answer": "x"}, "`answer`"),
        (SimpleNamespace(final_output="x"), "SimpleNamespace"),
        ((part for part in "x"), "generator"),
        (["x"], "str"),
        ([SimpleNamespace(role="model", parts=[SimpleNamespace(text="x")])], "SimpleNamespace"),
    ],
)
def test_what_is_no_answer_is_an_error_and_no_empty_one(result: Any, told: str) -> None:
    with pytest.raises(WorkerError, match=told) as raised:
        list(events_of(result, session()))
    assert raised.value.kind == "output"


def test_history_is_messages_and_state() -> None:
    history = [
        {"author": "user", "content": {"role": "user", "parts": [{"text": "Roll."}]}, "state_delta": {"own": 20}},
        {"author": "model", "content": {"role": "model", "parts": [{"function_call": CALL}]}},
        {"author": "model", "content": {"role": "user", "parts": [{"function_response": ANSWER}]}},
        {"author": "model", "content": {"role": "model", "parts": [TEXT]}},
    ]
    begun = session(history=history, state={"own": 6})
    assert begun.state == {"own": 20}
    assert [message["role"] for message in begun.messages] == ["user", "assistant", "tool", "assistant"]
    assert parts(begun.messages) == parts(OPENAI)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["role", "type", "content", "tool_calls", "name", "args", "function", "parts", "text", "id"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.lists(ANYTHING, max_size=4))
def test_any_list_becomes_events_or_an_error_of_the_case(messages: list[Any]) -> None:
    try:
        events = list(events_of(messages, session()))
    except (WorkerError, TypeError, ValueError, AttributeError):
        return
    assert all(event["a"] == "agent" for event in json.loads(encode({"events": events}))["events"])
