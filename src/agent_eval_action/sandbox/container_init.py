"""The first process of the container, or of a step on the runner: it hides the settings and supervises the work.

It takes the settings out of its environment, executes itself again without them (a process's first environment stays
readable in /proc as long as it lives), and passes them to a child in a memory file. Then it forwards signals, reaps
orphans and, in a container, finally gives the files that root created to the checkout's owner, so that later steps can
delete them. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

from agent_eval_action.sandbox import MOUNTED, ON_A_RUNNER, TEMPORARY, WORKSPACE
from agent_eval_action.sandbox.step_guard import StepGuard
from agent_eval_action.sandbox.users import (
    ISOLATION_VARIABLE,
    SANDBOX_UIDS,
    child_pids,
    kill_all,
    no_new_privileges,
    prctl,
)

Mode = Literal["container", "on", "job"]

SETTINGS_FD: Final = "AGENT_EVAL_SETTINGS_FD"
_NAME: Final = "agent-eval-settings"
_KEPT: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TERM", "COLUMNS", "TMPDIR", WORKSPACE, TEMPORARY)
"""Variables that the first process itself needs; none holds a secret."""

_KEPT_ON_THE_RUNNER: Final = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")
"""Variables that the job's own interpreter may need to start; the image's needs none of them."""

_FORWARDED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_WATCHED: Final = frozenset((*_FORWARDED, signal.SIGCHLD))
_INTERRUPTED: Final = 130
_INCONCLUSIVE: Final = 3
_TO_LEAVE_S: Final = 8.0
"""Time to exit after a signal. The runner sends another signal after 7.5 s and gives up after 10 s."""
_TO_RESTORE_S: Final = 1.5
_GONE_S: Final = 2.0
_DEEPEST: Final = 250
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SET_PDEATHSIG, _SET_DUMPABLE, _SET_SUBREAPER = 1, 4, 36


def supervise(report_error: Callable[[str], None]) -> None:
    """Return in the process that does the work: this one, or a child of the supervising one.

    ``report_error`` prints a sentence as an error of the step; the supervisor calls it when all other processes have
    ended.
    """
    fd = os.environ.pop(SETTINGS_FD, "")
    if fd and _is_our_file(fd):
        _fork_work(int(fd), report_error)
    elif mode := supervision_mode(os.environ, os.getpid(), os.geteuid()):
        _reexecute(dict(os.environb), mode)


def supervision_mode(environ: Mapping[str, str], pid: int, uid: int) -> Mode | None:
    """Return how this process supervises its work; None if it does not, as there is nothing to hide.

    *container* and *on*: agents get uids of their own. *job*: a step on the runner, where agents have our uid.
    """
    asked = environ.get(ISOLATION_VARIABLE, "")
    if sys.platform != "linux" or asked == "off":
        return None
    if uid == 0 and pid == 1:
        return "container"
    if uid == 0 and asked == "on":
        return "on"
    return "job" if environ.get(ON_A_RUNNER) == "true" else None


def _reexecute(environ: dict[bytes, bytes], mode: Mode) -> None:
    # block signals until the process that handles them runs: PID 1 has no default handlers, so they would be lost
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    environ[ISOLATION_VARIABLE.encode()] = mode.encode()
    fd = os.memfd_create(_NAME, 0)
    with open(fd, "wb", closefd=False) as file:
        file.write(b"\0".join(name + b"=" + value for name, value in environ.items()))
    os.lseek(fd, 0, os.SEEK_SET)
    names = (*_KEPT, *_KEPT_ON_THE_RUNNER) if mode == "job" else _KEPT
    clean: dict[str, bytes | str] = {name: environ[name.encode()] for name in names if name.encode() in environ}
    os.execve(sys.executable, sys.orig_argv, {**clean, SETTINGS_FD: str(fd)})  # noqa: S606 - ourselves


def _is_our_file(fd: str) -> bool:
    """Whether the descriptor is our memory file; the job's environment may hold any number."""
    with contextlib.suppress(OSError, ValueError):
        return Path(f"/proc/self/fd/{int(fd)}").readlink().name.startswith(f"memfd:{_NAME}")
    return False


def _fork_work(fd: int, report_error: Callable[[str], None]) -> None:
    prctl(_SET_DUMPABLE, 0)  # no core file, and /proc of this process and its children is root's
    prctl(_SET_SUBREAPER, 1)
    with open(fd, "rb") as file:
        entries = [entry.partition(b"=") for entry in file.read().split(b"\0")]
    settings = {os.fsdecode(name): os.fsdecode(value) for name, _, value in entries if name}
    guard = None
    if settings.get(ISOLATION_VARIABLE) == "job":
        # hosted runners have sudo without a password, which would make an agent root
        no_new_privileges()
        guard = StepGuard(settings)
    child = os.fork()
    if child == 0:
        # in its own group, signals from a terminal reach it only once, through us
        os.setpgid(0, 0)
        prctl(_SET_PDEATHSIG, signal.SIGKILL)
        os.environ.clear()
        os.environ.update(settings)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
        return
    settings.clear()
    code, interrupted = _wait_for(child)
    # nothing may write while files change their owner
    kill_all(_children_left, _GONE_S)
    if guard is None:
        restore_ownership(owned_folders(os.environ), time.monotonic() + _TO_RESTORE_S if interrupted else None)
    elif sentences := guard.finish():
        # changes by somebody else make a pass inconclusive, whatever else may pass
        for sentence in sentences:
            report_error(sentence)
        code = code or _INCONCLUSIVE
    os._exit(code)


def _wait_for(child: int) -> tuple[int, bool]:
    """Forward signals and reap processes until the child ends; return its exit code, and whether a signal came."""
    leave_by = None
    while True:
        received = signal.sigtimedwait(_WATCHED, 1.0)
        if received is not None and received.si_signo in _FORWARDED:
            leave_by = leave_by or time.monotonic() + _TO_LEAVE_S
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, received.si_signo)
        status = _reap().get(child)
        if status is not None:
            code = os.waitstatus_to_exitcode(status)
            return (code if code >= 0 else _INTERRUPTED if leave_by else 128 - code), leave_by is not None
        if leave_by and time.monotonic() > leave_by:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def _reap() -> dict[int, int]:
    """Return the exit statuses, by pid, of ended processes: our child, or orphans that we inherited."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (process := os.waitpid(-1, os.WNOHANG))[0]:
            ended[process[0]] = process[1]
    return ended


def _children_left() -> list[int]:
    _reap()
    return child_pids()


def restore_after_cancel() -> None:
    """The action's post-entrypoint: a cancelled container may have been killed before it restored ownership."""
    restore_ownership(owned_folders(os.environ))
    sys.exit(0)


def owned_folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the workspace, then the runner's other folders that are mounted into a container action."""
    workspace = Path(environ.get(WORKSPACE, "").strip() or Path.cwd())
    others = (Path(environ[name]) for name in ("HOME", TEMPORARY) if environ.get(name))
    return (workspace, *(folder for folder in others if folder.is_relative_to(MOUNTED)))


def restore_ownership(roots: Iterable[Path], until: float | None = None) -> None:
    """Give all paths under the roots that belong to root or an agent to the first root's owner.

    Follows no symbolic link, not even one that replaces a folder meanwhile: each folder is opened from its parent. What
    cannot be changed stays. ``until``: when to stop, on the monotonic clock.
    """
    roots = tuple(roots)
    try:
        owner = roots[0].stat()
    except (OSError, IndexError):
        return
    if owner.st_uid != 0:  # root owns everything with rootless engines, and on some machines
        for root in (roots[0] / ".agent-eval", *roots):
            _restore_folder(root, None, owner, until)


def _restore_folder(
    path: str | Path, parent: int | None, owner: os.stat_result, until: float | None, depth: int = 0
) -> None:
    """Give a folder and everything below it, down to the depth at which we may write."""
    with contextlib.suppress(OSError):
        here = os.open(path, _FOLDER, dir_fd=parent)
        try:
            if _must_change_owner(os.fstat(here)):
                os.fchown(here, owner.st_uid, owner.st_gid)
            for name in os.listdir(here) if depth <= _DEEPEST else ():  # noqa: PTH208 - of a descriptor
                if until is not None and time.monotonic() > until:
                    break
                with contextlib.suppress(OSError):  # it is gone, or we may not give it
                    found = os.stat(name, dir_fd=here, follow_symlinks=False)
                    if stat.S_ISDIR(found.st_mode) and name != ".git":  # we only read it
                        _restore_folder(name, here, owner, until, depth + 1)
                    # we write no sockets and no devices
                    elif (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)) and _must_change_owner(found):
                        os.chown(name, owner.st_uid, owner.st_gid, dir_fd=here, follow_symlinks=False)
        finally:
            os.close(here)


def _must_change_owner(found: os.stat_result) -> bool:
    return found.st_uid == 0 or found.st_uid in SANDBOX_UIDS
