"""The users that run a change's code: uids that own nothing else, their limits, and killing their processes."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ISOLATION_VARIABLE: Final = "AGENT_EVAL_ISOLATION"
"""``container`` (set by our first process), ``on`` or ``off``. Not an option: agent-eval.yaml is the change's."""

SANDBOX_UIDS: Final = range(60_580, 61_181)
"""systemd lists uids 60578-61183 as unused, and a user namespace of 65,536 ids has all of them."""

_PROCESSES: Final = 4_096  # threads count: one grpc client has dozens
_FILE_BYTES: Final = 8 << 30
_RESERVED_BYTES: Final = 512 << 20
_OOM_SCORE: Final = 900  # of 1000: killed before us when memory runs out
_GONE_S: Final = 3.0
_PR_SET_NO_NEW_PRIVS: Final = 38
_OWN_VARIABLES: Final = (
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
    """A uid other than root's and the workspace owner's, with only its own group and its own home."""

    uid: int
    home: Path
    umask: int = 0o077

    def options(self) -> dict[str, Any]:
        """Return ``subprocess.Popen`` arguments that switch to this user before anything is executed."""
        return {"user": self.uid, "group": self.uid, "extra_groups": [], "umask": self.umask}

    def environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables with this user's name and home, without those of our own folders."""
        kept = {name: value for name, value in environ.items() if name not in _OWN_VARIABLES}
        # getpass.getuser() reads these first, and /etc/passwd does not list the uid
        return {**kept, "HOME": str(self.home), "TMPDIR": str(self.home / "tmp"), "USER": "agent", "LOGNAME": "agent"}

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command with resource limits: core files, file size, processes and memory.

        The process sets them before it executes the command: root without CAP_SYS_RESOURCE, which a container lacks,
        may not limit a process of another uid.
        """
        bounds = {
            "RLIMIT_CORE": 0,
            "RLIMIT_FSIZE": _FILE_BYTES,
            "RLIMIT_NPROC": _PROCESSES,
            # not RLIMIT_AS: runtimes reserve far more address space than they ever use
            "RLIMIT_DATA": max(memory_bytes() - _RESERVED_BYTES, _RESERVED_BYTES),
        }
        return [sys.executable, "-I", "-S", "-c", _LIMIT_AND_EXEC, json.dumps([bounds, _OOM_SCORE]), *command]

    def make_home(self) -> None:
        """Create its home and its temporary folder, closed to everybody else."""
        for folder in (self.home, self.home / "tmp"):
            folder.mkdir(mode=0o700, parents=False, exist_ok=True)
            os.chown(folder, self.uid, self.uid)

    def remake_home(self) -> None:
        """Empty its home. Nobody else may write there, and this user's processes must have ended."""
        shutil.rmtree(self.home, ignore_errors=True)
        self.make_home()


def memory_bytes(cgroup: Path = Path("/sys/fs/cgroup/memory.max"), meminfo: Path = Path("/proc/meminfo")) -> int:
    """Return the total memory, in bytes: the container's limit, else the machine's."""
    found = [1 << 40]
    with contextlib.suppress(OSError, ValueError):
        found.append(int(cgroup.read_text()))  # "max" means no limit
    with contextlib.suppress(OSError, ValueError, IndexError):
        found.append(int(meminfo.read_text().split()[1]) * 1024)
    return min(found)


def free_uids(count: int, taken: Collection[int]) -> tuple[int, ...]:
    """Return uids that run no process. ``taken``: uids that own something of value."""
    running = set(_uids_by_pid().values()) | set(taken)
    start = (os.getpid() * count) % (len(SANDBOX_UIDS) - count)
    candidates = [*SANDBOX_UIDS[start:], *SANDBOX_UIDS[:start]]
    return tuple([uid for uid in candidates if uid not in running][:count])


def kill_processes_of(uids: Collection[int]) -> bool:
    """Kill every process of these uids, in any group or session, until all are gone; False if some stay. Blocks."""
    return kill_all(lambda: [pid for pid, uid in _uids_by_pid().items() if uid in uids], _GONE_S)


def kill_all(find: Callable[[], Collection[int]], seconds: float) -> bool:
    """Kill the processes that ``find`` returns until it returns none; False if some stay. Blocks."""
    gone_by = time.monotonic() + seconds
    while found := find():
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > gone_by:
            return False
        time.sleep(0.005)
    return True


def process_statuses() -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the pid and the fields of /proc/PID/status of every process, zombies included; nothing without /proc.

    Everybody may read them, unlike a process's environment.
    """
    with contextlib.suppress(OSError):
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    lines = Path(f"/proc/{entry.name}/status").read_text(errors="replace").splitlines()
                    parts = [line.partition(":") for line in lines]
                    yield int(entry.name), {name: value.strip() for name, _, value in parts}


def child_pids() -> list[int]:
    """Return the children of this process, including the orphans it inherited."""
    return [pid for pid, status in process_statuses() if status.get("PPid") == str(os.getpid())]


def descendant_pids() -> list[int]:
    """Return the children of this process, their children, and so on."""
    parents = {pid: int(status.get("PPid", 0)) for pid, status in process_statuses()}
    found = [os.getpid()]
    for parent in found:
        found += [pid for pid, other in parents.items() if other == parent]
    return found[1:]


def _uids_by_pid() -> dict[int, int]:
    """Return the uid of each living process."""
    return {
        pid: int(status["Uid"].split()[0])
        for pid, status in process_statuses()
        if "Uid" in status and not status["State"].startswith(("Z", "X"))
    }


def no_new_privileges() -> None:
    """Make set-uid programs powerless for us and all we start; setuid(2) itself still works for root."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process by the system call of that name."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
