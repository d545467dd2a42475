"""What a judge is shown of a turn, from hand-written data and from recorded events alike."""

from __future__ import annotations

from typing import Any

import pytest

from agent_eval_action.criteria.verdicts import (
    all_instructions,
    calls_with_results,
    conversation,
    first_instructions,
    sources,
    tools,
)
from agent_eval_action.results.evalset import Invocation
from support.judging import rubric, scored, verdicts
from support.scripted_llm import ScriptedLlm
from support.turns import criterion, recorded, turn


def by_hand(calls: list[dict[str, Any]], responses: list[dict[str, Any]]) -> Invocation:
    return turn("done", intermediate_data={"tool_uses": calls, "tool_responses": responses})


def as_events(calls: list[dict[str, Any]], responses: list[dict[str, Any]]) -> Invocation:
    return recorded(
        {"content": {"parts": [{"function_call": call} for call in calls]}},
        {"content": {"parts": [{"function_response": one} for one in responses]}},
    )


def results(made: Invocation) -> list[Any]:
    return [step["result"] for step in calls_with_results(made)]


@pytest.mark.parametrize("shape", [by_hand, as_events])
def test_calls_are_paired_by_id_else_in_order_by_name(shape):
    named = [{"name": "a"}, {"name": "b"}, {"name": "a"}, {"name": "c"}]
    got = [
        {"name": "a", "response": {"n": 1}},
        {"name": "a", "response": {"n": 2}},
        {"name": "b", "response": {"n": 3}},
    ]
    assert results(shape(named, got)) == [{"n": 1}, {"n": 3}, {"n": 2}, None]
    with_ids = [{"id": "1", "name": "a"}, {"id": "2", "name": "a"}]
    back = [{"id": "2", "name": "a", "response": {"n": 2}}, {"id": "1", "name": "a", "response": {"n": 1}}]
    assert results(shape(with_ids, back)) == [{"n": 1}, {"n": 2}]
    assert results(shape(with_ids, [{"name": "a", "response": {"n": 0}}])) == [{"n": 0}, None]
    assert results(shape([], got)) == []


def test_calls_have_their_arguments():
    made = by_hand([{"name": "a", "args": {"x": [1, "ä"]}}, {"name": "b"}], [])
    assert calls_with_results(made) == [
        {"step": 1, "call": "a", "arguments": {"x": [1, "ä"]}, "result": None},
        {"step": 2, "call": "b", "arguments": {}, "result": None},
    ]


AGENTS = {
    "router": {"name": "router", "instructions": "Route.", "tool_declarations": [{"name": "transfer"}]},
    "clerk": {"name": "clerk", "instructions": "Serve.", "tool_declarations": []},
}


def served(*events: dict[str, Any]) -> Invocation:
    return recorded(*events, app_details={"agent_details": AGENTS})


def test_the_instructions_are_those_of_the_agent_that_answered_first():
    assert first_instructions(served({"author": "clerk"}, {"author": "router"})) == "Serve."
    assert first_instructions(served({"author": "a plugin"}, {"author": "clerk"})) == "Serve."
    assert first_instructions(served()) == "Route."
    assert first_instructions(turn("x", app_details={"agent_details": AGENTS})) == "Route."
    assert first_instructions(turn("x")) == ""


def test_tools_and_instructions_of_all_agents_once():
    later = {"clerk": {**AGENTS["clerk"], "instructions": "Other."}, "cook": {"name": "cook", "instructions": "Cook."}}
    turns = [served(), turn("x"), turn("x", app_details={"agent_details": later})]
    assert tools(*turns) == {"router": ({"name": "transfer"},)}
    assert all_instructions(turns) == {"router": "Route.", "clerk": "Serve.", "cook": "Cook."}


def test_sources_are_what_the_model_cited():
    made = recorded({"grounding_metadata": {"web_search_queries": ["x"]}}, {})
    assert sources(made.events) == [{"agent": "agent", "grounding": {"web_search_queries": ["x"]}}]
    assert sources(turn("x").events) == []


def test_a_conversation_has_every_step_of_every_turn():
    parts = [
        {"text": "hm", "thought": True},
        {"text": "One moment."},
        {"function_call": {"name": "a", "args": {"x": 1}}},
    ]
    events = recorded(
        {"content": {"parts": parts}},
        {"content": {"parts": [{"function_response": {"name": "a", "response": {}}}]}},
        {},
    )
    written = {"tool_uses": [{"name": "b"}], "intermediate_responses": [["helper", [{"text": "Looking."}]]]}
    assert conversation([events, turn("Bye.", intermediate_data=written)]) == [
        {
            "turn": 1,
            "user": "hi",
            "steps": [
                {"agent": "agent", "said": "One moment."},
                {"agent": "agent", "call": "a", "arguments": {"x": 1}},
                {"tool": "a", "result": {}},
            ],
            "answer": "done",
        },
        {
            "turn": 2,
            "user": "hi",
            "steps": [{"call": "b", "arguments": {}, "result": None}, {"agent": "helper", "said": "Looking."}],
            "answer": "Bye.",
        },
    ]


def test_all_of_it_is_in_the_question():
    made = served(
        {"author": "clerk", "content": {"parts": [{"function_call": {"name": "weigh", "args": {"item": "秤"}}}]}},
        {"author": "clerk", "content": {"parts": [{"function_response": {"name": "weigh", "response": {"kg": 5.25}}}]}},
        {
            "author": "clerk",
            "content": {"parts": [{"text": "So."}]},
            "grounding_metadata": {"web_search_queries": ["ibex"]},
        },
    )
    seen = {
        "rubric_based_final_response_quality_v1": ["Serve.", "transfer", "hi", "秤", "5.25", "ibex", "done"],
        "rubric_based_tool_use_quality_v1": ["transfer", "hi", "秤", "5.25"],
        "rubric_based_multi_turn_trajectory_quality_v1": [
            "Serve.",
            "Route.",
            "transfer",
            "hi",
            "秤",
            "5.25",
            "So.",
            "done",
        ],
    }
    for name, texts in seen.items():
        llm = ScriptedLlm(lambda _: verdicts("yes"))
        scored(criterion(name, threshold=1, rubrics=[rubric("a", "It is a property.")]), llm, [made])
        asked = llm.asked[0].messages[0].text
        assert [text for text in [*texts, "It is a property."] if text not in asked] == []
