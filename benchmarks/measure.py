"""Runs a command and measures time and memory."""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MARK = "\nused: "


@dataclass(frozen=True)
class Taken:
    """Wall-clock seconds; processor seconds of all processes; peak megabytes of the largest; exit code; output."""

    seconds: float
    cpu_seconds: float
    peak_mb: float
    exit_code: int
    output: str


class CommandFailed(Exception):  # noqa: N818 - says what happened
    """A measured command failed, so its time is meaningless."""


def run(argv: Sequence[str], cwd: Path, environ: Mapping[str, str] | None = None) -> Taken:
    """Run a command and wait for it; its output is kept in memory."""
    started = time.perf_counter()
    process = subprocess.run(
        [sys.executable, __file__, *argv],
        cwd=cwd,
        # If it were set, every start would compile google-adk again, for seconds that users do not wait.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **(environ or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        check=False,
        text=True,
    )
    seconds = time.perf_counter() - started
    output, _, used = process.stdout.rpartition(MARK)
    cpu_seconds, peak_kb = used.split()
    return Taken(seconds, float(cpu_seconds), int(peak_kb) / 1024, process.returncode, output)


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep ``count`` processors busy, as on a shared runner."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def median(values: Sequence[float]) -> float:
    """Return the median of the rounds."""
    return statistics.median(values)


def _child() -> int:
    """Run the given command in a process of its own and print its usage: getrusage only has totals of all children."""
    code = subprocess.call(sys.argv[1:])
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{MARK}{used.ru_utime + used.ru_stime:.3f} {used.ru_maxrss}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(_child())
