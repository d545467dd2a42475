"""From a worker's report to an Invocation: where we differ from ADK on purpose, and reports that are wrong."""

from __future__ import annotations

from typing import Any

import pytest

from agent_eval_action.processes.protocol import to_invocation
from agent_eval_action.results.evalset import Content, Invocation, Part
from agent_eval_action.results.run_result import AttemptError, ErrorKind

SENT = Content(role="user", parts=(Part(text="hello"),))


def event(*parts: dict[str, Any], **said: Any) -> dict[str, Any]:
    content = {"role": "model", "parts": list(parts)} if parts else None
    return {"a": "agent", "f": False, "p": False, "b": None, "m": None, "c": content, **said}


def turn(*events: dict[str, Any], **frame: Any) -> Invocation:
    made = to_invocation(
        {"events": list(events), "details": {}, "started_at": 1.5, "seconds": [3, 2, 1], **frame}, SENT, "i"
    )
    assert isinstance(made, Invocation), made
    return made


def recorded(made: Invocation) -> list[Content | None]:
    return [one.content for one in getattr(made.intermediate_data, "invocation_events", ())]


def test_thoughts_are_kept_apart_from_the_response() -> None:
    made = turn(event({"text": "hm", "thought": True}, {"text": "Four."}, f=True))
    assert made.response_text == "Four."
    assert made.final_response == Content(role="model", parts=(Part(text="Four."),))
    assert recorded(made) == [Content(role="model", parts=(Part(text="hm", thought=True),))]


def test_a_thought_is_no_text_that_replaces_a_response() -> None:
    made = turn(event({"text": "Four."}, f=True), event({"text": "done", "thought": True}, f=True))
    assert made.response_text == "Four."


def test_only_thoughts_are_an_empty_response() -> None:
    made = turn(event({"text": "hm", "thought": True}, f=True))
    assert made.response_text == ""
    assert recorded(made) == [Content(role="model", parts=(Part(text="hm", thought=True),))]


def test_partial_events_go_when_the_whole_one_follows() -> None:
    made = turn(event({"text": "Fo"}, p=True), event({"text": "ur."}, p=True), event({"text": "Four."}, f=True))
    assert recorded(made) == [None]
    assert made.response_text == "Four."


def test_partial_events_stay_when_the_stream_was_cut() -> None:
    made = turn(event({"text": "Fo"}, p=True, f=True))
    assert made.final_response is None
    assert recorded(made) == [Content(role="model", parts=(Part(text="Fo"),))]


def test_partial_events_of_another_agent_stay() -> None:
    made = turn(event({"text": "Fo"}, p=True, a="other"), event({"text": "Four."}, f=True))
    assert len(recorded(made)) == 2


def test_a_long_running_call_is_final_until_a_later_text() -> None:
    call = {"function_call": {"id": "1", "name": "ask_boss", "args": {}}}
    waiting = turn(event(call, f=True))
    assert waiting.final_response is not None
    assert waiting.response_text == ""
    assert [one.name for one in waiting.tool_calls()] == ["ask_boss"]
    answered = turn(event(call, f=True), event({"text": "He says yes."}, f=True))
    assert answered.response_text == "He says yes."
    assert [one.name for one in answered.tool_calls()] == ["ask_boss"]


def test_nothing_said_is_an_empty_response() -> None:
    made = turn()
    assert (made.final_response, made.response_text, made.tool_calls()) == (None, "", ())
    assert made.user_content == SENT
    assert (made.duration, made.model_duration, made.tool_duration, made.creation_timestamp) == (3, 2, 1, 1.5)


def test_details_of_agents_that_said_something() -> None:
    detail = {"instructions": "Do.", "tool_declarations": [{"function_declarations": []}]}
    details = dict.fromkeys(("agent", "silent"), detail)
    made = turn(event({"text": "x"}, f=True), details=details)
    assert made.app_details is not None
    assert list(made.app_details.agent_details) == ["agent"]


@pytest.mark.parametrize(
    "frame",
    [
        {},
        {"events": 3, "details": {}, "started_at": 1, "seconds": [1, 1, 1]},
        {"events": [{}], "details": {}, "started_at": 1, "seconds": [1, 1, 1]},
        {"events": [event({"text": 5})], "details": {}, "started_at": 1, "seconds": [1, 1, 1]},
        {"events": [{**event(), "c": []}], "details": {}, "started_at": 1, "seconds": [1, 1, 1]},
        {"events": [event({"text": "x"}), 7], "details": {}, "started_at": 1, "seconds": [1, 1, 1]},
        {"events": [], "details": [], "started_at": 1, "seconds": [1, 1, 1]},
        {"events": [], "details": {}, "started_at": "soon", "seconds": [1, 1, 1]},
        {"events": [], "details": {}, "started_at": 1, "seconds": [1]},
        {"events": [], "details": {}, "started_at": 1, "seconds": ["a", "b", "c"]},
    ],
)
def test_a_report_that_is_wrong_is_a_value(frame: dict[str, Any]) -> None:
    made = to_invocation(frame, SENT, "i")
    assert isinstance(made, AttemptError)
    assert made.kind is ErrorKind.PROTOCOL
