"""Signals at any moment, on a busy machine: exit code 130, results and reports, and no process left."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from support.gemini_server.messages import ModelRequest
from support.messages import headline
from support.serving import serving

from .conftest import Judged, case
from .test_interrupts import alive, descendants

NUMBERS = (signal.SIGINT, signal.SIGTERM)
FILES = {"results.json", "junit.xml", "comment.md", "report.html"}
HANG = 60


@pytest.fixture
def busy() -> Iterator[None]:
    """As many processes that compute as there are cores on the smallest machine, beside those of the other tests."""
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    yield
    for process in burning:
        process.kill()
        process.wait()


def interrupt(process: subprocess.Popen[str], root: Path, number: signal.Signals) -> None:
    """Send the signal, and check what a run must leave; how long its files took is printed and not asserted."""
    below = descendants(process.pid)
    out = root / ".agent-eval" / "out"
    process.send_signal(number)
    sent = time.monotonic()
    written = 0.0
    while process.poll() is None and time.monotonic() < sent + HANG:
        if not written and all((out / name).exists() for name in FILES):
            written = time.monotonic() - sent
        time.sleep(0.01)
    ended = time.monotonic() - sent
    said = process.communicate(timeout=HANG)[1]
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert {path.name for path in out.iterdir()} >= FILES, said
    results = json.loads((out / "results.json").read_text())
    assert (results["status"], results["decision"]["outcome"]) == ("interrupted", "inconclusive"), said
    assert headline(results["decision"])
    gone_by = time.monotonic() + HANG
    while alive(below) and time.monotonic() < gone_by:
        time.sleep(0.05)
    assert alive(below) == set()
    sys.stderr.write(f"files after {written:.1f} s, the end after {ended:.1f} s\n")


def begun(judged: Judged) -> subprocess.Popen[str]:
    """A run that has read its settings: before that there is no folder that files could be written to."""
    process = judged.start()
    wait_for(lambda: (judged.root / ".agent-eval" / ".gitignore").exists() or process.poll() is not None)
    return process


def wait_for(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + HANG
    while not happened() and time.monotonic() < until:
        time.sleep(0.01)
    assert happened()


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize("moment", range(4))
def test_a_signal_at_a_random_moment(judged: Judged, busy: None, moment: int) -> None:
    del busy
    judged.cases(*(case(f"c{n}", "Rome", "Oslo") for n in range(40)))
    random.seed(moment)
    with begun(judged) as process:
        time.sleep(moment + random.random())  # noqa: S311 - no secret
        if process.poll() is None:
            interrupt(process, judged.root, NUMBERS[moment % 2])


@pytest.mark.exhaustive
def test_while_a_build_of_the_environment_hangs(judged: Judged, busy: None) -> None:
    del busy
    source = judged.root / "endless"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "endless"\nbackend-path = ["."]\n'
        '[project]\nname = "endless"\nversion = "1"\ndynamic = ["dependencies"]\n'
    )
    (source / "endless.py").write_text("import time\nopen('begun', 'w').close()\ntime.sleep(600)\n")
    (judged.root / "requirements.txt").write_text("./endless\n")
    judged.config.pop("python")
    judged.configure()
    with begun(judged) as process:
        wait_for((source / "begun").exists)
        interrupt(process, judged.root, signal.SIGTERM)


@pytest.mark.exhaustive
def test_while_an_agent_is_imported(judged: Judged, busy: None) -> None:
    del busy
    path = judged.root / "clerk" / "agent.py"
    path.write_text(f"import time\nopen('{judged.root}/importing', 'w').close()\ntime.sleep(600)\n" + path.read_text())
    with begun(judged) as process:
        wait_for((judged.root / "importing").exists)
        interrupt(process, judged.root, signal.SIGINT)


@pytest.mark.exhaustive
def test_while_an_agent_ignores_everything(judged: Judged, busy: None) -> None:
    """An agent that blocks its worker's loop, and signals with it."""
    del busy
    path = judged.root / "clerk" / "agent.py"
    path.write_text(
        "import signal, time\nfor n in (1, 2, 3, 15): signal.signal(n, signal.SIG_IGN)\n"
        + path.read_text().replace(
            '    """', f'    open({str(judged.root / "called")!r}, "w").close()\n    time.sleep(600)\n    """', 1
        )
    )
    with begun(judged) as process:
        wait_for(lambda: (judged.root / "called").exists() or process.poll() is not None)
        interrupt(process, judged.root, signal.SIGTERM)


class _Silent(BaseHTTPRequestHandler):
    """A remote that takes a request and never answers."""

    asked = threading.Event()
    over = threading.Event()

    def do_GET(self) -> None:
        self.asked.set()
        self.over.wait()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.exhaustive
def test_while_a_fetch_hangs(judged: Judged, busy: None, tmp_path: Path) -> None:
    del busy
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"before": "0" * 40, "ref": "refs/heads/main"}))
    judged.configure(baseline={"store": "branch"})
    judged.environ |= {
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_NAME": "push",
        "GITHUB_EVENT_PATH": str(event),
        "GITHUB_REPOSITORY": "owner/repo",
        "GITHUB_REF": "refs/heads/main",
    }
    git = ["git", "-C", str(judged.root), "-c", "user.name=a", "-c", "user.email=a@b"]
    with serving(_Silent) as port:
        for words in (
            ["init", "-q", "-b", "main"],
            ["remote", "add", "origin", f"http://127.0.0.1:{port}/owner/repo.git"],
            ["add", "-A"],
            ["commit", "-qm", "one"],
        ):
            subprocess.run([*git, *words], check=True)
        try:
            with begun(judged) as process:
                assert _Silent.asked.wait(HANG)
                interrupt(process, judged.root, signal.SIGTERM)
        finally:
            _Silent.over.set()


@pytest.mark.exhaustive
def test_while_every_judge_thinks(judged: Judged, busy: None) -> None:
    del busy
    thinking = threading.Event()

    async def hold(request: ModelRequest) -> None:
        if "<reference-" in str(request.body):
            thinking.set()
            await asyncio.sleep(3600)

    judged.server.hold = hold
    judged.cases(*(case(f"c{n}", "Rome") for n in range(20)))
    with begun(judged) as process:
        assert thinking.wait(HANG)
        interrupt(process, judged.root, signal.SIGTERM)
