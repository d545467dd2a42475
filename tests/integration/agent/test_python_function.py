"""A Python function as an agent, in workers that have no google-adk."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.agents.base import SessionEnd, TurnDone
from agent_eval_action.results.evalset import Content, Part, PastEvent
from agent_eval_action.results.run_result import AgentConditions, AttemptError, ErrorKind
from integration.agent.conftest import Driven, driven, user

SHOP = Path(__file__).parent / "functions"


@asynccontextmanager
async def shop(scratch: Path, function: str, **options: Any) -> AsyncIterator[Driven]:
    async with driven(Path(sys.executable), scratch, SHOP, function=f"shop:{function}", **options) as agent:
        yield agent


async def test_a_function_of_the_message_alone(tmp_path: Path, children: Any) -> None:
    async with shop(tmp_path, "echo") as agent:
        assert isinstance(agent.conditions, AgentConditions), agent.conditions
        assert agent.conditions.adk_version == ""
        assert await agent.answer("hello") == "heard: hello"
    log = agent.log.read_text()
    assert "printed while it is imported" in log
    assert "printed in a turn" in log
    assert not children()


async def test_sessions_keep_messages_and_state_and_see_nothing_of_each_other(tmp_path: Path) -> None:
    past = PastEvent(author="user", content=Content(role="user", parts=(Part(text="before"),)), state_delta={"own": 1})
    async with shop(tmp_path, "remember") as agent:
        one = await agent.open(user_id="ann", history=(past,), state={"turns": 4})
        other = await agent.open(user_id="bob")
        answers = []
        for session, text in ((one, "a"), (other, "b"), (one, "c")):
            done = await session.turn(user(text))
            assert isinstance(done, TurnDone), done
            answers.append(done.invocation.response_text)
        assert answers == ["ann said ['before'] and a", "bob said [] and b", "ann said ['before', 'a'] and c"]
        assert await one.close() == SessionEnd({"turns": 6, "own": 1, "last": "c"})
        assert await other.close() == SessionEnd({"turns": 1, "last": "b"})


async def test_a_function_that_blocks_holds_up_nobody(tmp_path: Path) -> None:
    async with shop(tmp_path, "meet", timeout_s=30) as agent:
        assert await asyncio.gather(agent.answer("a"), agent.answer("b")) == ["a met", "b met"]


async def test_an_object_that_can_be_called_will_do(tmp_path: Path) -> None:
    async with shop(tmp_path, "called") as agent:
        assert await agent.answer("x") == "called with x"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("raise", ErrorKind.EXCEPTION),
        ("exit", ErrorKind.DIED),
        ("nothing", ErrorKind.OUTPUT),
        ("large", ErrorKind.OUTPUT),
        ("die", ErrorKind.DIED),
    ],
)
async def test_what_goes_wrong_is_an_error_of_its_case(tmp_path: Path, text: str, kind: ErrorKind) -> None:
    async with shop(tmp_path, "behave") as agent:
        error = await agent.ask(text, alone=True)
        assert isinstance(error, AttemptError)
        assert error.kind is kind
        assert await agent.answer("hello") == "well"


async def test_hostile_text_arrives_whole(tmp_path: Path) -> None:
    async with shop(tmp_path, "behave") as agent:
        assert "<script>" in await agent.answer("hostile")


@pytest.mark.parametrize(("text", "kind"), [("sleep", ErrorKind.TIMEOUT), ("block", ErrorKind.BLOCKED)])
async def test_a_turn_that_takes_too_long_is_ended(tmp_path: Path, text: str, kind: ErrorKind, children: Any) -> None:
    async with shop(tmp_path, "behave", timeout_s=0.5) as agent:
        error = await agent.ask(text, alone=True)
        assert isinstance(error, AttemptError)
        assert error.kind in {kind, ErrorKind.TIMEOUT}
    assert not children()


@pytest.mark.parametrize(
    ("function", "message"),
    [("shop:missing", "has no function `missing`"), ("shop:NO_FUNCTION", "has no function"), ("gone:f", "gone")],
)
async def test_a_function_that_is_not_there_is_named(tmp_path: Path, function: str, message: str) -> None:
    async with driven(Path(sys.executable), tmp_path, SHOP, function=function) as agent:
        assert isinstance(agent.conditions, AttemptError)
        assert agent.conditions.kind is ErrorKind.IMPORT
        assert message in agent.conditions.message


@pytest.mark.adk110
async def test_a_turn_of_more_spans_than_are_kept_says_that_calls_may_be_missing(
    tmp_path: Path, adk110_python: Path
) -> None:
    async with driven(adk110_python, tmp_path, SHOP, function="many_spans:answer") as agent:
        found = [await agent.ask(number) for number in ("2000", "2001")]
    for done, is_cut in zip(found, (False, True), strict=True):
        assert isinstance(done, TurnDone), done
        assert len(done.invocation.tool_calls()) == 2000
        assert bool(done.invocation.unseen) == is_cut
