"""Fork servers import google-adk, which is most of a worker's cost, and then fork an agent's workers.

A fork server runs the agent's interpreter as the agent's user and imports google-adk and our worker, never an agent.
Launches with the same interpreter, variables and user share it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent_eval_action.environments.runtime import Launch
from agent_eval_action.processes.process import (
    MARKER,
    ForkedProcess,
    StartedProcess,
    execute,
    kill_tree,
    read_answer,
    start_process,
)
from agent_eval_action.sandbox.users import SandboxUser

_END_S: Final = 1.0
_IMPORT_S: Final = 180.0
_FORK_S: Final = 5.0  # an agent, which runs as the same user, may have stopped the server

_Key = tuple[Path, tuple[tuple[str, str], ...], SandboxUser | None]


class CannotForkError(OSError):
    """The server has ended, is stopped or refuses to fork; the interpreter can be executed instead."""


class ForkServerClient:
    """One fork server. It imports google-adk in the background; it ends with ``close``, or with this process.

    ``ready``: it has answered a request.
    """

    def __init__(self, launch: Launch) -> None:
        self._marker = secrets.token_hex(16)
        self.ready = False
        self._closed = False
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = execute(
                launch.place,
                launch.command(theirs.fileno()),
                {**launch.environ(), MARKER: self._marker},
                stdin=subprocess.DEVNULL,
                # replaced before anything is printed; workers get pipes, which like a socket cannot seek
                stdout=theirs.fileno(),
                stderr=theirs.fileno(),
                pass_fds=(theirs.fileno(),),
                cwd="/",  # so that nothing is imported from the agent's folder
            )
        except OSError:
            self._control.close()
            raise
        finally:
            theirs.close()

    def fork(self, marker: str, program: str, fds: Sequence[int]) -> ForkedProcess:
        """Fork a worker, once google-adk is imported. Blocks.

        Raises CannotForkError, or another OSError if the import takes too long or ``close`` was called.
        """
        answers, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The kernel reports who answers: the server runs code that the change under test installed, and might lie.
        answers.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        answers.settimeout(_FORK_S if self.ready else _IMPORT_S)
        try:
            with theirs:
                request = json.dumps({"marker": marker, "program": program}).encode()
                socket.send_fds(self._control, [request], [*fds, theirs.fileno()])
            answer, pid = read_answer(answers)
            self.ready = True
            if answer.get("forked") is True:
                return ForkedProcess(pid, answers)
        except OSError as error:  # the server has ended, or the process that it forked
            if isinstance(error, TimeoutError) and not self.ready:
                answers.close()
                raise OSError(f"importing google-adk took longer than {_IMPORT_S:g} s") from None
        answers.close()
        raise OSError("the run ended") if self._closed else CannotForkError

    def close(self) -> None:
        """Stop the server, which also ends a waiting ``fork``. Blocks."""
        self._closed = True
        if self.ready:  # it ends by itself, after its workers
            self._control.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)
        kill_tree(self._process, self._marker)
        self._control.close()


@dataclass
class ProcessStarter:
    """Starts processes of one launch: forks them from ``server``, else executes the interpreter.

    ``close`` must follow; it may be called while ``start`` waits in another thread.
    """

    launch: Launch
    servers: ForkServers
    server: ForkServerClient | None

    def start(self) -> StartedProcess:
        """Start a process. Blocks until google-adk is imported. Raises OSError."""
        if self.server is not None:
            try:
                return start_process(self.launch, self.server.fork)
            except CannotForkError:
                self.servers.release(self, usable=False)
        return start_process(self.launch)

    def close(self) -> None:
        """Release the server, which ends with its last starter. Blocks."""
        self.servers.release(self)


@dataclass
class ForkServers:
    """The fork servers of a run, by their launch settings; None where forking does not work. Thread-safe.

    ``kept``: the one used last stays for the next run, until ``close``.
    """

    kept: bool = False
    _servers: dict[_Key, ForkServerClient | None] = field(default_factory=dict)
    _users: Counter[ForkServerClient] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def prestart(self, launch: Launch) -> None:
        """Start the import for a launch that is likely to come. A server that is never used ends with ``close``."""
        with self._lock:
            self._server(launch)

    def starter(self, launch: Launch, *, only_ready: bool = False) -> ProcessStarter:
        """Return a starter for a launch. ``only_ready``: use a server only if one is ready already."""
        with self._lock:
            server = self._server(launch, start=not only_ready)
            if server is not None and only_ready and not server.ready:
                server = None
            if server is not None:
                self._users[server] += 1
        return ProcessStarter(launch, self, server)

    def _server(self, launch: Launch, *, start: bool = True) -> ForkServerClient | None:
        if launch.spec.function:  # a function does not need google-adk
            return None
        environ = launch.environ()
        key = launch.environment.python, tuple(sorted(environ.items())), launch.place.user
        if key not in self._servers and start and _can_fork(environ):
            with contextlib.suppress(OSError):  # executing the interpreter directly reports the error
                self._servers[key] = ForkServerClient(launch)
        return self._servers.get(key)

    def release(self, starter: ProcessStarter, *, usable: bool = True) -> None:
        """Take a starter's server back. An unused server ends, or is ``kept`` until another one is used. Blocks."""
        with self._lock:
            server, starter.server = starter.server, None
            if server is None:
                return
            self._users[server] -= 1
            if not usable:
                self._servers |= {key: None for key, other in self._servers.items() if other is server}
            unused = {each for each in (server, *filter(None, self._servers.values())) if not self._users[each]}
            if self.kept and usable:
                unused.discard(server)
            self._servers = {key: other for key, other in self._servers.items() if other not in unused}
        for each in unused:
            each.close()

    def close(self) -> None:
        """Stop all remaining servers. Blocks."""
        with self._lock:
            servers, self._servers = self._servers, {}
        for server in filter(None, servers.values()):
            server.close()


def _can_fork(environ: dict[str, str]) -> bool:
    """Whether forking works, and no PYTHONPATH adds modules that an agent may have written."""
    if sys.platform != "linux" or "PYTHONPATH" in environ:
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True
