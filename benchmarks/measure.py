"""Running a command and saying what it took."""

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
    """A measured command did not do its work: its time means nothing."""


def run(argv: Sequence[str], cwd: Path, environ: Mapping[str, str] | None = None) -> Taken:
    """Run a command to its end, its output kept in memory."""
    started = time.perf_counter()
    process = subprocess.run(
        [sys.executable, __file__, *argv],
        cwd=cwd,
        # Set, it would have every start compile google-adk again: seconds that no user waits for.
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
    """So many processes that compute meanwhile, as on a runner that is shared."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def median(values: Sequence[float]) -> float:
    """The middle of the rounds."""
    return statistics.median(values)


def _child() -> int:
    """Run the command given and print what it used, which getrusage has only for all children ever waited for."""
    code = subprocess.call(sys.argv[1:])
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{MARK}{used.ru_utime + used.ru_stime:.3f} {used.ru_maxrss}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(_child())
