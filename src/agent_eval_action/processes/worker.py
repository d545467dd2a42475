"""The clients of worker processes: requests and replies, heartbeats, their end; and the pool of one agent's workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from agent_eval_action.environments.runtime import Launch
from agent_eval_action.processes.process import (
    OutputLog,
    OutputReader,
    ProcessStarter,
    StartedProcess,
    exit_description,
    kill_tree,
    last_lines,
)
from agent_eval_action.processes.protocol import Frame, FrameError, encode, read_frame
from agent_eval_action.results.evalset import FunctionCall
from agent_eval_action.results.run_result import AttemptError, ErrorKind

BUSY: Final = 0.8
SATURATED_REPORTS: Final = 2
FRAME_SLACK: Final = 1 << 20
_BUFFER: Final = 1 << 20
_NATURAL_END_S: Final = 0.3
_LAST_FRAMES_S: Final = 0.1
_STACK_S: Final = 0.3  # the time a process gets to print its stacks
_MAX_MESSAGE: Final = 2_000
_MAX_TRACE: Final = 16_000
_SUBJECTS: Final = {"agent": "the agent's process", "metrics": "its process"}
_IMPORTS: Final = {"agent": "the agent", "metrics": "google.adk.evaluation"}

_OnCall = Callable[[FunctionCall], None]
_Verdict = Callable[[str], AttemptError]
"""Returns a session's error after the worker has ended, given the session's id, or "" for none in particular."""


class WorkerClient:
    """One worker. ``ready`` resolves to its first frame or to an error.

    It ends when ``stop`` is called, when its pipe or its process ends, and when it takes too long. ``alone``: it holds
    only one session in its life.
    """

    def __init__(self, started: StartedProcess, launch: Launch, log: OutputLog, *, alone: bool = False) -> None:
        self.alone = alone
        self.sessions: set[str] = set()
        self.retired = False
        self.dead: AttemptError | None = None
        self.ended_while_importing = False
        self._started = started
        self.launch = launch
        self._busy_reports = 0
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[Frame | AttemptError] = self._loop.create_future()
        self._waiting: dict[str, tuple[asyncio.Future[Frame | AttemptError], _OnCall | None]] = {}
        self._ending: asyncio.Task[None] | None = None
        self._ignores_frames = self._stopping = False
        self._last_beat = self._loop.time()
        self._exit_code: int | None = None
        self._output = OutputReader(started.output_fd, log)
        self._output.start()
        self._writer: asyncio.WriteTransport | None = None
        self._reading = self._loop.create_task(self._read())
        self._pid_fd: int | None = None
        # A child may hold the pipe open, so watch for the end of the process itself, where the platform can.
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._pid_fd = os.pidfd_open(started.process.pid)
                self._loop.add_reader(self._pid_fd, self._on_exit)
        limit = launch.spec.limits.import_s
        message = f"importing {_IMPORTS[launch.program]} took longer than {limit:g} s"
        self._timer = self._loop.call_later(limit, self._give_up, ErrorKind.IMPORT, message)

    @property
    def saturated(self) -> bool:
        """Whether its event loop was busy in all of the last reports."""
        return self._busy_reports >= SATURATED_REPORTS

    @property
    def usable(self) -> bool:
        """Whether it takes new sessions."""
        return self._ending is None and not self.retired and not self.alone

    async def request(
        self,
        frame: Frame,
        limit_s: float | None = None,
        subject: str = "",
        on_call: _OnCall | None = None,
    ) -> Frame | AttemptError:
        """Send a frame of a session and wait for its reply; one at a time per session.

        After ``limit_s`` seconds the process is ended; ``subject`` names what took too long. ``on_call`` gets the tool
        calls that the worker reports before its reply.
        """
        if self.dead is not None:
            return self.dead
        session = frame["s"]
        reply: asyncio.Future[Frame | AttemptError] = self._loop.create_future()
        self._waiting[session] = reply, on_call
        timer = None
        if limit_s is not None:
            message = f"{subject} took longer than {limit_s:g} s"
            timer = self._loop.call_later(limit_s, self._give_up, ErrorKind.TIMEOUT, message)
        self.notify(frame)
        try:
            return await reply
        finally:
            self._waiting.pop(session, None)
            if timer is not None:
                timer.cancel()

    def notify(self, frame: Frame) -> None:
        """Send a frame without waiting for a reply. It is lost if the worker has ended."""
        if self._writer is not None:
            self._writer.write(encode(frame))

    async def stop(self) -> None:
        """Ask the worker to clean up and exit, then kill it and whatever it started."""
        self._stopping = True
        if self._ending is None:
            self._timer.cancel()
            if self.ready.done():  # until then it imports, reads no frames and has nothing to clean up
                self.notify({"op": "stop"})
                await self._wait(self.launch.spec.limits.stop_s)
            self._terminate(_run_ended)
        if self._ending is not None:
            await self._ending

    async def _wait(self, seconds: float) -> int | None:
        """Wait for the process to end by itself; return its exit code, or None if it still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return await asyncio.to_thread(self._started.process.wait, seconds)
        return None

    async def _read(self) -> None:
        limit, reason = self.launch.spec.limits.turn_bytes + FRAME_SLACK, ""
        reader = asyncio.StreamReader(limit=_BUFFER)
        with os.fdopen(self._started.read_fd, "rb", 0) as source, os.fdopen(self._started.write_fd, "wb", 0) as target:
            incoming, _ = await self._loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
            self._writer, _ = await self._loop.connect_write_pipe(asyncio.BaseProtocol, target)
            try:
                while frame := await read_frame(reader, limit):
                    self._on_frame(frame)
            except (OSError, FrameError) as error:
                reason = str(error)
            finally:
                incoming.close()
                if not self._writer.is_closing():  # the process may have closed its end
                    self._writer.abort()
                self._writer = None
        self._on_end(reason)

    def _on_frame(self, frame: Frame) -> None:
        event = frame["ev"]
        if self._ignores_frames:
            return
        reply, on_call = self._waiting.get(str(frame.get("s")), (None, None))
        if event == "beat":
            self._on_beat(frame)
        elif event == "ready" and not self.ready.done():
            self._timer.cancel()
            self.ready.set_result(frame)
            if self.launch.program == "agent":
                self._last_beat = self._loop.time()
                self._timer = self._loop.call_later(self._silence_s / 2, self._check_silence)
        elif event == "failed" and not self.ready.done():
            self.ready.set_result(self._error_of(frame.get("error")))
        elif event == "call":
            if on_call is not None:
                args = frame.get("args")
                on_call(FunctionCall(name=str(frame.get("name")), args=args if isinstance(args, dict) else None))
        else:
            self.retired = self.retired or bool(frame.get("retired"))
            if reply is not None and not reply.done():
                reply.set_result(self._error_of(frame["error"]) if "error" in frame else frame)

    @property
    def _silence_s(self) -> float:
        return self.launch.spec.timeout_s + min(5.0, self.launch.spec.timeout_s)

    def _on_beat(self, frame: Frame) -> None:
        self._last_beat = self._loop.time()
        busy, lag = frame.get("busy"), frame.get("lag")
        self._busy_reports = self._busy_reports + 1 if isinstance(busy, int | float) and busy > BUSY else 0
        if isinstance(lag, int | float) and lag > self.launch.spec.timeout_s:
            self._terminate(self._blocked(str(frame.get("s")), str(frame.get("stack", ""))))

    def _check_silence(self) -> None:
        if self._loop.time() - self._last_beat > self._silence_s:
            self._dump_stacks(self._blocked("", ""))
        else:
            self._timer = self._loop.call_later(self._silence_s / 4, self._check_silence)

    def _blocked(self, culprit: str, stack: str) -> _Verdict:
        limit, only = self.launch.spec.timeout_s, len(self.sessions) == 1

        def verdict(session: str) -> AttemptError:
            trace = last_lines(stack) or self._tail()
            if only or session == culprit:
                message = f"a synchronous call blocked the event loop longer than timeout_s ({limit:g} s)"
                return AttemptError(kind=ErrorKind.BLOCKED, message=message, traceback=trace)
            message = "the worker was ended because a synchronous call of another session blocked it"
            return AttemptError(kind=ErrorKind.DIED, message=message, traceback=trace)

        return verdict

    def _give_up(self, kind: ErrorKind, message: str) -> None:
        self._dump_stacks(lambda _: AttemptError(kind=kind, message=message, traceback=self._tail()))

    def _dump_stacks(self, verdict: _Verdict) -> None:
        """Make the process print its stacks, then end it. A reply is too late: the signal may end a blocking call."""
        if self._ending is not None:
            return
        self._ignores_frames = True
        self._timer.cancel()
        # Only a signal handler written in C works while the GIL is held.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._started.process.pid, signal.SIGUSR2)
        self._timer = self._loop.call_later(_STACK_S, self._terminate, verdict)

    def _on_exit(self) -> None:
        self._forget_pid_fd()
        # Frames written before the end may still be in the pipe; they are read first.
        self._loop.call_later(_LAST_FRAMES_S, self._on_end, "")

    def _forget_pid_fd(self) -> None:
        if self._pid_fd is not None:
            self._loop.remove_reader(self._pid_fd)
            os.close(self._pid_fd)
            self._pid_fd = None

    def _on_end(self, reason: str) -> None:
        sessions, subject = len(self.sessions), _SUBJECTS[self.launch.program]

        def verdict(_session: str) -> AttemptError:
            if reason:
                message = f"{subject} wrote to the worker's own pipe ({reason})"
            elif self._exit_code is None:
                message = f"{subject} closed the worker's own pipe"
            else:
                message = f"{subject} {exit_description(self._exit_code)}"
            if sessions > 1:
                message += f" while {sessions} sessions were open in it; each runs again alone"
            kind = ErrorKind.PROTOCOL if reason else ErrorKind.DIED
            return AttemptError(kind=kind, message=message, traceback=self._tail())

        self._terminate(verdict)

    def _tail(self) -> str:
        """Return the last lines of its output, with the paths the user knows."""
        return self.launch.place.shown(last_lines(self._output.tail()))

    def _terminate(self, verdict: _Verdict) -> None:
        """End the process and answer all waiting requests. Only the first reason counts."""
        if self._ending is None:
            self._timer.cancel()
            self._ending = self._loop.create_task(self._end(_run_ended if self._stopping else verdict))

    async def _end(self, verdict: _Verdict) -> None:
        # The pipe ends slightly before the process.
        self._exit_code = await self._wait(_NATURAL_END_S)
        await asyncio.to_thread(kill_tree, self._started.process, self._started.marker)
        await asyncio.to_thread(self._output.finish)
        self._forget_pid_fd()
        self._reading.cancel()
        self.dead = verdict("")
        for session, (reply, _) in self._waiting.items():
            if not reply.done():
                reply.set_result(verdict(session))
        if not self.ready.done():
            self.ended_while_importing = self.dead.kind is ErrorKind.DIED
            error = self.dead
            if error.kind in (ErrorKind.DIED, ErrorKind.PROTOCOL):
                message = f"{error.message} while it imported {_IMPORTS[self.launch.program]}"
                error = AttemptError(kind=ErrorKind.IMPORT, message=message, traceback=error.traceback)
            self.ready.set_result(error)

    def _error_of(self, value: object) -> AttemptError:
        """Convert an error that the worker reports, whatever it sends."""
        fields, shown = value if isinstance(value, dict) else {}, self.launch.place.shown
        try:
            kind = ErrorKind(str(fields.get("kind")))
        except ValueError:
            kind = ErrorKind.PROTOCOL
        message = shown(str(fields.get("message", ""))[:_MAX_MESSAGE])
        return AttemptError(kind=kind, message=message, traceback=shown(str(fields.get("traceback", ""))[:_MAX_TRACE]))


def _run_ended(_session: str) -> AttemptError:
    return AttemptError(kind=ErrorKind.STOPPED, message="the run ended")


class WorkerPool:
    """Starts, hands out, replaces and stops the workers of one agent, or of one agent's metric functions.

    ``usual``: their number while none is saturated. ``size``: their maximum, not counting those for a session alone.
    ``patience_s``: how long a session waits for a worker before another one is started.
    """

    def __init__(self, starter: ProcessStarter, log: OutputLog, usual: int, size: int, patience_s: float = 0.0) -> None:
        self._starter = starter
        self._log = log
        self._usual = usual
        self._size = size
        self._patience_s = patience_s
        self._workers: list[WorkerClient] = []
        self._alone = asyncio.Semaphore(size)
        self._ending: set[asyncio.Task[None]] = set()
        self._exclusive = self._stopped = False
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

    async def acquire(self, session: str, *, alone: bool = False) -> WorkerClient | AttemptError:
        """Return a worker for the session; with ``alone``, one that never holds another session."""
        error = AttemptError(kind=ErrorKind.DIED, message="no worker could be started")
        for _ in range(2):
            try:
                worker = await self._new_alone() if alone else await self._shared()
            except OSError as problem:
                return AttemptError(kind=ErrorKind.ENVIRONMENT, message=str(problem))
            worker.sessions.add(session)
            try:
                ready = await asyncio.shield(worker.ready)
            except asyncio.CancelledError:
                await self.release(worker, session)
                raise
            failed = ready if isinstance(ready, AttemptError) else worker.dead
            if failed is None:
                return worker
            # Others imported the agent, so it is not the agent's fault that this process ended.
            kind = ErrorKind.DIED if worker.ended_while_importing else failed.kind
            error = failed.model_copy(update={"kind": kind})
            await self.release(worker, session)
        return error

    async def release(self, worker: WorkerClient, session: str) -> None:
        """End the session. Its worker ends too if it was ``alone``, or if only a stuck turn is left in it."""
        worker.sessions.discard(session)
        if not worker.usable and not worker.sessions and worker in self._workers:
            self._workers.remove(worker)
            task = asyncio.create_task(worker.stop())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            if worker.alone:
                self._alone.release()
        async with self._freed:
            self._freed.notify_all()

    async def stop(self) -> None:
        self._stopped = True
        await asyncio.gather(*(worker.stop() for worker in self._workers), *self._ending, return_exceptions=True)
        self._workers.clear()

    def _new(self, *, alone: bool) -> WorkerClient:
        if self._stopped:
            raise OSError("the run ended")
        worker = WorkerClient(self._starter.start(), self._starter.launch, self._log, alone=alone)
        self._workers.append(worker)
        return worker

    async def _new_alone(self) -> WorkerClient:
        await self._alone.acquire()
        try:
            return self._new(alone=True)
        except OSError:
            self._alone.release()
            raise

    async def _shared(self) -> WorkerClient:
        clock = asyncio.get_running_loop().time
        grow_at = clock() + self._patience_s
        while True:
            usable = [worker for worker in self._workers if worker.usable]
            # An agent with reset_data keeps its data in the process: one session at a time.
            free = [worker for worker in usable if not (self._exclusive and worker.sessions)]
            # A worker costs processor time and a hundred megabytes. Most agents wait for their model, so one or two
            # workers hold all sessions.
            full = all(worker.sessions if len(usable) < self._usual else worker.saturated for worker in free)
            # Whoever is patient also waits for a worker that is still importing.
            may_grow = len(usable) < self._size and (not self._patience_s or all(w.ready.done() for w in usable))
            if full and may_grow and (not usable or clock() >= grow_at):
                return self._new(alone=False)
            if free:
                return min(free, key=lambda worker: (worker.saturated, len(worker.sessions)))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(grow_at if may_grow else None), self._freed:
                    await self._freed.wait()


def available_cores(cpu_max: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Return the number of cores we may use: the process's affinity, limited by the container's quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = cpu_max.read_text().split()
        if quota != "max":
            count = min(count, max(1, round(int(quota) / int(period))))
    return count
