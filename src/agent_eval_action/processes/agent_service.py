"""Start the programs of an agent's ``command`` as the agent's user, read their output, and stop their process trees.

``start_program`` is the lower half, for programs that use pipes. ``AgentService`` is a server: it gets a free port and
is waited for until it answers. Only its own processes may listen there (``listeners``).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from agent_eval_action.environments.runtime import AgentFolder, AgentRuntimeSpec
from agent_eval_action.environments.variables import agent_environ
from agent_eval_action.errors import AgentEnvironmentError
from agent_eval_action.folders import file_name, folders_upwards
from agent_eval_action.processes.listeners import Port
from agent_eval_action.processes.process import (
    MARKER,
    OutputLog,
    OutputReader,
    execute,
    exit_description,
    kill_tree,
    last_lines,
)
from agent_eval_action.results.run_result import AttemptError, ErrorKind

HOST: Final = "127.0.0.1"
PORT: Final = "{port}"
"""Placeholder for the port in a command; the variable PORT holds it too."""

_SHOWN: Final = 200
_PROBE_S: Final = 2.0
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 0.5
_EXIT_WAIT_S: Final = 0.5  # a connection breaks slightly before its process can be reaped

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
    """A running program. With pipes, ``stdin`` and ``stdout`` are ours; its other output goes to the log."""

    process: subprocess.Popen[bytes]
    marker: str
    place: AgentFolder
    output: OutputReader
    stdin: IO[bytes] | None = None
    stdout: IO[bytes] | None = None

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

    def stop(self, grace_s: float = 2.0) -> None:
        """Terminate its process group, then kill everything it started. Blocks; safe to call twice."""
        for pipe in (self.stdin, self.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(grace_s)
        kill_tree(self.process, self.marker)
        self.output.finish()


def start_program(
    spec: AgentRuntimeSpec,
    words: Sequence[str],
    log: OutputLog,
    variables: Mapping[str, str] | None = None,
    *,
    pipes: bool = False,
) -> Program:
    """Start a command in the agent's folder, as its user. Blocks.

    ``variables`` are added to those that the agent sees. With ``pipes`` we hold its standard input and output. Raises
    AgentEnvironmentError or OSError.
    """
    place = spec.locate()
    environ = _environ(spec, place, variables or {})
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
    return Program(process, marker, place, output, process.stdin, process.stdout)


async def begin_program(
    spec: AgentRuntimeSpec,
    words: Sequence[str],
    log: OutputLog,
    variables: Mapping[str, str] | None = None,
    *,
    pipes: bool = False,
) -> Program | AttemptError:
    """Run ``start_program`` in a thread; return the program or an error. Leaves no program if cancelled."""
    starting = asyncio.ensure_future(asyncio.to_thread(start_program, spec, words, log, variables, pipes=pipes))
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
    _owned: Port | None = None
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
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(program.process.wait, _EXIT_WAIT_S)
        if not program.has_ended:
            return error
        await asyncio.to_thread(program.output.finish)
        message = f"the server of {self._shown} {program.end_description()}"
        return error.model_copy(update={"kind": ErrorKind.DIED, "message": message, "traceback": program.tail()})

    async def disowned(self) -> AttemptError | None:
        """Return an error if another process, or none, listens on its port: the answers may not be its own."""
        program = self._program
        if program is None:
            return None
        if self._owned is None or self._owned.marker != program.marker:
            user = program.place.user
            self._owned = Port(self._port, program.marker, program.process.pid, user.uid if user else None)
        stranger = await asyncio.to_thread(self._owned.stranger)
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
