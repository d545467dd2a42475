"""Sessions of live drivers in tests: made as a run makes them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from agent_eval_action.agents import AGENTS
from agent_eval_action.agents.base import AgentDriver, AgentSession, DriverContext, SessionRequest
from agent_eval_action.config.models import AgentSettings, Settings
from agent_eval_action.results.evalset import Content, Part
from agent_eval_action.results.run_result import AttemptError


def text(words: str) -> Content:
    return Content(role="user", parts=(Part(text=words),))


def make_driver(folder: Path, environ: Mapping[str, str] | None = None, **options: Any) -> AgentDriver:
    agent = AgentSettings(path=folder, name="bot", **options)
    settings = Settings(workspace=folder, start=folder, agents=(agent,))
    return AGENTS[agent.driver](DriverContext(agent, settings, environ or {}, folder))


@contextlib.asynccontextmanager
async def driving(folder: Path, environ: Mapping[str, str] | None = None, **options: Any) -> AsyncIterator[AgentDriver]:
    """Start a driver, and stop it at the end."""
    driver = make_driver(folder, environ, **options)
    try:
        started = await driver.start()
        assert getattr(started, "agent", None) == "bot", started
        yield driver
    finally:
        await driver.stop()


async def open_session(driver: AgentDriver, **request: Any) -> AgentSession:
    session = await driver.open(SessionRequest("app", "user", **request))
    assert not isinstance(session, AttemptError), session
    return session
