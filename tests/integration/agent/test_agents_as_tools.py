"""Calls of agents that were called as tools: ADK's record of a turn has none of them, and ours has them beside it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_eval_action.results.evalset import Invocation


def asking(agent: str, *calls: Any) -> list[Any]:
    return [agent, {"request": json.dumps(calls)}]


def looking(shelf: str) -> list[Any]:
    return ["look", {"shelf": shelf}]


@pytest.fixture
def turn_of(drive):
    async def make(*calls: Any) -> Invocation:
        async with drive("desk") as agent:
            done = await agent.ask(json.dumps(calls))
            return done.invocation

    return make


async def test_each_call_is_recorded_with_its_agent_and_the_call_it_was_made_in(turn_of) -> None:
    turn = await turn_of(
        asking("clerk", looking("a"), asking("archivist", looking("b"))),
        looking("c"),
        asking("clerk", looking("d")),
    )
    assert [call.name for call in turn.tool_calls()] == ["clerk", "look", "clerk"]
    first, _, third = turn.tool_calls()
    made = {
        (event.author, call.name, (call.args or {}).get("shelf")): (event.within, call.id)
        for event in turn.inner_events
        for call in event.function_calls()
    }
    asked = made["clerk", "archivist", None]
    assert {name: within for name, (within, _) in made.items()} == {
        ("clerk", "look", "a"): first.id,
        ("clerk", "archivist", None): first.id,
        ("archivist", "look", "b"): asked[1],
        ("clerk", "look", "d"): third.id,
    }
    found = [
        part.function_response.response
        for event in turn.inner_events
        for part in event.content.parts
        if part.function_response and part.function_response.name == "look"
    ]
    assert sorted(json.dumps(answer) for answer in found) == [f'{{"found": "{shelf}"}}' for shelf in "ABD"]
    shelves = [(call.args or {}).get("shelf") for call in turn.all_tool_calls() if call.name == "look"]
    assert shelves == ["c", "a", "b", "d"]
