"""Drivers on real workers: a fresh one where a test breaks it, one per module where nothing does."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.agents.adk import WorkerAgent
from agent_eval_action.agents.base import SessionRequest, TurnDone
from agent_eval_action.environments.runtime import (
    AgentEnvironment,
    AgentFolder,
    AgentLimits,
    AgentRuntimeSpec,
    Launch,
)
from agent_eval_action.folders import OutputFolder
from agent_eval_action.processes.process import ForkServers
from agent_eval_action.results.evalset import Content, Part
from agent_eval_action.results.run_result import AgentConditions, AttemptError

FOLDERS = Path(__file__).parent / "folders"
ENVIRON = {key: os.environ[key] for key in ("PATH", "HOME")}


class Driven:
    """A started driver, and the few things every test does with it."""

    def __init__(self, driver: WorkerAgent, conditions: AgentConditions | AttemptError, log: Path) -> None:
        self.driver = driver
        self.conditions = conditions
        self.log = log

    async def open(self, **request: Any) -> Any:
        return await self.driver.open(SessionRequest(**{"app_name": "app", "user_id": "user", **request}))

    async def ask(self, text: str, **request: Any) -> TurnDone | AttemptError:
        """One turn in a session of its own."""
        session = await self.open(**request)
        if isinstance(session, AttemptError):
            return session
        done = await session.turn(user(text))
        await session.close()
        return done

    async def answer(self, text: str, **request: Any) -> str:
        done = await self.ask(text, **request)
        assert isinstance(done, TurnDone), done
        return done.invocation.response_text


def user(text: str) -> Content:
    return Content(role="user", parts=(Part(text=text),))


Drive = Callable[..., Any]


@pytest.fixture(scope="session")
def folders() -> Path:
    return FOLDERS


@asynccontextmanager
async def driven(python: Path | None, scratch: Path, path: Path, **options: Any) -> AsyncIterator[Driven]:
    settings: dict[str, Any] = {
        "name": path.name,
        "path": path,
        "workspace": path.parent,
        "logs": OutputFolder.at(scratch),
        "cache": OutputFolder.at(scratch / "environments"),
        "python": python,
        "environ": ENVIRON,
        "limits": AgentLimits(cancel_grace_s=0.5),
    }
    own = [options.pop(name, default) for name, default in (("workers", 1), ("servers", None), ("sessions", None))]
    driver = WorkerAgent(AgentRuntimeSpec(**{**settings, **options}), *own)
    try:
        yield Driven(driver, await driver.start(), scratch / f"{settings['name']}.log")
    finally:
        await driver.stop()


@pytest.fixture(scope="session")
def warm_servers(adk213_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServers]:
    """google-adk imported once for all tests whose agents see the usual variables."""
    ours, servers = OutputFolder.at(tmp_path_factory.mktemp("warm")), ForkServers()
    spec = AgentRuntimeSpec("warm", FOLDERS, FOLDERS, ours, ours, environ=ENVIRON)
    starter = servers.starter(Launch(spec, AgentFolder(FOLDERS, FOLDERS), AgentEnvironment(adk213_python, "")))
    yield servers
    starter.close()


@pytest.fixture
def drive(adk213_python: Path, tmp_path: Path, warm_servers: ForkServers) -> Drive:
    """``async with drive("wild", timeout_s=1) as agent``; a path for a folder of the test's own."""

    def make(agent: str | Path, **options: Any) -> Any:
        path = FOLDERS / agent if isinstance(agent, str) else agent
        options.setdefault("servers", warm_servers)
        return driven(options.pop("python", adk213_python), tmp_path, path, **options)

    return make


@pytest.fixture(scope="session")
def say() -> Callable[[str], Content]:
    return user


@pytest.fixture
def children() -> Callable[[], list[str]]:
    """Processes started since the test began and not ended; another test's oracle may live as long as the session."""

    def find() -> list[str]:
        me, found = str(os.getpid()), []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                if stat.read_text(errors="replace").rpartition(")")[2].split()[1] == me:
                    found.append(stat.parent.name)
        return found

    before = set(find())
    return lambda: [pid for pid in find() if pid not in before]
