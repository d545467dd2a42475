"""Call the user's metric functions in processes of their own, one call at a time in each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from agent_eval_action.environments.resolve import choose_interpreter
from agent_eval_action.environments.runtime import AgentRuntimeSpec, Launch
from agent_eval_action.errors import AgentEnvironmentError
from agent_eval_action.folders import file_name
from agent_eval_action.processes.fork_server import ForkServers, ProcessStarter
from agent_eval_action.processes.process import OutputLog
from agent_eval_action.processes.worker import WorkerClient
from agent_eval_action.results.evalset import FunctionReply
from agent_eval_action.results.run_result import AttemptError

_FRAME_BYTES: Final = 4 << 20
_MAX_PROCESSES: Final = 4
_GROW_S: Final = 0.5
_RUN_ENDED: Final = FunctionReply(error="the run ended")


class MetricFunctions:
    """The ``criteria.base.Functions`` of one agent. ``stop`` must follow.

    Nothing is started before the first call. There are at most four processes, with one call at a time in each; another
    one is started when a call has waited half a second, so functions that only compute need one. A call that hangs,
    kills or damages its process affects no other call. ``known_interpreter`` returns the agent's interpreter if it is
    already chosen; it is called at the first call. ``servers`` are the run's fork servers; a process is forked if one
    of them is ready.
    """

    def __init__(
        self,
        spec: AgentRuntimeSpec,
        known_interpreter: Callable[[], Path | None] = lambda: None,
        servers: ForkServers | None = None,
    ) -> None:
        self._spec = replace(spec, limits=replace(spec.limits, turn_bytes=_FRAME_BYTES))
        self._known_interpreter = known_interpreter
        self._servers = servers or ForkServers()
        self._log = OutputLog(spec.logs, f"{file_name(spec.name)}.metrics.log", spec.limits.log_bytes)
        self._idle: asyncio.Queue[WorkerClient] = asyncio.Queue()
        self._processes: dict[WorkerClient, set[str]] = {}  # and the functions that each has imported
        self._starting = False
        self._launch: asyncio.Task[ProcessStarter | FunctionReply] | None = None
        self._given_up = threading.Event()
        self._unusable: FunctionReply | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Choose the interpreter and start a process now; return "" or why that failed. Optional."""
        process = await self._acquire()
        if isinstance(process, FunctionReply):
            return process.error
        self._release(process)
        return ""

    async def call(self, function: str, arguments: Mapping[str, Any], source: str = "") -> FunctionReply:
        """Call ``package.module.function`` with ``metric``, ``actual``, ``expected`` and ``scenario`` as JSON.

        With ``source``, call the ``evaluate`` that it defines with ``instance``; ``function`` is then just a name.
        """
        process = await self._acquire()
        if isinstance(process, FunctionReply):
            return process
        try:
            reply = await self._call_in(process, function, arguments, source)
        except asyncio.CancelledError:
            process.retired = True
            raise
        finally:
            self._release(process)
        return _RUN_ENDED if self._given_up.is_set() and reply.error else reply

    async def stop(self) -> None:
        """Stop all processes and everything they started; waiting calls get a reply."""
        self._given_up.set()
        await asyncio.gather(*(process.stop() for process in self._processes), *self._ending, return_exceptions=True)
        if self._launch is not None:
            (starter,) = await asyncio.gather(self._launch, return_exceptions=True)
            if isinstance(starter, ProcessStarter):
                await asyncio.to_thread(starter.close)
        self._log.close()

    async def _call_in(
        self, process: WorkerClient, function: str, arguments: Mapping[str, Any], source: str
    ) -> FunctionReply:
        spec = self._spec
        if function not in self._processes[process]:
            load = {"op": "load", "s": function, **({"source": source} if source else {})}
            loaded = await process.request(load, spec.limits.import_s, "the import")
            if isinstance(loaded, AttemptError):
                where = " and ".join(process.launch.first_frame()["sys_path"])
                message = f"cannot import {function} (from {where} or an installed package): {loaded.message}"
                return FunctionReply(error=message, traceback=loaded.traceback)
            self._processes[process].add(function)
        frame = {"op": "call", "s": function, "arguments": dict(arguments)}
        reply = await process.request(frame, spec.timeout_s, "the call")
        if isinstance(reply, AttemptError):
            return FunctionReply(error=f"{function}: {reply.message}", traceback=reply.traceback)
        return FunctionReply(value=reply.get("value"))

    async def _acquire(self) -> WorkerClient | FunctionReply:
        while not self._given_up.is_set() and self._unusable is None:
            may_start = not self._starting and len(self._processes) < _MAX_PROCESSES
            try:
                async with asyncio.timeout(_GROW_S if self._processes or self._starting else 0):
                    process = await self._idle.get()
            except TimeoutError:
                if may_start and not self._starting:
                    return await self._start()
                continue
            if process.usable:
                return process
            self._release(process)
        return self._unusable or _RUN_ENDED

    async def _start(self) -> WorkerClient | FunctionReply:
        self._starting = True
        try:
            if self._launch is None:
                self._launch = asyncio.create_task(asyncio.to_thread(self._prepare))
            starter = await asyncio.shield(self._launch)
            if isinstance(starter, FunctionReply) or self._given_up.is_set():
                return starter if isinstance(starter, FunctionReply) else _RUN_ENDED
            try:
                process = WorkerClient(starter.start(), starter.launch, self._log)
            except OSError as error:
                return FunctionReply(error=f"the process for metric functions cannot be started: {error}")
            self._processes[process] = set()
            try:
                ready = await asyncio.shield(process.ready)
            except asyncio.CancelledError:
                process.retired = True
                self._release(process)
                raise
        finally:
            self._starting = False
        if not isinstance(ready, AttemptError):
            return process
        process.retired = True
        self._release(process)
        message = f"metric functions cannot be called: {ready.message}"
        self._unusable = FunctionReply(error=message, traceback=ready.traceback)
        return _RUN_ENDED if self._given_up.is_set() else self._unusable

    def _release(self, process: WorkerClient) -> None:
        """Offer the process to the next call, or stop it if it is not usable."""
        if process.usable:
            self._idle.put_nowait(process)
        elif process in self._processes:
            del self._processes[process]
            task = asyncio.create_task(process.stop())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def _prepare(self) -> ProcessStarter | FunctionReply:
        """Choose the interpreter. In a sandbox, functions get a copy of the tree that no agent can change. Blocks."""
        try:
            spec = replace(self._spec, python=self._known_interpreter() or self._spec.python)
            place = spec.locate()
            launch = Launch(spec, place, choose_interpreter(spec, place, self._given_up), "metrics")
            return self._servers.starter(launch, only_ready=True)
        except AgentEnvironmentError as error:
            reason = error.message + (f" ({error.hint})" if error.hint else "")
        except OSError as error:
            reason = str(error)
        return FunctionReply(error=f"no interpreter for metric functions: {reason}")
