"""A program in the google-adk environment, asked by JSON lines (see ``tests/parity/adk_pipe.py``)."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Ask = Callable[[dict[str, Any]], dict[str, Any]]


@contextlib.contextmanager
def running(python: Path, program: Path) -> Iterator[Ask]:
    """The program for as long as the block lasts; yields what asks it one thing."""
    command = [str(python), "-X", "utf8", str(program)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8") as process:
        asking, answers = process.stdin, process.stdout
        assert asking is not None
        assert answers is not None

        def ask(request: dict[str, Any]) -> dict[str, Any]:
            asking.write(json.dumps(request) + "\n")
            asking.flush()
            line = answers.readline()
            assert line, "google-adk's process ended"
            answer: dict[str, Any] = json.loads(line)
            return answer

        yield ask
        asking.close()
        process.wait(30)
