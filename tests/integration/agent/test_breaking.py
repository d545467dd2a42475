"""An agent that breaks its process is one case's error; the others go on."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent_eval_action.agents.base import SessionEnd, TurnDone
from agent_eval_action.environments.runtime import AgentLimits
from agent_eval_action.results.run_result import AttemptError, ErrorKind


async def test_two_sessions_when_one_kills_the_worker(drive, say) -> None:
    """Whose doing it was is found by running both alone: the innocent gets its answer, the culprit its error."""
    async with drive("wild") as agent:
        innocent = await agent.open()
        waiting = asyncio.create_task(innocent.turn(say('hang {"seconds": 30}')))
        await asyncio.sleep(0.2)
        culprit = await agent.ask("kill")
        bystander = await waiting
        assert isinstance(bystander, AttemptError)
        assert isinstance(culprit, AttemptError)
        assert bystander.kind is culprit.kind is ErrorKind.DIED
        assert "SIGKILL" in culprit.message
        assert "2 sessions were open" in culprit.message
        assert isinstance(await innocent.close(), AttemptError)
        alone, again = await asyncio.gather(
            agent.answer('add {"a": 2, "b": 3}', alone=True), agent.ask("kill", alone=True)
        )
        assert alone == '{"sum": 5}'
        assert isinstance(again, AttemptError)
        assert again.kind is ErrorKind.DIED
        assert again.message == "the agent's process was killed by SIGKILL"
        assert await agent.answer("say still here") == "still here"


async def test_a_segfault_shows_where(drive) -> None:
    async with drive("wild") as agent:
        done = await agent.ask("segfault")
        assert isinstance(done, AttemptError)
        assert done.kind is ErrorKind.DIED
        assert "SIGSEGV" in done.message
        assert "in segfault" in done.traceback


async def test_exits(drive, say) -> None:
    async with drive("wild") as agent:
        other = await agent.open()
        done = await agent.ask('leave {"code": 3}')
        assert isinstance(done, AttemptError)
        assert (done.kind, done.message) == (ErrorKind.DIED, "sys.exit(3) was called")
        assert "in leave" in done.traceback
        # sys.exit reaches nobody else: the session opened before goes on in the same process.
        assert isinstance(await other.turn(say("say fine")), TurnDone)
        await other.close()
        done = await agent.ask('leave_at_once {"code": 4}')
        assert isinstance(done, AttemptError)
        assert done.message == "the agent's process ended with exit code 4"
        assert "last words" in done.traceback


async def test_a_hanging_turn_is_cancelled_and_the_worker_lives(drive) -> None:
    async with drive("wild", timeout_s=4) as agent:
        await agent.ask("say warm")
        hanging, quick = await asyncio.gather(agent.ask('hang {"seconds": 60}'), agent.ask("say hi"))
        assert isinstance(quick, TurnDone)
        assert isinstance(hanging, AttemptError)
        assert hanging.kind is ErrorKind.TIMEOUT
        assert hanging.message.startswith("the turn took longer than timeout_s (4 s); under way: tool `hang`")
        assert await agent.answer("say again") == "again"


async def test_a_turn_that_will_not_be_cancelled(drive) -> None:
    async with drive("wild", timeout_s=2) as agent:
        await agent.ask("say warm")
        first = await agent.answer("who")
        done = await agent.ask('hang_on {"seconds": 60}')
        assert isinstance(done, AttemptError)
        assert done.kind is ErrorKind.TIMEOUT
        assert "goes on all the same" in done.message
        assert await agent.answer("who") != first  # nobody shares a process with what it still does


@pytest.mark.exhaustive
async def test_slow_synchronous_tools_are_slow_and_no_error(drive) -> None:
    """Four sessions, each blocking the loop for less than the limit: together longer than it."""
    async with drive("wild", timeout_s=2) as agent:
        await agent.ask("say warm")  # the first turn imports the rest of google-adk
        done = await asyncio.gather(*(agent.ask('block {"seconds": 0.9}') for _ in range(4)))
        assert [type(one) for one in done] == [TurnDone] * 4


async def test_a_blocked_loop_names_the_culprit(drive) -> None:
    async with drive("wild", timeout_s=2) as agent:
        await agent.ask("say warm")
        bystander, culprit = await asyncio.gather(agent.ask('hang {"seconds": 30}'), agent.ask('block {"seconds": 60}'))
        assert isinstance(culprit, AttemptError)
        assert isinstance(bystander, AttemptError)
        assert culprit.kind is ErrorKind.BLOCKED
        assert "in block" in culprit.traceback
        assert bystander.kind in (ErrorKind.DIED, ErrorKind.TIMEOUT)


@pytest.mark.exhaustive
async def test_a_call_that_holds_the_interpreters_lock(drive) -> None:
    async with drive("wild", timeout_s=2) as agent:
        await agent.ask("say warm")
        done = await agent.ask('hold_the_lock {"seconds": 60}')
        assert isinstance(done, AttemptError)
        assert done.kind is ErrorKind.BLOCKED
        assert "in hold_the_lock" in done.traceback


async def test_output_is_read_to_the_end_and_kept_to_a_limit(drive) -> None:
    async with drive("wild", limits=AgentLimits(log_bytes=1 << 20)) as agent:
        assert json.loads(await agent.answer('print_much {"megabytes": 200}')) == {"printed": 200}
    assert agent.log.stat().st_size < (1 << 20) + 200
    assert b"more bytes were printed" in agent.log.read_bytes()[-200:]


async def test_large_answers(drive) -> None:
    async with drive("wild", limits=AgentLimits(turn_bytes=24 << 20)) as agent:
        assert len(await agent.answer('answer_much {"megabytes": 10}')) > 10 << 20
        done = await agent.ask('answer_much {"megabytes": 30}')
        assert isinstance(done, AttemptError)
        assert done.kind is ErrorKind.OUTPUT
        assert "24 MB" in done.message
        assert await agent.answer("say after") == "after"


async def test_nothing_outlives_the_driver(drive, children) -> None:
    async with drive("wild") as agent:
        pids = json.loads(await agent.answer("leave_children"))["pids"]
        assert all(_runs(pid) for pid in pids)
        assert json.loads(await agent.answer("forked_sees")) == {"pipes": 0}
    assert not [pid for pid in pids if _runs(pid)]
    assert not children()


def test_a_run_that_is_killed_leaves_nothing(adk213_python: Path, folders: Path, tmp_path: Path) -> None:
    script = """
import asyncio, sys
from pathlib import Path
from agent_eval_action.agents.adk import WorkerAgent
from agent_eval_action.agents.base import SessionRequest
from agent_eval_action.environments.runtime import AgentRuntimeSpec
from agent_eval_action.folders import OutputFolder
from agent_eval_action.results.evalset import Content, Part

async def main(agent, scratch, python):
    ours = OutputFolder.at(scratch)
    driver = WorkerAgent(AgentRuntimeSpec("wild", agent, agent.parent, ours, ours, python))
    await driver.start()
    session = await driver.open(SessionRequest("app", "user"))
    print((await session.turn(Content(role="user", parts=(Part(text="who"),)))).invocation.response_text, flush=True)
    await asyncio.sleep(600)

asyncio.run(main(*map(Path, sys.argv[1:])))
"""
    command = [sys.executable, "-c", script, folders / "wild", tmp_path, adk213_python]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        worker = json.loads(run.stdout.readline())["pid"]
        run.kill()
    while _runs(worker):  # the test's own time limit says when this is too long
        time.sleep(0.05)


async def test_stop_ends_a_worker_that_is_stuck(drive, say, children) -> None:
    async with drive("wild", timeout_s=60, limits=AgentLimits(stop_s=0.2)) as agent:
        session = await agent.open()
        turn = asyncio.create_task(session.turn(say('block {"seconds": 600}')))
        await asyncio.sleep(0.3)
        await agent.driver.stop()
        done = await turn
        assert isinstance(done, AttemptError)
        assert done.kind is ErrorKind.STOPPED
    assert not children()


async def test_a_turn_given_up_does_not_hold_the_caller(drive, say) -> None:
    async with drive("wild", timeout_s=60, limits=AgentLimits(stop_s=0.2)) as agent:
        session = await agent.open()
        turn = asyncio.create_task(session.turn(say('block {"seconds": 600}')))
        await asyncio.sleep(0.3)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        end = await session.close()
        assert isinstance(end, AttemptError)
        assert end.kind is ErrorKind.STOPPED


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize("low", [3, 200])
async def test_closed_descriptors(drive, low: int) -> None:
    async with drive("wild") as agent:
        done = await agent.ask(f'close_descriptors {{"low": {low}, "high": {low + 190}}}')
        if low == 3:
            assert isinstance(done, (TurnDone, AttemptError))
        else:
            assert isinstance(done, AttemptError)
            assert done.kind in (ErrorKind.DIED, ErrorKind.PROTOCOL)
        assert await agent.answer("say on", alone=True) == "on"


async def test_garbage_on_our_pipe(drive) -> None:
    async with drive("wild") as agent:
        done = await agent.ask("scribble")
        assert isinstance(done, AttemptError)
        assert done.kind is ErrorKind.PROTOCOL
        assert "garbage" in done.message
        assert await agent.answer("say on") == "on"


async def test_agents_that_rearrange_their_process(drive) -> None:
    async with drive("wild") as agent:
        process = await agent.answer("who")
        assert json.loads(await agent.answer("rude_setup")) == {"done": True}
        first, second = await agent.answer("move"), await agent.answer("move")
        assert first == second
        bystander, _ = await asyncio.gather(agent.ask('hang {"seconds": 9}'), agent.ask("cancel_everybody"))
        assert isinstance(bystander, AttemptError)
        assert bystander.kind is ErrorKind.DIED
        assert await agent.answer("who") == process


async def test_odd_values_become_text(drive, say) -> None:
    async with drive("wild") as agent:
        session = await agent.open(state={"given": [1, "\x00"]})
        done = await session.turn(say("odd_values"))
        assert isinstance(done, TurnDone)
        (response,) = done.invocation.tool_responses()
        assert response.response is not None
        assert response.response["n"] == "nan"
        assert response.response["b"] == "_w=="
        assert response.response["s"] == "\ufffd \x00"
        assert json.dumps(done.invocation.model_dump(mode="json"), allow_nan=False)
        await session.turn(say('remember {"value": "\\ud800"}'))
        end = await session.close()
        assert isinstance(end, SessionEnd)
        assert end.final_state["user:note"] == "\ufffd"
        assert end.final_state["object"] == {"when": [1, 2]}


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"
