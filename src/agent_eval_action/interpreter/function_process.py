"""One process that calls metric functions, one at a time: asked, waited for, ended when it does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass

from agent_eval_action.interpreter.frames import Frame, FramePipe
from agent_eval_action.interpreter.launch import Launch, start
from agent_eval_action.interpreter.output_log import Drain, OutputLog
from agent_eval_action.interpreter.processes import end_tree
from agent_eval_action.interpreter.worker_client import last_lines

_FRAME_BYTES = 4 << 20
_STACK_S = 0.3


@dataclass(frozen=True, slots=True)
class Failure:
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
        self._started = start(launch)
        self._answer: asyncio.Future[Frame | Failure] | None = None
        self._early: Frame | None = None  # the first frame may come before somebody waits for it
        self._burial: asyncio.Task[None] | None = None
        self._pid_fd: int | None = None
        self._code: int | None = None
        self._drain = Drain(self._started.output_fd, log)
        self._drain.start()
        self._pipe = FramePipe(self._started.read_fd, self._started.write_fd, _FRAME_BYTES)
        self._pipe.attach(self._on_frame, self._on_end)
        if hasattr(os, "pidfd_open"):
            # A child of the function's may hold the pipe open: the process's own end must be seen too.
            with contextlib.suppress(OSError):
                self._pid_fd = os.pidfd_open(self._started.process.pid)
                self._loop.add_reader(self._pid_fd, self._on_exit)

    async def ask(self, frame: Frame | None, limit_s: float, what: str) -> Frame | Failure:
        """Send a frame and wait for its answer; None only waits. ``what`` is the sentence's subject on a timeout."""
        if self._burial is not None:
            return await self._ended("")
        answer: asyncio.Future[Frame | Failure] = self._loop.create_future()
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
            return Failure(f"{what} took longer than {limit_s:g} s", self._tail())
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

    async def _ended(self, reason: str) -> Failure:
        if self._burial is not None:
            await asyncio.shield(self._burial)
        if reason:
            return Failure(f"its process wrote what is no answer ({reason})", self._tail())
        code = self._code
        how = (
            "ended" if code is None else f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        )
        return Failure(f"its process {how}", self._tail())

    async def _bury(self) -> None:
        process = self._started.process
        # The pipe ends a moment before the process does.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._code = await asyncio.to_thread(process.wait, 0.3)
        await asyncio.to_thread(end_tree, process, self._started.marker)
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
