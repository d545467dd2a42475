"""Ends a worker and everything it started, also what left its process group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

MARKER = "AGENT_EVAL_WORKER"
GONE_S = 2.0


def end_tree(process: subprocess.Popen[bytes], marker: str) -> None:
    """Kill the worker's process group, then whoever else carries its marker, and see them gone. Blocks."""
    strays = marked(marker) - {process.pid}
    # The group outlives its leader, so it is killed even when the worker is gone; not when nobody is left
    # of it, since its number may have been given anew.
    if process.returncode is None or strays:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    gone_by = time.monotonic() + GONE_S
    while strays and time.monotonic() < gone_by:
        for pid in strays:
            _kill(pid)
        time.sleep(0.005)
        # A child may have been forked between the look and the blow.
        strays = {pid for pid in strays if _runs(pid)} | marked(marker) - {process.pid}
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GONE_S)


def end_children() -> None:
    """Kill every child of this process, and the group of those that lead one: nobody waits for them any more.

    On Linux; elsewhere they end when their pipes do.
    """
    ours = os.getpgid(0)
    children: set[int] = set()
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children.update(map(int, file.read_text().split()))
    for pid in children:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if (group := os.getpgid(pid)) != ours:
                os.killpg(group, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGKILL)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
    # As the container's first process we inherit orphans, and nobody else would reap them.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z" or os.getpid() == 1


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
