"""Ends a worker and everything it started, also what left its process group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

MARKER = "AGENT_EVAL_WORKER"


def end_tree(process: subprocess.Popen[bytes], marker: str) -> None:
    """Kill the worker's process group, then whoever else carries its marker. Children are reaped."""
    strays = marked(marker) - {process.pid}
    # The group outlives its leader, so it is killed even when the worker is gone; not twice, when it
    # has been reaped, since its number may have been given anew.
    if process.returncode is None or strays:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    for _ in range(5):
        for pid in strays:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            # As the container's first process we inherit orphans, and nobody else would reap them.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0 if os.getpid() == 1 else os.WNOHANG)
        # A child may have been forked between the look and the blow.
        strays = marked(marker) - {process.pid}
        if not strays:
            break
    process.wait()


def marked(marker: str) -> set[int]:
    """Processes whose environment carries the marker (Linux; elsewhere the process group has to do)."""
    needle = f"{MARKER}={marker}".encode()
    found = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir("/proc"):
            if entry.name.isdigit() and needle in _environ(entry.name):
                found.add(int(entry.name))
    return found


def _environ(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
