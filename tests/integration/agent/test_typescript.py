"""A second language: ADK for TypeScript behind its own server, and a program of lines that exports real spans."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from agent_eval_action.agents.base import SessionEnd, SessionRequest, TurnDone
from agent_eval_action.results.evalset import Invocation, PastEvent
from agent_eval_action.results.run_result import AttemptError
from support.live_agents import driving, open_session, text

pytestmark = pytest.mark.exhaustive

SOURCES = Path(__file__).parent / "typescript"
MODULES = Path(__file__).resolve().parents[3] / ".venvs" / "typescript" / "node_modules"
HISTORY = (PastEvent(author="user", content=text("before")),)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the sources beside the modules that they import."""
    if not shutil.which("node") or not MODULES.is_dir():
        pytest.skip("NOT TESTED: no Node.js here, or `make setup-peers` has not installed ADK for TypeScript")
    shutil.copytree(SOURCES, tmp_path / "bot")
    (tmp_path / "bot" / "node_modules").symlink_to(MODULES)
    build = ("--bundle", "--platform=node", "--format=esm", "--packages=external", "--outfile=program.mjs")
    subprocess.run(
        ["node_modules/.bin/esbuild", "program.ts", *build], cwd=tmp_path / "bot", check=True, capture_output=True
    )
    return tmp_path / "bot"


def environ() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}


def calls(turn: Invocation) -> list[tuple[object, ...]]:
    results = {response.id: response.response for response in turn.tool_responses()}
    return [(call.name, call.args, results.get(call.id)) for call in turn.tool_calls()]


async def test_server_of_adk_for_typescript(folder: Path) -> None:
    program = ("node", "node_modules/.bin/adk", "api_server", "agents", "-h", "127.0.0.1", "-p", "{port}")
    command = (*program, "--session_service_uri", "memory://")
    async with driving(folder, environ(), driver="adk_server", command=command) as driver:
        refused = await driver.open(SessionRequest("app", "user", history=HISTORY))
        assert isinstance(refused, AttemptError), "this server takes no events"
        assert "did not take the history" in refused.message
        session = await open_session(driver, state={"note": "x"})
        made = [await session.turn(text(said)) for said in ("say größer | <b>", 'add {"a": 1, "b": 2}', "recall {}")]
        turns = [done.invocation for done in made if isinstance(done, TurnDone)]
        assert len(turns) == len(made), made
        assert turns[0].response_text == "größer | <b>"
        assert calls(turns[1]) == [("add", {"a": 1, "b": 2}, {"sum": 3})]
        assert json.loads(turns[2].response_text) == {"note": "x"}
        (event,) = [e for e in turns[0].intermediate_data.invocation_events if e.usage_metadata]
        assert (event.author, event.usage_metadata["total_token_count"]) == ("wild", 7)
        conversation = await session.turn(text("conversation"))
        assert isinstance(conversation, TurnDone)
        assert "größer" in conversation.invocation.response_text
        assert await session.close() == SessionEnd({"note": "x"})
        both = [await open_session(driver, session_id="pinned") for _ in range(2)]
        await both[0].turn(text("say mine"))
        other = await both[1].turn(text("conversation"))
        assert isinstance(other, TurnDone)
        assert "mine" not in other.invocation.response_text


@pytest.mark.parametrize("words", [(), ("bare",)], ids=["spans", "ADK-Rust's lines"])
async def test_program_of_lines(folder: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    log = tmp_path / "calls.log"
    options = {"command": ("node", "program.mjs", *words), "env": {"CALLS_LOG": str(log)}}
    async with driving(folder, environ(), driver="command", **options) as driver:
        sessions = [await open_session(driver) for _ in range(3)]
        labels = ["größer | <b>", "two", "three"]
        made = await asyncio.gather(*(each.turn(text(label)) for each, label in zip(sessions, labels, strict=True)))
        found = []
        for done, label in zip(made, labels, strict=True):
            assert isinstance(done, TurnDone), done
            assert done.invocation.response_text == "rolled"
            assert calls(done.invocation) == [("roll", {"sides": 6, "label": label}, {"rolled": 3})]
            found += [{"name": call.name, "args": call.args} for call in done.invocation.tool_calls()]
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    assert sorted(map(repr, found)) == sorted(map(repr, logged))
