"""Start the programs of an agent's ``command`` as the agent's user, read their output, and stop their process trees.

``AgentService`` is a server: it gets a free port and is waited for until it answers. Only its own processes may listen
there, since another agent's might answer in its place; on Linux the tables of /proc tell.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent_eval_action.environments.runtime import AgentFolder, AgentRuntimeSpec
from agent_eval_action.environments.variables import agent_environ
from agent_eval_action.errors import AgentEnvironmentError
from agent_eval_action.folders import file_name, folders_upwards
from agent_eval_action.processes.process import (
    MARKER,
    OutputLog,
    OutputReader,
    execute,
    exit_description,
    kill_tree,
    last_lines,
    pids_with_marker,
)
from agent_eval_action.results.run_result import AttemptError, ErrorKind
from agent_eval_action.sandbox.users import process_statuses

HOST: Final = "127.0.0.1"
PORT: Final = "{port}"
"""Placeholder for the port in a command; the variable PORT holds it too."""

_SHOWN: Final = 200
_PROBE_S: Final = 2.0
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 0.5
_EXIT_WAIT_S: Final = 0.5

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS: Final = "0A"
_INODE: Final = re.compile(r"^socket:\[(\d+)\]$")
_LOCAL: Final = frozenset(
    {"0100007F", "00000000", "0" * 32, "0000000000000000FFFF00000100007F", "0000000000000000FFFF000000000000"}
)
"""Addresses, as the tables write them, at which a connection to 127.0.0.1 may end."""

Probe = Callable[[str], Awaitable[bool]]
"""Whether the server at an address answers. May raise OSError."""


def program_log(spec: AgentRuntimeSpec) -> OutputLog:
    """Return the log for the output of an agent's programs."""
    suffix = ".base.log" if spec.role == "base" else ".log"
    return OutputLog(spec.logs, file_name(spec.name) + suffix, spec.limits.log_bytes)


def shown_command(words: Sequence[str]) -> str:
    """Return a command as messages show it."""
    return f"the command `{shlex.join(words)[:_SHOWN]}`"


@dataclass
class Program:
    """A running program. With pipes, its standard input and output are ours; its other output goes to the log."""

    process: subprocess.Popen[bytes]
    marker: str
    place: AgentFolder
    output: OutputReader

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def tail(self) -> str:
        """Return the last lines of its output, with the paths the user knows."""
        return self.place.shown(last_lines(self.output.tail()))

    def end_description(self) -> str:
        """Return how it ended, as the end of a sentence."""
        code = self.process.poll()
        return "still runs" if code is None else exit_description(code)

    async def ends_now(self) -> bool:
        """Whether it has ended, or does within the moment by which a broken pipe or connection precedes that."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self.process.wait, _EXIT_WAIT_S)
        if self.has_ended:
            await asyncio.to_thread(self.output.finish)
        return self.has_ended

    def stop(self, grace_s: float) -> None:
        """Terminate its process group, then kill everything it started. Blocks; safe to call twice."""
        for pipe in filter(None, (self.process.stdin, self.process.stdout)):
            with contextlib.suppress(OSError):
                pipe.close()
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(grace_s)
        kill_tree(self.process, self.marker)
        self.output.finish()


def _start_program(
    spec: AgentRuntimeSpec, words: Sequence[str], log: OutputLog, variables: Mapping[str, str], pipes: bool
) -> Program:
    place = spec.locate()
    environ = _environ(spec, place, variables)
    program = words[0] if "/" not in words[0] else str(place.folder / words[0])
    if shutil.which(program, path=environ.get("PATH", os.defpath)) is None:
        hint = "install it in an earlier step, or name its file relative to the agent's folder"
        raise AgentEnvironmentError(f"the command of the agent {spec.name} has no program `{words[0]}` here", hint)
    marker = secrets.token_hex(16)
    output_read, output_write = os.pipe()
    try:
        process = execute(
            place,
            [program, *words[1:]],
            {**environ, MARKER: marker},
            stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipes else output_write,
            stderr=output_write,
            cwd=place.folder,
        )
    except BaseException:
        os.close(output_read)
        raise
    finally:
        os.close(output_write)
    output = OutputReader(output_read, log)
    output.start()
    return Program(process, marker, place, output)


async def begin_program(
    spec: AgentRuntimeSpec,
    words: Sequence[str],
    log: OutputLog,
    variables: Mapping[str, str] | None = None,
    *,
    pipes: bool = False,
) -> Program | AttemptError:
    """Start a command in the agent's folder, as its user; return an error if that fails.

    ``variables`` are added to those that the agent sees. With ``pipes`` we hold its standard input and output. Leaves
    no program if cancelled.
    """
    starting = asyncio.ensure_future(asyncio.to_thread(_start_program, spec, words, log, variables or {}, pipes))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with contextlib.suppress(AgentEnvironmentError, OSError):
            await asyncio.to_thread((await starting).stop, 0.0)
        raise
    except (AgentEnvironmentError, OSError) as error:
        return start_failure(error, words)


def start_failure(error: AgentEnvironmentError | OSError, words: Sequence[str]) -> AttemptError:
    """Return the error for a command that cannot be started."""
    if isinstance(error, AgentEnvironmentError):
        return AttemptError(kind=ErrorKind.ENVIRONMENT, message=error.message, traceback=error.hint or "")
    return AttemptError(kind=ErrorKind.ENVIRONMENT, message=f"{shown_command(words)} cannot be started: {error}")


def _environ(spec: AgentRuntimeSpec, place: AgentFolder, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the program's variables, with its virtual environment first on the PATH."""
    seen = agent_environ(spec.environ, spec.env_allow)
    environ = {**(place.sandbox.environ(seen) if place.sandbox else seen), **variables}
    folders: list[Path] = [folder / ".venv" / "bin" for folder in folders_upwards(place.folder, place.workspace)]
    if spec.python is not None:
        folders.insert(0, spec.python / "bin" if spec.python.is_dir() else spec.python.parent)
    found = [str(folder) for folder in folders if folder.is_dir()]
    environ["PATH"] = os.pathsep.join([*found[:1], environ.get("PATH", os.defpath)])
    return environ


def free_port() -> int:
    """Return a port on which nobody listens now."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


@dataclass
class AgentService:
    """A server that an agent's ``command`` starts. ``stop`` must follow ``start``.

    ``variables`` are added to those that the agent sees.
    """

    spec: AgentRuntimeSpec
    words: tuple[str, ...]
    probe: Probe
    variables: Mapping[str, str] = field(default_factory=dict)
    _port: int = 0
    _program: Program | None = None
    _log: OutputLog | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def url(self) -> str:
        """Its address, which is the same after a restart."""
        return f"http://{HOST}:{self._port}"

    async def start(self) -> AttemptError | None:
        """Start the server unless it runs, and wait until it answers; return an error if it does not."""
        async with self._lock:
            if self._program is not None and not self._program.has_ended:
                return None
            await self._end_program()
            self._port = self._port or free_port()
            self._log = self._log or program_log(self.spec)
            words = [word.replace(PORT, str(self._port)) for word in self.words]
            variables = {**self.variables, "PORT": str(self._port)}
            program = await begin_program(self.spec, words, self._log, variables)
            if isinstance(program, AttemptError):
                return program
            self._program = program
            if failure := await self._wait_until_ready(program):
                await self._end_program()
            return failure

    async def explain(self, error: AttemptError) -> AttemptError:
        """Return a request's error, or what explains it: that the server has ended."""
        program = self._program
        if program is None or error.kind not in (ErrorKind.UNAVAILABLE, ErrorKind.PROTOCOL):
            return error
        if not await program.ends_now():
            return error
        message = f"the server of {self._shown} {program.end_description()}"
        return error.model_copy(update={"kind": ErrorKind.DIED, "message": message, "traceback": program.tail()})

    async def disowned(self) -> AttemptError | None:
        """Return an error if another process, or none, listens on its port: the answers may not be its own."""
        program = self._program
        if program is None:
            return None
        stranger = await asyncio.to_thread(_stranger, self._port, program)
        if not stranger or program.has_ended:
            return None
        message = f"{stranger} listens on port {self._port}, which is that of {self._shown}: its answers are not taken"
        return AttemptError(kind=ErrorKind.ENVIRONMENT, message=message, traceback=program.tail())

    async def stop(self) -> None:
        """Stop the server and everything it started; never raises."""
        async with self._lock:
            await self._end_program()
            if self._log is not None:
                self._log.close()
                self._log = None

    async def _end_program(self) -> None:
        program, self._program = self._program, None
        if program is not None:
            await asyncio.to_thread(program.stop, self.spec.limits.stop_s)

    @property
    def _shown(self) -> str:
        return shown_command(self.words)

    async def _wait_until_ready(self, program: Program) -> AttemptError | None:
        limit = self.spec.limits.import_s
        deadline, pause = time.monotonic() + limit, _FIRST_PAUSE_S
        while time.monotonic() < deadline:
            if program.has_ended:
                await asyncio.to_thread(program.output.finish)
                message = f"{self._shown} {program.end_description()} before its server answered"
                return AttemptError(kind=ErrorKind.ENVIRONMENT, message=message, traceback=program.tail())
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_PROBE_S):
                    if await self.probe(self.url):
                        return await self.disowned()
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE_S, pause * 1.3)
        message = f"{self._shown} has not answered on port {self._port} within {limit:g} s"
        hint = f"the port is given as {PORT} in the command and as $PORT"
        return AttemptError(kind=ErrorKind.ENVIRONMENT, message=f"{message}: {hint}", traceback=program.tail())


def _stranger(port: int, program: Program) -> str:
    """Return who listens on a program's port in its place, for a message; "" if it does itself."""
    listening = dict(_listening(port))
    if (user := program.place.user) is not None:
        # The kernel reports the uid, and nobody else's code runs under it.
        others = [f"a process of user {owner}" for owner in listening.values() if owner != user.uid]
        return "nobody" if not listening and _TABLES[0].exists() else next(iter(others), "")
    # Root is trusted: if the command starts a container, the engine's proxy listens as root.
    inodes = {inode for inode, owner in listening.items() if owner != 0 or os.geteuid() == 0}
    group = {pid for pid, _ in process_statuses() if _group(pid) == program.process.pid} if inodes else set()
    try:
        for pid in pids_with_marker(program.marker) | group if inodes else ():
            inodes -= set(_sockets(pid))
    except PermissionError:  # one of the program's processes hides its files
        return ""
    return f"a process of user {listening[min(inodes)]}" if inodes else ""


def _listening(port: int) -> Iterator[tuple[str, int]]:
    """Yield the inode and the owner's uid of each socket that listens on the port."""
    for table in _TABLES:
        lines: list[str] = []
        with contextlib.suppress(OSError):
            lines = table.read_text().splitlines()[1:]
        for fields in map(str.split, lines):
            address, _, number = fields[1].partition(":")
            if fields[3] == _LISTENS and int(number, 16) == port and address in _LOCAL:
                yield fields[9], int(fields[7])


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def _sockets(pid: int) -> Iterator[str]:
    """Yield the inodes of a process's sockets. Raises PermissionError if they are hidden."""
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                if found := _INODE.match(str(Path(entry.path).readlink())):
                    yield found[1]
    except (FileNotFoundError, ProcessLookupError):
        return
