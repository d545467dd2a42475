"""The a2a driver against google-adk's own server on a2a-sdk 0.3, started by its command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent_eval_action.results.evalset import FunctionCall, FunctionResponse
from agent_eval_action.results.run_result import ErrorKind, Usage
from support.live_agents import driving, open_session, text

pytest.importorskip("a2a", reason="a2a-sdk is not installed: `make setup` installs it")

PROGRAM = Path(__file__).parents[2] / "support" / "adk_a2a_program.py"


@pytest.mark.exhaustive
async def test_an_adk_agent_behind_a2a_has_its_trajectory(a2a_python, tmp_path):
    command = (str(a2a_python), str(PROGRAM), "{port}")
    async with driving(tmp_path, {"PATH": os.environ["PATH"]}, driver="a2a", command=command) as driver:
        session = await open_session(driver)
        first, second, broken = [await session.turn(text(words)) for words in ("roll", "and?", "break")]
        await session.close()
    turn = first.invocation
    assert turn.tool_calls() == (FunctionCall(id="c1", name="roll", args={"sides": 6}),)
    assert turn.tool_responses() == (FunctionResponse(id="c1", name="roll", response={"result": 4}),)
    assert turn.response_text == "a 4"
    assert [event.author for event in turn.intermediate_data.invocation_events] == ["dice"] * 3
    assert (Usage.of_turns([turn]).model_calls, Usage.of_turns([turn]).total_tokens) == (2, 14)
    assert second.invocation.response_text == "5 messages"
    assert broken.kind is ErrorKind.EXCEPTION
    assert "the model broke" in broken.message
