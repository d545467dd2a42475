"""The oldest google-adk we run, on the oldest Python: the same agent, the same record, the same errors."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent_eval_action.agents.base import SessionEnd, TurnDone
from agent_eval_action.results.run_result import AgentConditions, AttemptError, ErrorKind


@pytest.mark.adk110
async def test_the_oldest_google_adk(drive, adk110_python: Path, say) -> None:
    """One test, because google-adk 1.10 takes seconds to import."""
    async with drive("wild", python=adk110_python, timeout_s=8) as agent:
        assert isinstance(agent.conditions, AgentConditions), agent.conditions
        assert agent.conditions.adk_version.startswith("1.10.")
        assert agent.conditions.python.startswith("3.10.")
        await agent.ask("say warm")

        session = await agent.open(state={"given": 4})
        done = await session.turn(say('add {"a": 2, "b": 3}'))
        assert isinstance(done, TurnDone), done
        turn = done.invocation
        assert turn.response_text == '{"sum": 5}'
        assert [(call.name, call.args) for call in turn.tool_calls()] == [("add", {"a": 2, "b": 3})]
        assert turn.tool_responses()[0].id == turn.tool_calls()[0].id
        assert turn.app_details is not None
        details = turn.app_details.agent_details["wild"]
        assert details.instructions.startswith("Do as you are told.")
        assert {d["name"] for tool in details.tool_declarations for d in tool["function_declarations"]} >= {"add"}
        assert turn.model_duration is not None
        assert turn.duration is not None
        assert 0 < turn.model_duration <= turn.duration
        await session.turn(say('remember {"value": "x"}'))
        end = await session.close()
        assert isinstance(end, SessionEnd)
        assert end.final_state["given"] == 4
        assert end.final_state["user:note"] == "x"

        hanging, limited, left, odd = await asyncio.gather(
            agent.ask('hang {"seconds": 60}'),
            agent.ask("rate_limit"),
            agent.ask('leave {"code": 3}'),
            agent.ask("odd_values"),
        )
        assert isinstance(hanging, AttemptError)
        assert hanging.kind is ErrorKind.TIMEOUT
        assert "tool `hang`" in hanging.message
        assert isinstance(limited, AttemptError)
        assert limited.kind is ErrorKind.RATE_LIMITED
        assert isinstance(left, AttemptError)
        assert left.message == "sys.exit(3) was called"
        assert isinstance(odd, (TurnDone, AttemptError))
        assert await agent.answer("say still here") == "still here"
