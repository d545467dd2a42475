"""The user's metric functions, in the agent's interpreter and in processes of their own: the client of those."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_eval_action.errors import AgentEnvironmentError
from agent_eval_action.folders import OutputFolder
from agent_eval_action.interpreter.environment import Search, choose
from agent_eval_action.interpreter.frames import Frame
from agent_eval_action.interpreter.function_process import Failure, FunctionProcess
from agent_eval_action.interpreter.isolation import agent_environ
from agent_eval_action.interpreter.isolation_cell import Cell, Isolation, Role
from agent_eval_action.interpreter.launch import METRIC_WORKER, Launch, Limits
from agent_eval_action.interpreter.output_log import OutputLog
from agent_eval_action.model.function import FunctionReply

_MOST = 4
_GROW_S = 0.5
_STOPPED = Failure("the run ended")


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
    timeout_s: float = 120.0
    environ: Mapping[str, str] = field(default_factory=dict)
    env_allow: tuple[str, ...] = ()
    install_env: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    known: Callable[[], Path | None] = lambda: None
    isolation: Isolation | None = None
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
        self._prepared: asyncio.Task[Launch | Failure] | None = None
        self._given_up = threading.Event()
        self._useless: Failure | None = None
        self._stopped = False
        self._ending: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Choose the interpreter and start a process now; "" or why it cannot be. Optional."""
        process = await self._acquire()
        if isinstance(process, Failure):
            return process.message
        self._release(process)
        return ""

    async def call(self, function: str, arguments: Mapping[str, Any]) -> FunctionReply:
        """Call ``package.module.function`` with ``metric``, ``actual``, ``expected`` and ``scenario`` as JSON."""
        process = await self._acquire()
        if isinstance(process, Failure):
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
            if failed := _failure(answer):
                places = " and ".join(process.places)
                said = f"cannot import {function} (from {places} or an installed package): {failed.message}"
                return FunctionReply(error=said, traceback=failed.traceback)
            process.loaded.add(function)
        asked = {"op": "call", "function": function, "arguments": dict(arguments)}
        answer = await process.ask(asked, options.timeout_s, "the call")
        if isinstance(answer, dict) and answer.get("broken"):
            process.usable = False
        if failed := _failure(answer):
            return FunctionReply(error=f"{function}: {failed.message}", traceback=failed.traceback)
        return FunctionReply(value=answer.get("value") if isinstance(answer, dict) else None)

    async def _acquire(self) -> FunctionProcess | Failure:
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

    async def _start(self) -> FunctionProcess | Failure:
        self._starting += 1
        try:
            if self._prepared is None:
                self._prepared = asyncio.create_task(asyncio.to_thread(self._prepare))
            launch = await asyncio.shield(self._prepared)
            if isinstance(launch, Failure) or self._stopped:
                return launch if isinstance(launch, Failure) else _STOPPED
            try:
                process = FunctionProcess(launch, self._log)
            except OSError as error:
                return Failure(f"the process for metric functions cannot be started: {error}")
            self._all.add(process)
            return await self._ready(process)
        finally:
            self._starting -= 1

    async def _ready(self, process: FunctionProcess) -> FunctionProcess | Failure:
        try:
            answer = await process.ask(None, self._options.limits.import_s, "importing google.adk.evaluation")
        except asyncio.CancelledError:
            self._release(process)
            raise
        if failed := _failure(answer):
            process.usable = False
            self._release(process)
            hint = "custom_metrics need google-adk[eval] in the agent's environment"
            self._useless = Failure(f"metric functions cannot be called: {failed.message} ({hint})", failed.traceback)
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

    def _prepare(self) -> Launch | Failure:
        """The interpreter and everything that is the same for all processes. Blocks."""
        options = self._options
        folder, workspace = options.path.resolve(), options.workspace.resolve()
        cell: Cell | None = None
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
            chosen = choose(search)
        except (AgentEnvironmentError, OSError) as error:
            return Failure(f"no interpreter for metric functions: {_said(error)}")
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


def _said(error: AgentEnvironmentError | OSError) -> str:
    if isinstance(error, OSError):
        return str(error)
    return error.message + (f" ({error.hint})" if error.hint else "")


def _failure(answer: Frame | Failure) -> Failure | None:
    """What went wrong, where something did."""
    if isinstance(answer, Failure):
        return answer
    if answer.get("ev") != "failed":
        return None
    error = answer.get("error")
    said = error if isinstance(error, dict) else {}
    return Failure(str(said.get("message", "it failed"))[:2_000], str(said.get("traceback", ""))[:16_000])
