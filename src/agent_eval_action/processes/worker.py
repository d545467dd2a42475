"""The client of one worker process: requests and replies, its heartbeat, its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable

from agent_eval_action.environments.launch import Launch, StartedProcess
from agent_eval_action.processes.managed import OutputLog, OutputReader, kill_tree
from agent_eval_action.processes.protocol import Frame, FramePipe
from agent_eval_action.results.run_result import AttemptError, ErrorKind

TAIL_LINES = 40
TAIL_COLUMNS = 500  # a crash ends with the names of all extension modules in one line
BUSY = 0.8
SATURATED_REPORTS = 2
FRAME_SLACK = 1 << 20


class WorkerClient:
    """One worker. ``ready`` resolves to its first frame, or to why there is none."""

    def __init__(self, started: StartedProcess, launch: Launch, log: OutputLog, *, alone: bool = False) -> None:
        self.alone = alone
        self.sessions: set[str] = set()
        self.retired = False
        self.busy_reports = 0
        self.dead: AttemptError | None = None
        self.ended_while_importing = False
        self._burial: asyncio.Task[None] | None = None
        self._launch = launch
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[Frame | AttemptError] = self._loop.create_future()
        self._waiting: dict[str, asyncio.Future[Frame | AttemptError]] = {}
        self._started = started
        self._pid_fd: int | None = None
        self._drain = OutputReader(self._started.output_fd, log)
        self._drain.start()
        self._pipe = FramePipe(self._started.read_fd, self._started.write_fd, launch.limits.turn_bytes + FRAME_SLACK)
        self._pipe.attach(self._on_frame, self._on_end)
        self._watch_process()
        self._last_beat = self._loop.time()
        self._timer = self._loop.call_later(launch.limits.import_s, self._import_took_too_long)
        self._natural_code: int | None = None
        self._deaf = self._stopping = False

    @property
    def saturated(self) -> bool:
        """Whether its loop has had no time to spare in the last reports."""
        return self.busy_reports >= SATURATED_REPORTS

    @property
    def usable(self) -> bool:
        """Whether it takes new sessions."""
        return self._burial is None and not self.retired and not self.alone

    async def request(self, frame: Frame) -> Frame | AttemptError:
        """Send a frame of a session and wait for its reply; one at a time per session."""
        if self.dead is not None:
            return self.dead
        session = frame["s"]
        future: asyncio.Future[Frame | AttemptError] = self._loop.create_future()
        self._waiting[session] = future
        self._pipe.send(frame)
        try:
            return await future
        finally:
            self._waiting.pop(session, None)

    def tell(self, frame: Frame) -> None:
        """Send a frame whose reply nobody waits for."""
        self._pipe.send(frame)

    async def stop(self) -> None:
        """Ask it to clean up and leave; kill it when it does not, and whatever it started."""
        self._stopping = True
        if self._burial is None:
            self._timer.cancel()
            if self.ready.done():  # before that it imports, hears nothing, and has nothing to clean up
                self._pipe.send({"op": "stop"})
                with contextlib.suppress(subprocess.TimeoutExpired):
                    await asyncio.to_thread(self._started.process.wait, self._launch.limits.stop_s)
            self._bury(_run_ended)
        if self._burial is not None:
            await self._burial

    def _watch_process(self) -> None:
        # An agent's child may hold the pipe open: the process's own end must be seen too, where it can be.
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._pid_fd = os.pidfd_open(self._started.process.pid)
                self._loop.add_reader(self._pid_fd, self._on_exit)

    def _on_exit(self) -> None:
        self._forget_pid_fd()
        # Frames written before the end are in the pipe still: let them be read first.
        self._loop.call_later(0.1, self._on_end, "")

    def _forget_pid_fd(self) -> None:
        if self._pid_fd is not None:
            self._loop.remove_reader(self._pid_fd)
            os.close(self._pid_fd)
            self._pid_fd = None

    def _on_frame(self, frame: Frame) -> None:
        event = frame["ev"]
        if self._deaf:
            return
        if event == "beat":
            self._on_beat(frame)
        elif event == "ready" and not self.ready.done():
            self._on_ready(frame)
        elif event == "failed" and not self.ready.done():
            self.ready.set_result(self._error_of(frame))
        else:
            self.retired = self.retired or bool(frame.get("stuck"))
            future = self._waiting.get(str(frame.get("s")))
            if future is not None and not future.done():
                future.set_result(self._error_of(frame["error"]) if "error" in frame else frame)

    def _on_ready(self, frame: Frame) -> None:
        self.ready.set_result(frame)
        self._timer.cancel()
        self._last_beat = self._loop.time()
        self._timer = self._loop.call_later(self._silence_s / 2, self._check_silence)

    @property
    def _silence_s(self) -> float:
        return self._launch.timeout_s + min(5.0, self._launch.timeout_s)

    def _on_beat(self, frame: Frame) -> None:
        self._last_beat = self._loop.time()
        busy = frame.get("busy")
        self.busy_reports = self.busy_reports + 1 if isinstance(busy, int | float) and busy > BUSY else 0
        lag = frame.get("lag")
        if isinstance(lag, int | float) and lag > self._launch.timeout_s:
            self._kill_blocked(str(frame.get("s")), str(frame.get("stack", "")))

    def _check_silence(self) -> None:
        if self._loop.time() - self._last_beat > self._silence_s:
            # The agent holds the interpreter's lock: only a signal handler written in C can still say where.
            # The signal may end the call; what the worker says then comes too late.
            self._deaf = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._started.process.pid, signal.SIGUSR2)
            self._timer = self._loop.call_later(0.3, self._kill_blocked, "", "")
            return
        self._timer = self._loop.call_later(self._silence_s / 4, self._check_silence)

    def _kill_blocked(self, culprit: str, stack: str) -> None:
        took = f"a synchronous call blocked the event loop longer than timeout_s ({self._launch.timeout_s:g} s)"
        only = len(self.sessions) == 1

        def verdict(session: str) -> AttemptError:
            trace = last_lines(stack) or self._tail()
            if only or session == culprit:
                return AttemptError(kind=ErrorKind.BLOCKED, message=took, traceback=trace)
            why = "the worker was ended because a synchronous call of another session blocked it"
            return AttemptError(kind=ErrorKind.DIED, message=why, traceback=trace)

        self._bury(verdict)

    def _import_took_too_long(self) -> None:
        limit = self._launch.limits.import_s
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._started.process.pid, signal.SIGUSR2)
        text = f"importing the agent took longer than {limit:g} s"
        self._loop.call_later(
            0.3, self._bury, lambda _: AttemptError(kind=ErrorKind.IMPORT, message=text, traceback=self._tail())
        )

    def _on_end(self, reason: str) -> None:
        sessions = len(self.sessions)

        def verdict(_session: str) -> AttemptError:
            how = self._how_it_ended(reason)
            if sessions > 1:
                how += f" while {sessions} sessions were open in it; whose doing it was shows when each runs alone"
            kind = ErrorKind.PROTOCOL if reason else ErrorKind.DIED
            return AttemptError(kind=kind, message=how, traceback=self._tail())

        self._bury(verdict)

    def _how_it_ended(self, reason: str) -> str:
        if reason:
            return f"the agent's process wrote to the worker's own pipe ({reason})"
        code = self._natural_code
        if code is None:
            return "the agent's process closed the worker's own pipe"
        if code < 0:
            return f"the agent's process was killed by {_signal_name(-code)}"
        return f"the agent's process ended with exit code {code}"

    def _bury(self, verdict: Callable[[str], AttemptError]) -> None:
        """End the process and answer everybody who waits. Only the first reason counts."""
        if self._burial is None:
            self._timer.cancel()
            self._burial = self._loop.create_task(self._end(_run_ended if self._stopping else verdict))

    async def _end(self, verdict: Callable[[str], AttemptError]) -> None:
        process = self._started.process
        # The pipe ends a moment before the process does.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._natural_code = await asyncio.to_thread(process.wait, 0.3)
        await asyncio.to_thread(kill_tree, process, self._started.marker)
        await asyncio.to_thread(self._drain.finish)
        self._forget_pid_fd()
        self._pipe.close()
        self.dead = verdict("")
        for session, future in self._waiting.items():
            if not future.done():
                future.set_result(verdict(session))
        if not self.ready.done():
            self.ready.set_result(self._never_ready())

    def _never_ready(self) -> AttemptError:
        dead = self.dead or AttemptError(kind=ErrorKind.DIED, message="the worker ended")
        self.ended_while_importing = dead.kind is ErrorKind.DIED
        if dead.kind in (ErrorKind.DIED, ErrorKind.PROTOCOL):
            return AttemptError(
                kind=ErrorKind.IMPORT, message=f"{dead.message} while it imported the agent", traceback=dead.traceback
            )
        return dead

    def _error_of(self, said: object) -> AttemptError:
        error, shown = attempt_error(said), self._launch.shown
        return error.model_copy(update={"message": shown(error.message), "traceback": shown(error.traceback)})

    def _tail(self) -> str:
        return self._launch.shown(last_lines(self._drain.tail()))


def _signal_name(number: int) -> str:
    # Real-time signals have numbers and no names.
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _run_ended(_session: str) -> AttemptError:
    return AttemptError(kind=ErrorKind.STOPPED, message="the run ended")


def last_lines(text: str) -> str:
    """The last lines of what was printed."""
    return "\n".join(line[:TAIL_COLUMNS] for line in text.rstrip().splitlines()[-TAIL_LINES:])


def attempt_error(said: object) -> AttemptError:
    """An error as the worker says it; whatever it says, it becomes one of ours."""
    fields = said if isinstance(said, dict) else {}
    try:
        kind = ErrorKind(str(fields.get("kind")))
    except ValueError:
        kind = ErrorKind.PROTOCOL
    return AttemptError(kind=kind, message=str(fields.get("message", "")), traceback=str(fields.get("traceback", "")))
