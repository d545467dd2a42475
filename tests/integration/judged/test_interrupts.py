"""A run that is ended while judges think: its files are written, and nothing of it is left running."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from support.gemini_server.messages import ModelRequest

from .conftest import Judged, case
from .test_at_once import is_judging


def descendants(pid: int) -> set[int]:
    """Processes below this one."""
    found: set[int] = set()
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, file.read_text().split()):
            found |= {child, *descendants(child)}
    return found


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if Path(f"/proc/{pid}/stat").exists() and _state(pid) not in ("Z", "X", "")}


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_judging_leaves_files_and_no_process(judged: Judged, number: signal.Signals) -> None:
    judged.cases(case("rome", "Rome"), case("oslo", "Oslo"))
    held = 0

    async def hold(request: ModelRequest) -> None:
        nonlocal held
        if is_judging(request) and "Oslo" in str(request.body):
            held += 1
            await asyncio.sleep(3600)

    judged.server.hold = hold
    out = judged.root / ".agent-eval" / "out"
    with judged.start() as process:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and (held < 1 or judged.model.asked["match"] < 3):
            time.sleep(0.05)
        assert held == 1
        below = descendants(process.pid)
        assert below, "the agent's worker is running"
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 130, said
    assert {path.name for path in out.iterdir()} >= {"results.json", "attempts.jsonl", "junit.xml", "comment.md"}
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and alive(below):
        time.sleep(0.05)
    assert alive(below) == set()
    judged.server.hold = _at_once
    judged.forget()
    again = judged.run("--resume", str(out))
    assert again.code == 0, again.said
    assert judged.model.asked["match"] == 3, "of the case that was not judged to its end"


async def _at_once(request: ModelRequest) -> None:
    del request
