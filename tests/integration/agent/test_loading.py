"""Layouts of agent folders that load, what a session sees, and what is said of folders that do not load."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent_eval_action.agents.adk import WorkerAgent
from agent_eval_action.agents.base import SessionEnd, TurnDone
from agent_eval_action.environments.runtime import AgentLimits, AgentRuntimeSpec
from agent_eval_action.folders import OutputFolder
from agent_eval_action.results.evalset import Content, FunctionCall, FunctionResponse, Part, PastEvent
from agent_eval_action.results.run_result import AgentConditions, AttemptError, ErrorKind


async def test_an_app_with_everything(drive, folders: Path, say) -> None:
    environ = {"SHOP_NAME": "from outside", "GOOGLE_API_KEY": "k", "GITHUB_TOKEN": "canary", "INPUT_X": "canary"}
    environ |= {"ACTIONS_RUNTIME_TOKEN": "canary", "PYTHONPATH": "/canary", "LD_PRELOAD_X": "canary", "MINE": "1"}
    shop = folders / "shop"
    async with drive(shop / "shop", workspace=shop, environ=environ, env_allow=("MINE", "SHOP_NAME")) as agent:
        found = agent.conditions
        assert isinstance(found, AgentConditions)
        assert found.models == ("counter-1", "counter-2")
        assert found.adk_version == "2.13.0"
        assert found.python.startswith("3.11.")
        assert found.path == "shop"
        assert len(found.packages_digest) == 64
        session = await agent.open()
        first, second = await session.turn(say("buy")), await session.turn(say("buy from the clerk"))
        await session.close()
        assert isinstance(first, TurnDone)
        assert isinstance(second, TurnDone)
        (answer,) = first.invocation.tool_responses()
        assert answer.response is not None
        assert answer.response["cwd"] == str(shop)
        assert answer.response["currency"] == "EUR"
        assert answer.response["name"] == "from outside"  # .env never overrides what is set
        seen = set(answer.response["seen"])
        assert {"MINE", "GOOGLE_API_KEY"} <= seen
        assert not seen & {"GITHUB_TOKEN", "INPUT_X", "ACTIONS_RUNTIME_TOKEN", "PYTHONPATH", "LD_PRELOAD_X"}
        details = second.invocation.app_details
        assert details is not None
        assert set(details.agent_details) == {"shop", "clerk"}
        shopkeeper = details.agent_details["shop"]
        # As the model got it: the App's plugin runs after ours, and its change is in.
        assert shopkeeper.instructions.startswith("Sell.")
        assert "Be polite." in shopkeeper.instructions
        names = [d["name"] for tool in shopkeeper.tool_declarations for d in tool["function_declarations"]]
        assert sorted(names) == ["order", "transfer_to_agent"]
        assert [call.name for call in second.invocation.tool_calls()] == ["transfer_to_agent", "order"]


async def test_reset_data_runs_before_each_case_and_cases_run_singly(drive, folders: Path) -> None:
    """Data of the module's own would be shared by sessions that run side by side."""
    shop = folders / "shop"
    async with drive(shop / "shop", workspace=shop) as agent:
        answers = await asyncio.gather(*(agent.answer("buy") for _ in range(4)))
    assert answers == ["orders: 1"] * 4


@pytest.mark.exhaustive
async def test_an_agent_made_asynchronously_is_cleaned_up(drive, tmp_path: Path) -> None:
    async with drive("lender", environ={"HOME": str(tmp_path)}) as agent:
        assert await agent.answer("hello") == "lent"
        silent = await agent.ask("quiet")
        assert isinstance(silent, TurnDone)
        assert silent.invocation.response_text == ""
        assert silent.invocation.tool_calls() == ()
    assert (tmp_path / "returned").read_text() == "True"


async def test_sessions_share_nothing(drive, say) -> None:
    async with drive("wild") as agent:
        one = await agent.open(session_id="pinned", state={"given": 1, "user:note": "mine"})
        other = await agent.open(session_id="pinned")
        await one.turn(say('remember {"value": "secret"}'))
        done = await other.turn(say("recall"))
        assert isinstance(done, TurnDone)
        assert done.invocation.tool_responses()[0].response == {
            "note": None, "user:note": None, "app:note": None, "given": None,
        }  # fmt: skip
        end, empty = await one.close(), await other.close()
        assert isinstance(end, SessionEnd)
        assert isinstance(empty, SessionEnd)
        assert end.final_state["given"] == 1
        assert end.final_state["user:note"] == end.final_state["app:note"] == "secret"
        assert empty.final_state == {}
        assert await one.close() == end


async def test_a_model_that_says_429_and_when_is_not_asked_before(drive) -> None:
    """Half of the turn's time is all that a call waits: here less than the model wants."""
    async with drive("wild", timeout_s=30) as agent:
        limited = await agent.ask("rate_limit")
        assert isinstance(limited, AttemptError)
        assert limited.kind is ErrorKind.RATE_LIMITED
        assert "429" in limited.message
        assert "retry after 17s" in limited.message


async def test_errors_of_the_model_and_of_tools(drive) -> None:
    async with drive("wild") as agent:
        down = await agent.ask("unavailable")
        assert isinstance(down, AttemptError)
        assert down.kind is ErrorKind.UNAVAILABLE
        retried = json.loads(await agent.answer("retries"))
        assert retried == [5, 1.0, [408, 500, 502, 503, 504]]
        failed = await agent.ask('fail {"text": "no such order"}')
        assert isinstance(failed, AttemptError)
        assert (failed.kind, failed.turn) == (ErrorKind.EXCEPTION, 0)
        assert failed.message == "ValueError: no such order"
        assert failed.traceback.splitlines()[-1] == "ValueError: no such order"
        nothing = await agent.ask("silence")
        assert isinstance(nothing, TurnDone)
        assert nothing.invocation.response_text == ""


async def test_an_agent_in_yaml(drive) -> None:
    async with drive("plain_yaml") as agent:
        assert isinstance(agent.conditions, AgentConditions), agent.conditions
        assert agent.conditions.models == ("gemini-2.5-flash",)


@pytest.mark.parametrize("folder", ["family/cousin", "dotted.v2"])
async def test_folders_adk_web_cannot_import(drive, folders: Path, folder: str) -> None:
    async with drive(folders / folder) as agent:
        assert isinstance(agent.conditions, AgentConditions), agent.conditions


@pytest.mark.exhaustive(after=3)
@pytest.mark.parametrize(
    ("code", "message", "trace"),
    [
        ("root_agent = Agent(\n", "SyntaxError: '(' was never closed (agent.py, line 1)", "root_agent = Agent("),
        ("import a_package_nobody_has", "ModuleNotFoundError: No module named 'a_package_nobody_has'", "agent.py"),
        ("import sys\nsys.exit(2)", "sys.exit(2) was called", "sys.exit(2)"),
        ("import os\nprint('bye', flush=True)\nos._exit(5)", "exit code 5 while it imported the agent", "bye"),
        (
            "from google.adk.agents import BaseAgent\nmy_agent = BaseAgent(name='mine')",
            "there is an agent named `my_agent`: call it `root_agent`",
            "",
        ),
        ("root_agent = 'a string'", "that is an agent: `root_agent` is a str", ""),
        ("tools = 1", "it has agent, tools", ""),
    ],
)
async def test_folders_that_do_not_load(drive, tmp_path: Path, code: str, message: str, trace: str) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "agent.py").write_text(code)
    async with drive(tmp_path / "broken") as agent:
        found = agent.conditions
        assert isinstance(found, AttemptError)
        assert found.kind is ErrorKind.IMPORT
        assert message in found.message
        assert trace in found.traceback
        opened = await agent.open()
        assert isinstance(opened, AttemptError)
        assert json.dumps(found.model_dump(mode="json"))


KILLED_ONCE = """
import os, pathlib, signal
marker = pathlib.Path(__file__).with_name("killed")
killed = marker.read_text() if marker.exists() else ""
marker.write_text(killed + "x")
if len(killed) < {times}:
    os.kill(os.getpid(), signal.SIGKILL)
from google.adk.agents import BaseAgent
root_agent = BaseAgent(name="mine")
"""


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_worker_killed_while_it_imports_is_started_again(drive, tmp_path: Path, workers: int) -> None:
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot" / "agent.py").write_text(KILLED_ONCE.format(times=1))
    async with drive(tmp_path / "bot", workers=workers) as agent:
        assert isinstance(agent.conditions, AgentConditions), agent.conditions
        session = await agent.open()
        assert not isinstance(session, AttemptError), session
        await session.close()


async def test_an_agent_that_kills_every_worker_that_imports_it_does_not_start(drive, tmp_path: Path) -> None:
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot" / "agent.py").write_text(KILLED_ONCE.format(times=100))
    async with drive(tmp_path / "bot") as agent:
        assert isinstance(agent.conditions, AttemptError)
        assert agent.conditions.kind is ErrorKind.IMPORT
        assert "killed by SIGKILL while it imported the agent" in agent.conditions.message
        assert len((tmp_path / "bot" / "killed").read_text()) == 2


async def test_a_later_worker_killed_while_it_imports_is_no_broken_import(drive, tmp_path: Path) -> None:
    """The agent was imported before: the attempt is one to make again."""
    code = KILLED_ONCE.replace("len(killed) < {times}", "0 < len(killed) < 3")
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot" / "agent.py").write_text(code)
    async with drive(tmp_path / "bot") as agent:
        assert isinstance(agent.conditions, AgentConditions), agent.conditions
        refused = await agent.open(alone=True)
        assert isinstance(refused, AttemptError)
        assert refused.kind is ErrorKind.DIED
        session = await agent.open(alone=True)
        assert not isinstance(session, AttemptError), session
        await session.close()


async def test_an_import_that_does_not_end(drive, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "agent.py").write_text("import time\ntime.sleep(600)")
    async with drive(tmp_path / "broken", limits=AgentLimits(import_s=1, stop_s=0.2)) as agent:
        assert isinstance(agent.conditions, AttemptError)
        assert agent.conditions.kind is ErrorKind.IMPORT
        assert agent.conditions.message.startswith("importing the agent took longer than 1 s")
        assert "broken/agent.py" in agent.conditions.traceback


async def test_a_folder_that_is_not_there(drive, tmp_path: Path) -> None:
    async with drive(tmp_path / "nowhere") as agent:
        assert isinstance(agent.conditions, AttemptError)
        assert agent.conditions.kind is ErrorKind.ENVIRONMENT
        assert "does not exist" in agent.conditions.message


async def test_an_agent_without_any_environment(drive, tmp_path: Path) -> None:
    (tmp_path / "team" / "agent").mkdir(parents=True)
    async with drive(tmp_path / "team" / "agent", workspace=tmp_path / "team", python=None) as agent:
        assert isinstance(agent.conditions, AttemptError)
        assert agent.conditions.kind is ErrorKind.ENVIRONMENT
        assert "no Python environment with google-adk for the agent agent" in agent.conditions.message
        assert "requirements.txt" in agent.conditions.traceback


async def test_a_google_adk_that_is_too_old(drive, tmp_path: Path) -> None:
    """The version is looked at before anything else of it is imported, or the agent is."""
    subprocess.run(  # noqa: ASYNC221 - nothing else runs yet
        [sys.executable, "-m", "venv", "--without-pip", tmp_path / "old"], check=True
    )
    (packages,) = (tmp_path / "old" / "lib").glob("python*/site-packages")
    (packages / "google" / "adk").mkdir(parents=True)
    (packages / "google" / "adk" / "__init__.py").touch()
    (packages / "google" / "adk" / "version.py").write_text("__version__ = '1.9.3'\n")
    (tmp_path / "agent").mkdir()
    async with drive(tmp_path / "agent", python=tmp_path / "old") as agent:
        assert isinstance(agent.conditions, AttemptError)
        assert agent.conditions.kind is ErrorKind.ENVIRONMENT
        assert agent.conditions.message.startswith("google-adk 1.9.3 is too old: 1.10 or newer is needed")


@pytest.mark.exhaustive
async def test_two_workers_to_begin_with_where_there_are_two_cores(drive, monkeypatch) -> None:
    for count, workers in ((1, 1), (2, 2), (8, 2)):
        monkeypatch.setattr("agent_eval_action.agents.adk.available_cores", lambda count=count: count)
        async with drive("wild", workers=None) as agent:
            assert len({*await asyncio.gather(*(agent.answer("who") for _ in range(4)))}) == workers


@pytest.mark.exhaustive
async def test_more_workers_while_those_there_are_saturated(drive, say, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("agent_eval_action.agents.adk.available_cores", lambda: 2)
    monkeypatch.setattr("agent_eval_action.agents.adk._USUAL_WORKERS", 1)
    free = tmp_path / "free"
    async with drive("wild", workers=None) as agent:
        first = {await agent.answer("who"), *await asyncio.gather(*(agent.answer("who") for _ in range(4)))}
        assert len(first) == 1  # four sessions that wait for nobody are no reason for a second one
        busy = await agent.open()
        blocking = asyncio.create_task(busy.turn(say(f'block {{"seconds": 50, "until": "{free}"}}')))
        while not busy.worker.saturated:  # noqa: ASYNC110 - a worker's reports wake nobody
            await asyncio.sleep(0.02)
        assert {await agent.answer("who")} != first
        free.touch()
        assert isinstance(await blocking, TurnDone)
        await busy.close()


async def test_times_of_a_turn(drive) -> None:
    async with drive("wild") as agent:
        done = await agent.ask('hang {"seconds": 0.3}')
        assert isinstance(done, TurnDone)
        turn = done.invocation
        assert turn.tool_duration is not None
        assert turn.model_duration is not None
        assert turn.duration is not None
        assert turn.tool_duration >= 0.3
        assert turn.model_duration + turn.tool_duration <= turn.duration


async def test_stop_without_start_ends_what_was_prepared(
    adk213_python: Path, folders: Path, tmp_path: Path, children
) -> None:
    driver = WorkerAgent(
        AgentRuntimeSpec(
            "wild",
            folders / "wild",
            folders,
            OutputFolder.at(tmp_path),
            OutputFolder.at(tmp_path / "cache"),
            adk213_python,
        )
    )
    driver.prepare()
    await driver.stop()
    assert not children()


async def test_a_session_begins_with_the_history_of_its_case(drive) -> None:
    """The events before the first turn are in the model's request, and their state is the session's."""
    history = (
        PastEvent(author="user", content=Content(parts=(Part(text="A bike, please."),))),
        PastEvent(
            author="model", content=Content(parts=(Part(function_call=FunctionCall(name="find", args={"a": 1})),))
        ),
        PastEvent(
            author="model",
            content=Content(parts=(Part(function_response=FunctionResponse(name="find", response={"b": 2})),)),
        ),
        PastEvent(author="model", content=Content(parts=(Part(text="It is 90 a day."),)), state_delta={"price": 90}),
        PastEvent(author="user", state_delta={"agreed": True}),
    )
    async with drive("wild") as agent:
        session = await agent.open(history=history, state={"given": 1})
        done = await session.turn(Content(role="user", parts=(Part(text="conversation"),)))
        end = await session.close()
    assert isinstance(done, TurnDone), done
    assert isinstance(end, SessionEnd)
    assert end.final_state == {"given": 1, "price": 90, "agreed": True}
    assert json.loads(done.invocation.response_text) == [
        {"role": "user", "parts": [{"text": "A bike, please."}]},
        {"role": "model", "parts": [{"function_call": {"name": "find", "args": {"a": 1}}}]},
        {"role": "user", "parts": [{"function_response": {"name": "find", "response": {"b": 2}}}]},
        {"role": "model", "parts": [{"text": "It is 90 a day."}]},
        {"role": "user", "parts": [{"text": "conversation"}]},
    ]
