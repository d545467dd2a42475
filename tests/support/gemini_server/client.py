"""Start the server as a process of its own, steer it, and read what it saw."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class RunningGemini:
    """A server in another process."""

    url: str

    @property
    def environ(self) -> dict[str, str]:
        """What makes the google-genai client of a child process talk to this server and to nothing else."""
        return {
            "GOOGLE_GEMINI_BASE_URL": self.url,
            "GOOGLE_API_KEY": "local-key",
            "GOOGLE_GENAI_USE_VERTEXAI": "0",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def configure(self, **settings: Any) -> None:
        """Change ``latency``, ``faults`` (a list of Fault fields) or ``per_second``."""
        self._control("settings", settings)

    def seen(self) -> dict[str, Any]:
        """Counts and requests since the start or the last reset; see ``server.Seen``."""
        return self._control("seen", {})

    def reset(self) -> None:
        """Forget what was seen."""
        self._control("reset", {})

    def _control(self, action: str, body: Mapping[str, Any]) -> dict[str, Any]:
        # An opener of its own: a proxy of the environment has no business with 127.0.0.1.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        url = f"{self.url}/_control/{action}"
        request = urllib.request.Request(url, data=json.dumps(body).encode())  # noqa: S310 - always our http URL
        with opener.open(request, timeout=30) as response:
            seen: dict[str, Any] = json.load(response)
        return seen


@contextlib.contextmanager
def running(
    script: Path, *, latency: float = 0.0, faults: tuple[Mapping[str, Any], ...] = (), per_second: float | None = None
) -> Iterator[RunningGemini]:
    """Run the server on ``script`` (rules.json, or a .py with ``answer``) for as long as the block lasts."""
    argv = [sys.executable, "-m", "support.gemini_server", "--script", str(script), "--latency", str(latency)]
    argv += ["--faults", json.dumps(list(faults))]
    if per_second is not None:
        argv += ["--per-second", str(per_second)]
    process = subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        text=True,
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])},
    )
    try:
        assert process.stdout
        url = process.stdout.readline().strip()
        if not url:
            raise RuntimeError(f"the Gemini server did not start: exit {process.wait()}")
        yield RunningGemini(url)
    finally:
        process.terminate()
        process.wait(timeout=10)
        if process.stdout:
            process.stdout.close()
