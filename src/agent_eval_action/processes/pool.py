"""The workers of one agent: as many as have sessions, more while all are saturated; dead ones are replaced."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from agent_eval_action.processes.fork_server import ProcessStarter
from agent_eval_action.processes.process import OutputLog, StartedProcess
from agent_eval_action.processes.protocol import Frame
from agent_eval_action.processes.worker import WorkerClient
from agent_eval_action.results.run_result import AttemptError, ErrorKind


def available_cores(cpu_max: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Return the number of cores we may use: the process's affinity, limited by the container's quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = cpu_max.read_text().split()
        if quota != "max":
            count = min(count, max(1, round(int(quota) / int(period))))
    except (OSError, ValueError):
        pass
    return count


class WorkerPool:
    """Starts, hands out, replaces and stops workers.

    ``usual``: their number while none is saturated. ``size``: their maximum, not counting those for a session alone.
    """

    def __init__(self, starter: ProcessStarter, log: OutputLog, usual: int, size: int) -> None:
        self._starter = starter
        self._log = log
        self._usual = usual
        self._size = size
        self._workers: list[WorkerClient] = []
        self._alone = asyncio.Semaphore(size)
        self._stopping: set[asyncio.Task[None]] = set()
        self._exclusive = False
        self._freed = asyncio.Condition()

    async def start(self, started: Sequence[StartedProcess]) -> Frame | AttemptError:
        """Take over workers that are importing; return the first frame of the first one to finish.

        Returns an error only if no worker could import the agent. If one was killed while importing, another one is
        tried.
        """
        self._workers += [WorkerClient(process, self._starter.launch, self._log) for process in started]
        first = await self._first_ready()
        if isinstance(first, AttemptError) and any(worker.ended_while_importing for worker in self._workers):
            try:
                self._new(alone=False)
            except OSError as problem:
                return AttemptError(kind=ErrorKind.ENVIRONMENT, message=str(problem))
            first = await self._first_ready()
        if not isinstance(first, AttemptError):
            self._exclusive = bool(first.get("exclusive"))
        return first

    async def _first_ready(self) -> Frame | AttemptError:
        """Return the frame of the first worker that is ready, or the last error if none is."""
        for future in asyncio.as_completed([worker.ready for worker in self._workers if not worker.ready.done()]):
            ready = await future
            if not isinstance(ready, AttemptError):
                break
        return ready

    async def acquire(self, session: str, *, alone: bool) -> WorkerClient | AttemptError:
        """Return a worker for the session; with ``alone``, one that never holds another session."""
        if alone:
            await self._alone.acquire()
        error: AttemptError | None = None
        for _ in range(2):
            try:
                worker = self._new(alone=True) if alone else await self._shared()
            except OSError as problem:
                error = AttemptError(kind=ErrorKind.ENVIRONMENT, message=str(problem))
                break
            worker.sessions.add(session)
            ready = await worker.ready
            if not isinstance(ready, AttemptError) and worker.dead is None:
                return worker
            error = ready if isinstance(ready, AttemptError) else worker.dead
            if error is not None and worker.ended_while_importing:
                # Others imported the agent, so it is not the agent's fault that this process ended.
                error = error.model_copy(update={"kind": ErrorKind.DIED})
            await self._drop(worker, session)
        if alone:
            self._alone.release()
        return error or AttemptError(kind=ErrorKind.DIED, message="no worker could be started")

    async def release(self, worker: WorkerClient, session: str) -> None:
        """End the session. Its worker ends too if it was ``alone``, or if only a stuck turn is left in it."""
        worker.sessions.discard(session)
        if worker.alone:
            await self._drop(worker, session)
            self._alone.release()
        elif worker.dead is not None or (worker.retired and not worker.sessions):
            await self._drop(worker, session)
        async with self._freed:
            self._freed.notify_all()

    async def stop(self) -> None:
        await asyncio.gather(*(w.stop() for w in self._workers), *self._stopping, return_exceptions=True)
        self._workers.clear()

    def _new(self, *, alone: bool) -> WorkerClient:
        worker = WorkerClient(self._starter.start(), self._starter.launch, self._log, alone=alone)
        self._workers.append(worker)
        return worker

    async def _shared(self) -> WorkerClient:
        while True:
            usable = [w for w in self._workers if w.usable]
            # An agent with reset_data keeps its data in the process: one session at a time.
            free = [w for w in usable if not (self._exclusive and w.sessions)]
            # A worker costs processor time and a hundred megabytes. Most agents wait for their model, so one or two
            # workers hold all sessions.
            full = all(worker.sessions if len(usable) < self._usual else worker.saturated for worker in free)
            if full and len(usable) < self._size:
                return self._new(alone=False)
            if free:
                return min(free, key=lambda w: (w.saturated, len(w.sessions)))
            async with self._freed:
                await self._freed.wait()

    async def _drop(self, worker: WorkerClient, session: str) -> None:
        worker.sessions.discard(session)
        if worker in self._workers:
            self._workers.remove(worker)
            task = asyncio.create_task(worker.stop())
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)
