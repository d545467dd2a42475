"""Judging begins while the conversation goes on, and all of a turn is asked at once: the server's order shows it."""

from __future__ import annotations

import asyncio
import contextlib

from support.gemini_server.messages import ModelRequest

from .conftest import MATCH, Judged, case
from .test_all_criteria import rubric

PATIENCE = 20.0  # what never comes is waited for so long, and then the test is red


def is_judging(request: ModelRequest) -> bool:
    return "responseJsonSchema" in (request.body.get("generationConfig") or {})


def test_the_first_turn_is_judged_before_the_second_is_answered(judged: Judged) -> None:
    judged.cases(case("two", "Rome", "Oslo"))
    seen: list[str] = []
    judging: list[asyncio.Event] = []

    async def hold(request: ModelRequest) -> None:
        if not judging:
            judging.append(asyncio.Event())
        if is_judging(request):
            seen.append("judge")
            judging[0].set()
        elif "Oslo" in request.user_text:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(judging[0].wait(), PATIENCE)
            seen.append("second turn")
        else:
            seen.append("first turn")

    judged.server.hold = hold
    done = judged.run()
    assert done.code == 0, done.said
    assert seen.index("judge") < seen.index("second turn")


def test_criteria_and_samples_of_a_turn_are_asked_at_once(judged: Judged) -> None:
    judged.criteria(
        {
            **MATCH,
            "rubric_based_final_response_quality_v1": {"threshold": 1, "rubrics": [rubric("hot", "It says hot.")]},
            "rubric_based_tool_use_quality_v1": {"threshold": 1, "rubrics": [rubric("look", "It looks it up.")]},
        }
    )
    waiting = 0
    most = 0
    there: list[asyncio.Event] = []

    async def hold(request: ModelRequest) -> None:
        nonlocal waiting, most
        if not is_judging(request):
            return
        if not there:
            there.append(asyncio.Event())
        waiting, most = waiting + 1, max(most, waiting + 1)
        if waiting == 3:
            there[0].set()
        try:
            await asyncio.wait_for(there[0].wait(), PATIENCE)
        except TimeoutError:
            there[0].set()
        waiting -= 1

    judged.server.hold = hold
    done = judged.run()
    assert done.code == 0, done.said
    assert most == 3, "a request for each of three criteria"
    assert judged.model.asked.total() == 2 + 9, "for three of five samples each"
    assert judged.server.seen.calls == 2 + 3
