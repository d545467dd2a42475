"""One process that calls metric functions, one at a time: asked, waited for, ended when it does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_eval_action.config.models import TURN_SECONDS
from agent_eval_action.environments.launch import METRIC_WORKER, AgentLimits, Launch, start_process
from agent_eval_action.environments.resolve import Search, choose_interpreter
from agent_eval_action.errors import AgentEnvironmentError
from agent_eval_action.folders import OutputFolder
from agent_eval_action.processes.managed import OutputLog, OutputReader, kill_tree
from agent_eval_action.processes.protocol import Frame, FramePipe
from agent_eval_action.processes.worker import last_lines
from agent_eval_action.results.evalset import FunctionReply
from agent_eval_action.sandbox.sandboxes import Role, Sandbox, Sandboxes, agent_environ

_FRAME_BYTES = 4 << 20
_STACK_S = 0.3


@dataclass(frozen=True, slots=True)
class FunctionError:
    """Why there is no answer, in one sentence, and a traceback or the last lines printed."""

    message: str
    traceback: str = ""


class FunctionProcess:
    """Started by its making; ``usable`` until a call ended badly."""

    def __init__(self, launch: Launch, log: OutputLog) -> None:
        self.usable = True
        self.loaded: set[str] = set()
        self.places: tuple[str, ...] = tuple(launch.first_frame()["sys_path"])
        self._shown = launch.shown
        self._loop = asyncio.get_running_loop()
        self._started = start_process(launch)
        self._answer: asyncio.Future[Frame | FunctionError] | None = None
        self._early: Frame | None = None  # the first frame may come before somebody waits for it
        self._burial: asyncio.Task[None] | None = None
        self._pid_fd: int | None = None
        self._code: int | None = None
        self._drain = OutputReader(self._started.output_fd, log)
        self._drain.start()
        self._pipe = FramePipe(self._started.read_fd, self._started.write_fd, _FRAME_BYTES)
        self._pipe.attach(self._on_frame, self._on_end)
        if hasattr(os, "pidfd_open"):
            # A child of the function's may hold the pipe open: the process's own end must be seen too.
            with contextlib.suppress(OSError):
                self._pid_fd = os.pidfd_open(self._started.process.pid)
                self._loop.add_reader(self._pid_fd, self._on_exit)

    async def ask(self, frame: Frame | None, limit_s: float, what: str) -> Frame | FunctionError:
        """Send a frame and wait for its answer; None only waits. ``what`` is the sentence's subject on a timeout."""
        if self._burial is not None:
            return await self._ended("")
        answer: asyncio.Future[Frame | FunctionError] = self._loop.create_future()
        self._answer = answer
        if frame is not None:
            self._pipe.send(frame)
        elif self._early is not None:
            answer.set_result(self._early)
        try:
            async with asyncio.timeout(limit_s):
                return await answer
        except TimeoutError:
            self.usable = False
            # Only a signal handler written in C can say where a function hangs that holds the interpreter's lock.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._started.process.pid, signal.SIGUSR2)
            await asyncio.sleep(_STACK_S)
            await self.end()
            return FunctionError(f"{what} took longer than {limit_s:g} s", self._tail())
        except asyncio.CancelledError:
            self.usable = False
            raise
        finally:
            self._answer = None

    async def end(self) -> None:
        """Kill it and whatever it started."""
        self.usable = False
        if self._burial is None:
            self._burial = self._loop.create_task(self._bury())
        await asyncio.shield(self._burial)

    def _on_frame(self, frame: Frame) -> None:
        if self._answer is None:
            self._early = self._early or frame
        elif not self._answer.done():
            self._answer.set_result(frame)

    def _on_exit(self) -> None:
        self._forget_pid_fd()
        # Frames written before the end are in the pipe still: let them be read first.
        self._loop.call_later(0.1, self._on_end, "")

    def _on_end(self, reason: str) -> None:
        answer = self._answer
        self.usable = False
        if self._burial is None:
            self._burial = self._loop.create_task(self._bury())
        if answer is not None and not answer.done():
            task = self._loop.create_task(self._ended(reason))
            task.add_done_callback(lambda done: None if answer.done() else answer.set_result(done.result()))

    async def _ended(self, reason: str) -> FunctionError:
        if self._burial is not None:
            await asyncio.shield(self._burial)
        if reason:
            return FunctionError(f"its process wrote what is no answer ({reason})", self._tail())
        code = self._code
        how = (
            "ended" if code is None else f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        )
        return FunctionError(f"its process {how}", self._tail())

    async def _bury(self) -> None:
        process = self._started.process
        # The pipe ends a moment before the process does.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._code = await asyncio.to_thread(process.wait, 0.3)
        await asyncio.to_thread(kill_tree, process, self._started.marker)
        await asyncio.to_thread(self._drain.finish)
        self._forget_pid_fd()
        self._pipe.close()

    def _forget_pid_fd(self) -> None:
        if self._pid_fd is not None:
            self._loop.remove_reader(self._pid_fd)
            os.close(self._pid_fd)
            self._pid_fd = None

    def _tail(self) -> str:
        return self._shown(last_lines(self._drain.tail()))


_MOST = 4
_GROW_S = 0.5
_STOPPED = FunctionError("the run ended")


@dataclass(frozen=True, slots=True)
class FunctionOptions:
    """Where functions run: as an agent's options. ``environ`` is the caller's whole environment.

    ``role`` is the cell they run in.
    ``known`` gives the agent's interpreter where it is chosen already; it is asked at the first call.
    """

    path: Path
    workspace: Path
    logs: OutputFolder
    log_name: str
    cache: OutputFolder
    python: Path | None = None
    timeout_s: float = TURN_SECONDS
    environ: Mapping[str, str] = field(default_factory=dict)
    env_allow: tuple[str, ...] = ()
    install_env: Mapping[str, str] = field(default_factory=dict)
    limits: AgentLimits = field(default_factory=AgentLimits)
    known: Callable[[], Path | None] = lambda: None
    isolation: Sandboxes | None = None
    role: Role = "metrics"


def open_functions(options: FunctionOptions) -> MetricFunctions:
    """The functions of one agent. Nothing is started before the first call; ``stop`` must follow."""
    return MetricFunctions(options)


class MetricFunctions:
    """A ``criteria.base.Functions``: at most four processes, each with one call at a time.

    A second one is started when a call has waited half a second: functions that only compute need one. A call
    that hangs, ends its process or leaves it damaged costs that process and no other call.
    """

    def __init__(self, options: FunctionOptions) -> None:
        self._options = options
        self._log = OutputLog(options.logs, options.log_name, options.limits.log_bytes)
        self._idle: asyncio.Queue[FunctionProcess] = asyncio.Queue()
        self._all: set[FunctionProcess] = set()
        self._starting = 0
        self._prepared: asyncio.Task[Launch | FunctionError] | None = None
        self._given_up = threading.Event()
        self._useless: FunctionError | None = None
        self._stopped = False
        self._ending: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Choose the interpreter and start a process now; "" or why it cannot be. Optional."""
        process = await self._acquire()
        if isinstance(process, FunctionError):
            return process.message
        self._release(process)
        return ""

    async def call(self, function: str, arguments: Mapping[str, Any]) -> FunctionReply:
        """Call ``package.module.function`` with ``metric``, ``actual``, ``expected`` and ``scenario`` as JSON."""
        process = await self._acquire()
        if isinstance(process, FunctionError):
            return FunctionReply(error=process.message, traceback=process.traceback)
        try:
            said = await self._called(process, function, arguments)
        finally:
            self._release(process)
        return FunctionReply(error=_STOPPED.message) if self._stopped and said.error else said

    async def stop(self) -> None:
        """End every process and everything they started; calls in the air are answered."""
        self._stopped = True
        self._given_up.set()
        if self._prepared is not None:
            await asyncio.gather(self._prepared, return_exceptions=True)
        await asyncio.gather(*(process.end() for process in list(self._all)), *self._ending, return_exceptions=True)
        self._log.close()

    async def _called(self, process: FunctionProcess, function: str, arguments: Mapping[str, Any]) -> FunctionReply:
        options = self._options
        if function not in process.loaded:
            answer = await process.ask({"op": "load", "function": function}, options.limits.import_s, "the import")
            if failed := _error_in(answer):
                places = " and ".join(process.places)
                said = f"cannot import {function} (from {places} or an installed package): {failed.message}"
                return FunctionReply(error=said, traceback=failed.traceback)
            process.loaded.add(function)
        asked = {"op": "call", "function": function, "arguments": dict(arguments)}
        answer = await process.ask(asked, options.timeout_s, "the call")
        if isinstance(answer, dict) and answer.get("broken"):
            process.usable = False
        if failed := _error_in(answer):
            return FunctionReply(error=f"{function}: {failed.message}", traceback=failed.traceback)
        return FunctionReply(value=answer.get("value") if isinstance(answer, dict) else None)

    async def _acquire(self) -> FunctionProcess | FunctionError:
        while not self._stopped:
            if self._useless is not None:
                return self._useless
            if not self._idle.empty():
                process = self._idle.get_nowait()
            elif not self._starting and len(self._all) < _MOST and (not self._all or await self._still_none()):
                return await self._start()
            else:
                try:
                    process = await asyncio.wait_for(self._idle.get(), _GROW_S)
                except TimeoutError:
                    continue
            if process.usable:
                return process
            self._release(process)
        return _STOPPED

    async def _still_none(self) -> bool:
        """Whether no process became free in a while; then another one is worth its start."""
        try:
            self._idle.put_nowait(await asyncio.wait_for(self._idle.get(), _GROW_S))
        except TimeoutError:
            return not self._starting and len(self._all) < _MOST
        return False

    async def _start(self) -> FunctionProcess | FunctionError:
        self._starting += 1
        try:
            if self._prepared is None:
                self._prepared = asyncio.create_task(asyncio.to_thread(self._prepare))
            launch = await asyncio.shield(self._prepared)
            if isinstance(launch, FunctionError) or self._stopped:
                return launch if isinstance(launch, FunctionError) else _STOPPED
            try:
                process = FunctionProcess(launch, self._log)
            except OSError as error:
                return FunctionError(f"the process for metric functions cannot be started: {error}")
            self._all.add(process)
            return await self._ready(process)
        finally:
            self._starting -= 1

    async def _ready(self, process: FunctionProcess) -> FunctionProcess | FunctionError:
        try:
            answer = await process.ask(None, self._options.limits.import_s, "importing google.adk.evaluation")
        except asyncio.CancelledError:
            self._release(process)
            raise
        if failed := _error_in(answer):
            process.usable = False
            self._release(process)
            hint = "custom_metrics need google-adk[eval] in the agent's environment"
            self._useless = FunctionError(
                f"metric functions cannot be called: {failed.message} ({hint})", failed.traceback
            )
            return _STOPPED if self._stopped else self._useless
        return process

    def _release(self, process: FunctionProcess) -> None:
        """Free for the next call, or ended."""
        if process.usable:
            self._idle.put_nowait(process)
        elif process in self._all:
            self._all.discard(process)
            task = asyncio.create_task(process.end())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def _prepare(self) -> Launch | FunctionError:
        """The interpreter and everything that is the same for all processes. Blocks."""
        options = self._options
        folder, workspace = options.path.resolve(), options.workspace.resolve()
        cell: Sandbox | None = None
        try:
            if options.isolation is not None:
                # a copy of their own: an agent must not be able to rewrite what grades it
                cell = options.isolation.cell(options.role, workspace)
                folder, workspace = cell.inside(folder), cell.tree
            search = Search(
                folder,
                workspace,
                options.cache,
                options.environ,
                options.known() or options.python,
                self._given_up,
                cell,
                options.install_env,
            )
            chosen = choose_interpreter(search)
        except (AgentEnvironmentError, OSError) as error:
            return FunctionError(f"no interpreter for metric functions: {_sentence(error)}")
        seen = agent_environ(options.environ, options.env_allow)
        return Launch(
            python=chosen.python,
            environ=cell.environ(seen) if cell else seen,
            folder=folder,
            workspace=workspace,
            timeout_s=options.timeout_s,
            limits=options.limits,
            program=METRIC_WORKER,
            cell=cell,
        )


def _sentence(error: AgentEnvironmentError | OSError) -> str:
    if isinstance(error, OSError):
        return str(error)
    return error.message + (f" ({error.hint})" if error.hint else "")


def _error_in(answer: Frame | FunctionError) -> FunctionError | None:
    """What went wrong, where something did."""
    if isinstance(answer, FunctionError):
        return answer
    if answer.get("ev") != "failed":
        return None
    error = answer.get("error")
    said = error if isinstance(error, dict) else {}
    return FunctionError(str(said.get("message", "it failed"))[:2_000], str(said.get("traceback", ""))[:16_000])
