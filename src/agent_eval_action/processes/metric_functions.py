"""Call the user's metric functions in processes of their own, one call at a time in each."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from agent_eval_action.environments.resolve import choose_interpreter
from agent_eval_action.environments.runtime import AgentRuntimeSpec, Launch
from agent_eval_action.errors import AgentEnvironmentError
from agent_eval_action.folders import file_name
from agent_eval_action.processes.process import ForkServers, OutputLog, ProcessStarter
from agent_eval_action.processes.worker import WorkerClient, WorkerPool
from agent_eval_action.results.evalset import FunctionReply
from agent_eval_action.results.run_result import AttemptError, ErrorKind

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
        self._imported: defaultdict[WorkerClient, set[str]] = defaultdict(set)
        self._starter: ProcessStarter | None = None
        self._pool: WorkerPool | None = None
        self._opening: asyncio.Task[WorkerPool | FunctionReply] | None = None
        self._given_up = threading.Event()

    async def start(self) -> str:
        """Choose the interpreter and start a process now; return "" or why that failed. Optional."""
        pool = await self._opened()
        return pool.error if isinstance(pool, FunctionReply) else ""

    async def call(self, function: str, arguments: Mapping[str, Any], source: str = "") -> FunctionReply:
        """Call ``package.module.function`` with ``metric``, ``actual``, ``expected`` and ``scenario`` as JSON.

        With ``source``, call the ``evaluate`` that it defines with ``instance``; ``function`` is then just a name.
        """
        pool, name = await self._opened(), uuid4().hex
        if isinstance(pool, FunctionReply):
            return pool
        process = await pool.acquire(name)
        if isinstance(process, AttemptError):
            return _RUN_ENDED if self._given_up.is_set() else _not_started(process)
        try:
            reply = await self._call_in(process, function, arguments, source)
        except asyncio.CancelledError:
            process.retired = True
            raise
        finally:
            await pool.release(process, name)
        return _RUN_ENDED if self._given_up.is_set() and reply.error else reply

    async def stop(self) -> None:
        """Stop all processes and everything they started; waiting calls get a reply."""
        self._given_up.set()
        if self._pool is not None:
            await self._pool.stop()
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._starter is not None:
            await asyncio.to_thread(self._starter.close)
        self._log.close()

    async def _call_in(
        self, process: WorkerClient, function: str, arguments: Mapping[str, Any], source: str
    ) -> FunctionReply:
        if function not in self._imported[process]:
            load = {"op": "load", "s": function, **({"source": source} if source else {})}
            loaded = await process.request(load, self._spec.limits.import_s, "the import")
            if isinstance(loaded, AttemptError):
                where = " and ".join(process.launch.first_frame()["sys_path"])
                message = f"cannot import {function} (from {where} or an installed package): {loaded.message}"
                return FunctionReply(error=message, traceback=loaded.traceback)
            self._imported[process].add(function)
        frame = {"op": "call", "s": function, "arguments": dict(arguments)}
        reply = await process.request(frame, self._spec.timeout_s, "the call")
        if isinstance(reply, AttemptError):
            return FunctionReply(error=f"{function}: {reply.message}", traceback=reply.traceback)
        return FunctionReply(value=reply.get("value"))

    async def _opened(self) -> WorkerPool | FunctionReply:
        """Return the pool, whose first process is ready, or why there is none; calls that come meanwhile wait."""
        if self._given_up.is_set():
            return _RUN_ENDED
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        pool = await asyncio.shield(self._opening)
        return _RUN_ENDED if self._given_up.is_set() else pool

    async def _open(self) -> WorkerPool | FunctionReply:
        try:
            self._starter = await asyncio.to_thread(self._prepare)
        except (AgentEnvironmentError, OSError) as error:
            hint = f" ({error.hint})" if isinstance(error, AgentEnvironmentError) and error.hint else ""
            reason = error.message if isinstance(error, AgentEnvironmentError) else str(error)
            return FunctionReply(error=f"no interpreter for metric functions: {reason}{hint}")
        if self._given_up.is_set():
            return _RUN_ENDED
        pool = self._pool = WorkerPool(self._starter, self._log, 1, _MAX_PROCESSES, _GROW_S)
        try:
            ready = await pool.start([self._starter.start()])
        except OSError as error:
            ready = AttemptError(kind=ErrorKind.ENVIRONMENT, message=str(error))
        return _not_started(ready) if isinstance(ready, AttemptError) else pool

    def _prepare(self) -> ProcessStarter:
        """Choose the interpreter. In a sandbox, functions get a copy of the tree that no agent can change. Blocks."""
        spec = replace(self._spec, python=self._known_interpreter() or self._spec.python)
        place = spec.locate()
        launch = Launch(spec, place, choose_interpreter(spec, place, self._given_up), "metrics")
        return self._servers.starter(launch, only_ready=True)


def _not_started(error: AttemptError) -> FunctionReply:
    executed = error.kind is not ErrorKind.ENVIRONMENT
    what = "metric functions cannot be called" if executed else "the process for metric functions cannot be started"
    return FunctionReply(error=f"{what}: {error.message}", traceback=error.traceback)
