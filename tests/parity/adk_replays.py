"""Runs in google-adk's interpreter: records conversations with scripted models, and replays them as google-adk does.

``record FOLDER`` reads answers of models from standard input and writes the fixture of `adk test` in
FOLDER/tests and the recording of `adk conformance` in FOLDER/tests/core/trip; ``conformance FOLDER`` runs every
conformance test below a folder of agents and prints which passed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import uvicorn
from google.adk.agents.run_config import StreamingMode
from google.adk.cli.agent_test_runner import rebuild_tests
from google.adk.cli.conformance import cli_record
from google.adk.cli.conformance.adk_web_server_client import AdkWebServerClient
from google.adk.cli.conformance.cli_test import ConformanceTestRunner
from google.adk.cli.fast_api import get_fast_api_app
from google.adk.models.google_llm import Gemini
from google.adk.models.llm_response import LlmResponse

PLUGINS = [
    f"google.adk.cli.plugins.{name}" for name in ("recordings_plugin.RecordingsPlugin", "replay_plugin.ReplayPlugin")
]


@contextlib.contextmanager
def scripted(answers: list[dict[str, Any]]) -> Iterator[None]:
    """Models answer with these contents, in this order."""

    waiting = iter(answers)

    async def generate_content_async(*_: Any, **__: Any) -> Any:
        yield LlmResponse.model_validate({"content": next(waiting)})

    with mock.patch.object(Gemini, "generate_content_async", generate_content_async):
        yield


@contextlib.contextmanager
def web_server(agents: Path) -> Iterator[str]:
    """ADK's own server of these agents, with the plugins that record and replay."""

    app = get_fast_api_app(agents_dir=str(agents), web=False, session_service_uri="memory://", extra_plugins=PLUGINS)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def record(agent: Path) -> None:
    answers = json.load(sys.stdin)

    with scripted(answers), contextlib.redirect_stdout(sys.stderr):
        rebuild_tests(str(agent))

    alone = agent.parent / "alone"
    shutil.copytree(agent, alone / agent.name)
    with web_server(alone) as url:
        client = lambda: AdkWebServerClient(base_url=url)  # noqa: E731 - in the place of a class
        for mode in StreamingMode.NONE, StreamingMode.SSE:
            with scripted(answers), mock.patch.object(cli_record, "AdkWebServerClient", client):
                asyncio.run(cli_record.run_conformance_record([agent / "tests"], mode))
    shutil.rmtree(alone)


def conformance(agents: Path) -> None:

    async def run(agent: Path, url: str, mode: StreamingMode) -> str:
        async with AdkWebServerClient(base_url=url) as client:
            runner = ConformanceTestRunner([agent / "tests"], client, streaming_mode=mode)
            (result,) = (await runner.run_all_tests()).results
        return result.error_message or ""

    with web_server(agents) as url, contextlib.redirect_stdout(sys.stderr):
        found = {
            f"{agent.name}{suffix}": asyncio.run(run(agent, url, mode))
            for agent in sorted(agents.iterdir())
            if (agent / "agent.py").exists()
            for suffix, mode in (("", StreamingMode.NONE), ("-sse", StreamingMode.SSE))
        }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    os.environ["GOOGLE_API_KEY"] = "none is asked"
    {"record": record, "conformance": conformance}[sys.argv[1]](Path(sys.argv[2]))
