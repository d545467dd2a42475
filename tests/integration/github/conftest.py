"""A local GitHub for each test, checked at its end; and jobs as processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.github_server import client

HERE = Path(__file__).resolve().parent


@pytest.fixture
def server() -> Iterator[client.RunningGitHub]:
    with client.running() as github:
        yield github


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@dataclass
class Job:
    """A process that publishes."""

    process: subprocess.Popen[str]
    told: list[dict[str, Any]] = field(default_factory=list)

    def publish(self, server: client.RunningGitHub, numbers: list[int], stamp: dict[str, Any], **more: Any) -> None:
        told = {"token": server.token, "repo": server.repo, "numbers": numbers, "stamp": stamp, "mode": "update"}
        told |= {"text": f"what {stamp['key']} says"} | more
        assert self.process.stdin
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()

    def answers(self) -> list[dict[str, Any]]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, f"the job ended: {self.process.wait()}"
        found: list[dict[str, Any]] = json.loads(line)
        return found


@contextlib.contextmanager
def jobs(server: client.RunningGitHub, number: int) -> Iterator[list[Job]]:
    """So many processes, started and waiting."""
    found = [
        Job(
            subprocess.Popen(
                [sys.executable, str(HERE / "publisher.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **server.environ},
            )
        )
        for _ in range(number)
    ]
    try:
        for job in found:
            assert job.process.stdout
            assert job.process.stdout.readline() == "ready\n"
        yield found
    finally:
        for job in found:
            job.process.kill()
            job.process.communicate()
