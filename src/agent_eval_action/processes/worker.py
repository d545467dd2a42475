"""The client of one worker process: requests and replies, its heartbeat, its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agent_eval_action.environments.runtime import Launch
from agent_eval_action.processes.managed import STACK_S, ManagedProcess, OutputLog, StartedProcess, last_lines
from agent_eval_action.processes.protocol import Frame
from agent_eval_action.results.run_result import AttemptError, ErrorKind

BUSY = 0.8
SATURATED_REPORTS = 2
FRAME_SLACK = 1 << 20
_RUN_ENDED = AttemptError(kind=ErrorKind.STOPPED, message="the run ended")

_Verdict = Callable[[str], AttemptError]
"""What a session, named by its id, is told of the worker's end; "" asks for no session in particular."""


class WorkerClient:
    """One worker. ``ready`` resolves to its first frame, or to why there is none."""

    def __init__(self, started: StartedProcess, launch: Launch, log: OutputLog, *, alone: bool = False) -> None:
        self.alone = alone
        self.sessions: set[str] = set()
        self.retired = False
        self.busy_reports = 0
        self.dead: AttemptError | None = None
        self.ended_while_importing = False
        self._launch = launch
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[Frame | AttemptError] = self._loop.create_future()
        self._waiting: dict[str, asyncio.Future[Frame | AttemptError]] = {}
        self._ending: asyncio.Task[None] | None = None
        self._ignores_frames = self._stopping = False
        self._last_beat = self._loop.time()
        self._timer = self._loop.call_later(launch.spec.limits.import_s, self._import_took_too_long)
        self._process = ManagedProcess(
            started,
            launch,
            log,
            frame_bytes=launch.spec.limits.turn_bytes + FRAME_SLACK,
            on_frame=self._on_frame,
            on_end=self._on_end,
        )

    @property
    def saturated(self) -> bool:
        """Whether its loop has had no time to spare in the last reports."""
        return self.busy_reports >= SATURATED_REPORTS

    @property
    def usable(self) -> bool:
        """Whether it takes new sessions."""
        return self._ending is None and not self.retired and not self.alone

    async def request(self, frame: Frame) -> Frame | AttemptError:
        """Send a frame of a session and wait for its reply; one at a time per session."""
        if self.dead is not None:
            return self.dead
        session = frame["s"]
        future: asyncio.Future[Frame | AttemptError] = self._loop.create_future()
        self._waiting[session] = future
        self._process.send(frame)
        try:
            return await future
        finally:
            self._waiting.pop(session, None)

    def notify(self, frame: Frame) -> None:
        """Send a frame whose reply nobody waits for."""
        self._process.send(frame)

    async def stop(self) -> None:
        """Ask it to clean up and leave; kill it when it does not, and whatever it started."""
        self._stopping = True
        if self._ending is None:
            self._timer.cancel()
            if self.ready.done():  # before that it imports, reads no frame, and has nothing to clean up
                self._process.send({"op": "stop"})
                await self._process.wait(self._launch.spec.limits.stop_s)
            self._terminate(lambda _: _RUN_ENDED)
        if self._ending is not None:
            await self._ending

    def _on_frame(self, frame: Frame) -> None:
        event = frame["ev"]
        if self._ignores_frames:
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
        return self._launch.spec.timeout_s + min(5.0, self._launch.spec.timeout_s)

    def _on_beat(self, frame: Frame) -> None:
        self._last_beat = self._loop.time()
        busy = frame.get("busy")
        self.busy_reports = self.busy_reports + 1 if isinstance(busy, int | float) and busy > BUSY else 0
        lag = frame.get("lag")
        if isinstance(lag, int | float) and lag > self._launch.spec.timeout_s:
            self._kill_blocked(str(frame.get("s")), str(frame.get("stack", "")))

    def _check_silence(self) -> None:
        if self._loop.time() - self._last_beat > self._silence_s:
            # The signal may end the blocking call; what the worker reports then comes too late.
            self._ignores_frames = True
            self._process.dump_stacks()
            self._timer = self._loop.call_later(STACK_S, self._kill_blocked, "", "")
            return
        self._timer = self._loop.call_later(self._silence_s / 4, self._check_silence)

    def _kill_blocked(self, culprit: str, stack: str) -> None:
        limit = self._launch.spec.timeout_s
        only = len(self.sessions) == 1

        def verdict(session: str) -> AttemptError:
            trace = last_lines(stack) or self._process.tail()
            if only or session == culprit:
                message = f"a synchronous call blocked the event loop longer than timeout_s ({limit:g} s)"
                return AttemptError(kind=ErrorKind.BLOCKED, message=message, traceback=trace)
            message = "the worker was ended because a synchronous call of another session blocked it"
            return AttemptError(kind=ErrorKind.DIED, message=message, traceback=trace)

        self._terminate(verdict)

    def _import_took_too_long(self) -> None:
        message = f"importing the agent took longer than {self._launch.spec.limits.import_s:g} s"
        self._process.dump_stacks()

        def verdict(_session: str) -> AttemptError:
            return AttemptError(kind=ErrorKind.IMPORT, message=message, traceback=self._process.tail())

        self._loop.call_later(STACK_S, self._terminate, verdict)

    def _on_end(self, reason: str) -> None:
        sessions = len(self.sessions)

        def verdict(_session: str) -> AttemptError:
            if reason:
                message = f"the agent's process wrote to the worker's own pipe ({reason})"
            else:
                how = self._process.exit_description() or "closed the worker's own pipe"
                message = f"the agent's process {how}"
            if sessions > 1:
                message += f" while {sessions} sessions were open in it; whose doing it was shows when each runs alone"
            kind = ErrorKind.PROTOCOL if reason else ErrorKind.DIED
            return AttemptError(kind=kind, message=message, traceback=self._process.tail())

        self._terminate(verdict)

    def _terminate(self, verdict: _Verdict) -> None:
        """End the process and answer everybody who waits. Only the first reason counts."""
        if self._ending is None:
            self._timer.cancel()
            self._ending = self._loop.create_task(self._end((lambda _: _RUN_ENDED) if self._stopping else verdict))

    async def _end(self, verdict: _Verdict) -> None:
        await self._process.terminate()
        self.dead = verdict("")
        for session, future in self._waiting.items():
            if not future.done():
                future.set_result(verdict(session))
        if not self.ready.done():
            self.ended_while_importing = self.dead.kind is ErrorKind.DIED
            error = self.dead
            if error.kind in (ErrorKind.DIED, ErrorKind.PROTOCOL):
                message = f"{error.message} while it imported the agent"
                error = AttemptError(kind=ErrorKind.IMPORT, message=message, traceback=error.traceback)
            self.ready.set_result(error)

    def _error_of(self, value: object) -> AttemptError:
        """An error that the worker reports; whatever it sends, the result is one of ours."""
        fields, shown = value if isinstance(value, dict) else {}, self._launch.place.shown
        try:
            kind = ErrorKind(str(fields.get("kind")))
        except ValueError:
            kind = ErrorKind.PROTOCOL
        message, trace = (shown(str(fields.get(name, ""))) for name in ("message", "traceback"))
        return AttemptError(kind=kind, message=message, traceback=trace)
