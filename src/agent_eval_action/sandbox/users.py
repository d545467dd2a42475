"""The users that run a change's code: uids that own nothing else, their limits, and their end."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ISOLATION_VARIABLE: Final = "AGENT_EVAL_ISOLATION"
"""``container`` (set by our first process), ``on`` or ``off``. No option of agent-eval.yaml, which is the change's."""

SANDBOX_UIDS: Final = range(60_580, 61_181)
"""systemd's list of uids calls 60578-61183 unused, and all of them exist in a user namespace of 65,536 ids."""

_PROCESSES: Final = 4_096  # threads count: one grpc client has dozens
_FILE_BYTES: Final = 8 << 30
_SPARED_BYTES: Final = 512 << 20
_KILLED_FIRST: Final = 900  # of 1000: when memory runs out, before we are
_GONE_S: Final = 3.0
_PR_SET_NO_NEW_PRIVS: Final = 38
_VARIABLES_OF_OURS: Final = (
    "TEMP",
    "TMP",
    "UV_CACHE_DIR",
    "UV_PYTHON_INSTALL_DIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
)

_LIMIT_AND_EXEC: Final = """
import json, os, resource, sys
bounds, score = json.loads(sys.argv[1])
for name, most in bounds.items():
    hard = resource.getrlimit(getattr(resource, name))[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(getattr(resource, name), (most, most))
try:
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(score))
except OSError:
    pass
os.execvp(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True, slots=True)
class SandboxUser:
    """A uid that is neither root's nor the workspace's owner's, in no group but its own, with a home of its own."""

    uid: int
    home: Path
    umask: int = 0o077

    def options(self) -> dict[str, Any]:
        """Arguments of ``subprocess.Popen``: the process is this user's before it executes anything."""
        return {"user": self.uid, "group": self.uid, "extra_groups": [], "umask": self.umask}

    def environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables with this user's name and home, and without our own folders."""
        kept = {name: value for name, value in environ.items() if name not in _VARIABLES_OF_OURS}
        # getpass.getuser() asks these first, and the uid is in no /etc/passwd
        return {**kept, "HOME": str(self.home), "TMPDIR": str(self.home / "tmp"), "USER": "agent", "LOGNAME": "agent"}

    def command(self, command: Sequence[str]) -> list[str]:
        """The command, bounded: no core, no endless file, no fork without end, less memory than there is.

        The process bounds itself before it executes the command: root without CAP_SYS_RESOURCE, which a container
        lacks, may not do that to a process of another uid.
        """
        bounds = {
            "RLIMIT_CORE": 0,
            "RLIMIT_FSIZE": _FILE_BYTES,
            "RLIMIT_NPROC": _PROCESSES,
            # not RLIMIT_AS: runtimes reserve far more address space than they ever use
            "RLIMIT_DATA": max(memory_bytes() - _SPARED_BYTES, _SPARED_BYTES),
        }
        return [sys.executable, "-I", "-S", "-c", _LIMIT_AND_EXEC, json.dumps([bounds, _KILLED_FIRST]), *command]

    def make_home(self) -> None:
        """Its home and its folder for temporary files, closed to everybody else."""
        for folder in (self.home, self.home / "tmp"):
            folder.mkdir(mode=0o700, parents=False, exist_ok=True)
            os.chown(folder, self.uid, self.uid)

    def remake_home(self) -> None:
        """An empty home. Nobody else may write there, and processes of this user must have ended."""
        shutil.rmtree(self.home, ignore_errors=True)
        self.make_home()


def memory_bytes(cgroup: Path = Path("/sys/fs/cgroup/memory.max"), meminfo: Path = Path("/proc/meminfo")) -> int:
    """The memory there is for everything: the container's, else the machine's."""
    found = [1 << 40]
    with contextlib.suppress(OSError, ValueError):
        found.append(int(cgroup.read_text()))  # "max" where there is no limit
    with contextlib.suppress(OSError, ValueError, IndexError):
        found.append(int(meminfo.read_text().split()[1]) * 1024)
    return min(found)


def free_uids(count: int, taken: Collection[int]) -> tuple[int, ...]:
    """Uids without a process. ``taken``: uids that own something of value."""
    running = set(_uids_by_pid().values()) | set(taken)
    start = (os.getpid() * count) % (len(SANDBOX_UIDS) - count)
    candidates = [*SANDBOX_UIDS[start:], *SANDBOX_UIDS[:start]]
    return tuple([uid for uid in candidates if uid not in running][:count])


def kill_processes_of(uids: Collection[int]) -> bool:
    """Kill every process of these uids, whatever group or session it fled to, and see them gone. Blocks."""
    gone_by = time.monotonic() + _GONE_S
    while found := [pid for pid, uid in _uids_by_pid().items() if uid in uids]:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > gone_by:
            return False
        time.sleep(0.005)
    return True


def process_statuses() -> Iterator[tuple[int, dict[str, str]]]:
    """Pid and fields of /proc/PID/status of every process, zombies included; nothing where there is no /proc.

    They are open where a process's environment is not.
    """
    with contextlib.suppress(OSError):
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    lines = Path(f"/proc/{entry.name}/status").read_text(errors="replace").splitlines()
                    parts = [line.partition(":") for line in lines]
                    yield int(entry.name), {name: value.strip() for name, _, value in parts}


def child_pids() -> list[int]:
    """The children of this process, and the orphans that were given to it."""
    return [pid for pid, status in process_statuses() if status.get("PPid") == str(os.getpid())]


def descendant_pids() -> list[int]:
    """The children of this process, their children, and so on."""
    parents = {pid: int(status.get("PPid", 0)) for pid, status in process_statuses()}
    found = [os.getpid()]
    for parent in found:
        found += [pid for pid, other in parents.items() if other == parent]
    return found[1:]


def _uids_by_pid() -> dict[int, int]:
    """Uids of living processes by pid."""
    return {
        pid: int(status["Uid"].split()[0])
        for pid, status in process_statuses()
        if "Uid" in status and not status["State"].startswith(("Z", "X"))
    }


def no_new_privileges() -> None:
    """Make every set-uid program powerless for us and all we start; setuid(2) itself still works for root."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process by the system call of that name."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
