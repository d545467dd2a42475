"""Metric functions of the user, called in processes of their own, one call at a time in each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from agent_eval_action.environments.resolve import choose_interpreter
from agent_eval_action.environments.runtime import AgentRuntimeSpec, Launch
from agent_eval_action.errors import AgentEnvironmentError
from agent_eval_action.folders import file_name
from agent_eval_action.processes.managed import STACK_S, ManagedProcess, OutputLog, start_process
from agent_eval_action.processes.protocol import Frame
from agent_eval_action.results.evalset import FunctionReply

_FRAME_BYTES: Final = 4 << 20
_MAX_PROCESSES: Final = 4
_GROW_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class FunctionError:
    """Why there is no answer, in one sentence, and a traceback or the last lines printed."""

    message: str
    traceback: str = ""


_RUN_ENDED: Final = FunctionError("the run ended")


class FunctionProcess:
    """One process that calls functions. It is ``usable`` until a call ended badly."""

    def __init__(self, launch: Launch, log: OutputLog) -> None:
        self.usable = True
        self.loaded: set[str] = set()
        self.sys_path: tuple[str, ...] = tuple(launch.first_frame()["sys_path"])
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[Frame | FunctionError] | None = None
        self._early: Frame | None = None  # the first frame may come before somebody waits for it
        self._ending: asyncio.Task[None] | None = None
        self._process = ManagedProcess(
            start_process(launch),
            launch,
            log,
            frame_bytes=_FRAME_BYTES,
            on_frame=self._on_frame,
            on_end=self._on_end,
        )

    async def ask(self, frame: Frame | None, limit_s: float, what: str) -> Frame | FunctionError:
        """Send a frame and wait for its answer; None only waits. ``what`` is the sentence's subject on a timeout."""
        if self._process.is_terminating:
            return await self._ended("")
        answer: asyncio.Future[Frame | FunctionError] = self._loop.create_future()
        self._answer = answer
        if frame is not None:
            self._process.send(frame)
        elif self._early is not None:
            answer.set_result(self._early)
        try:
            async with asyncio.timeout(limit_s):
                return await answer
        except TimeoutError:
            self.usable = False
            self._process.dump_stacks()
            await asyncio.sleep(STACK_S)
            await self.end()
            return FunctionError(f"{what} took longer than {limit_s:g} s", self._process.tail())
        except asyncio.CancelledError:
            self.usable = False
            raise
        finally:
            self._answer = None

    async def end(self) -> None:
        """Kill it and whatever it started."""
        self.usable = False
        await self._answer_with_end("", self._answer)

    def _on_frame(self, frame: Frame) -> None:
        if self._answer is None:
            self._early = self._early or frame
        elif not self._answer.done():
            self._answer.set_result(frame)

    def _on_end(self, reason: str) -> None:
        self.usable = False
        self._ending = self._loop.create_task(self._answer_with_end(reason, self._answer))

    async def _answer_with_end(self, reason: str, answer: asyncio.Future[Frame | FunctionError] | None) -> None:
        error = await self._ended(reason)
        if answer is not None and not answer.done():
            answer.set_result(error)

    async def _ended(self, reason: str) -> FunctionError:
        await self._process.terminate()
        if reason:
            return FunctionError(f"its process wrote what is no answer ({reason})", self._process.tail())
        return FunctionError(f"its process {self._process.exit_description() or 'ended'}", self._process.tail())


class MetricFunctions:
    """A ``criteria.base.Functions``: the functions of one agent. ``stop`` must follow.

    Nothing is started before the first call. There are at most four processes, each with one call at a time. A second
    one is started when a call has waited half a second: functions that only compute need one. A call that hangs, ends
    its process or leaves it damaged costs that process and no other call.

    ``known_interpreter`` gives the agent's interpreter where it is chosen already; it is asked at the first call.
    """

    def __init__(self, spec: AgentRuntimeSpec, known_interpreter: Callable[[], Path | None] = lambda: None) -> None:
        self._spec = spec
        self._known_interpreter = known_interpreter
        self._log = OutputLog(spec.logs, f"{file_name(spec.name)}.metrics.log", spec.limits.log_bytes)
        self._idle: asyncio.Queue[FunctionProcess] = asyncio.Queue()
        self._processes: set[FunctionProcess] = set()
        self._starting = 0
        self._prepared: asyncio.Task[Launch | FunctionError] | None = None
        self._given_up = threading.Event()
        self._unusable: FunctionError | None = None
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
            reply = await self._call_in(process, function, arguments)
        finally:
            self._release(process)
        return FunctionReply(error=_RUN_ENDED.message) if self._stopped and reply.error else reply

    async def stop(self) -> None:
        """End every process and everything they started; calls that wait are answered."""
        self._stopped = True
        self._given_up.set()
        if self._prepared is not None:
            await asyncio.gather(self._prepared, return_exceptions=True)
        processes = [process.end() for process in self._processes]
        await asyncio.gather(*processes, *self._ending, return_exceptions=True)
        self._log.close()

    async def _call_in(self, process: FunctionProcess, function: str, arguments: Mapping[str, Any]) -> FunctionReply:
        spec = self._spec
        if function not in process.loaded:
            answer = await process.ask({"op": "load", "function": function}, spec.limits.import_s, "the import")
            if error := _error_in(answer):
                where = " and ".join(process.sys_path)
                message = f"cannot import {function} (from {where} or an installed package): {error.message}"
                return FunctionReply(error=message, traceback=error.traceback)
            process.loaded.add(function)
        frame = {"op": "call", "function": function, "arguments": dict(arguments)}
        answer = await process.ask(frame, spec.timeout_s, "the call")
        if isinstance(answer, dict) and answer.get("broken"):
            process.usable = False
        if error := _error_in(answer):
            return FunctionReply(error=f"{function}: {error.message}", traceback=error.traceback)
        return FunctionReply(value=answer.get("value") if isinstance(answer, dict) else None)

    async def _acquire(self) -> FunctionProcess | FunctionError:
        while not self._stopped:
            if self._unusable is not None:
                return self._unusable
            if not self._idle.empty():
                process = self._idle.get_nowait()
            elif self._may_start() and (not self._processes or await self._none_gets_free()):
                return await self._start()
            else:
                try:
                    process = await asyncio.wait_for(self._idle.get(), _GROW_S)
                except TimeoutError:
                    continue
            if process.usable:
                return process
            self._release(process)
        return _RUN_ENDED

    def _may_start(self) -> bool:
        return not self._starting and len(self._processes) < _MAX_PROCESSES

    async def _none_gets_free(self) -> bool:
        """Whether no process became free in a while; then another one is worth its start."""
        try:
            self._idle.put_nowait(await asyncio.wait_for(self._idle.get(), _GROW_S))
        except TimeoutError:
            return self._may_start()
        return False

    async def _start(self) -> FunctionProcess | FunctionError:
        self._starting += 1
        try:
            if self._prepared is None:
                self._prepared = asyncio.create_task(asyncio.to_thread(self._prepare))
            launch = await asyncio.shield(self._prepared)
            if isinstance(launch, FunctionError) or self._stopped:
                return launch if isinstance(launch, FunctionError) else _RUN_ENDED
            try:
                process = FunctionProcess(launch, self._log)
            except OSError as error:
                return FunctionError(f"the process for metric functions cannot be started: {error}")
            self._processes.add(process)
            return await self._wait_until_ready(process)
        finally:
            self._starting -= 1

    async def _wait_until_ready(self, process: FunctionProcess) -> FunctionProcess | FunctionError:
        try:
            answer = await process.ask(None, self._spec.limits.import_s, "importing google.adk.evaluation")
        except asyncio.CancelledError:
            self._release(process)
            raise
        if error := _error_in(answer):
            process.usable = False
            self._release(process)
            hint = "custom_metrics need google-adk[eval] in the agent's environment"
            message = f"metric functions cannot be called: {error.message} ({hint})"
            self._unusable = FunctionError(message, error.traceback)
            return _RUN_ENDED if self._stopped else self._unusable
        return process

    def _release(self, process: FunctionProcess) -> None:
        """Offer the process to the next call, or end it."""
        if process.usable:
            self._idle.put_nowait(process)
        elif process in self._processes:
            self._processes.discard(process)
            task = asyncio.create_task(process.end())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def _prepare(self) -> Launch | FunctionError:
        """Choose the interpreter. In a sandbox functions have a copy of the tree that no agent can rewrite. Blocks."""
        try:
            spec = replace(self._spec, python=self._known_interpreter() or self._spec.python)
            place = spec.locate()
            return Launch(spec, place, choose_interpreter(spec, place, self._given_up), "metrics")
        except AgentEnvironmentError as error:
            reason = error.message + (f" ({error.hint})" if error.hint else "")
        except OSError as error:
            reason = str(error)
        return FunctionError(f"no interpreter for metric functions: {reason}")


def _error_in(answer: Frame | FunctionError) -> FunctionError | None:
    """What went wrong, where something did."""
    if isinstance(answer, FunctionError):
        return answer
    if answer.get("ev") != "failed":
        return None
    error = answer.get("error")
    fields = error if isinstance(error, dict) else {}
    return FunctionError(str(fields.get("message", "it failed"))[:2_000], str(fields.get("traceback", ""))[:16_000])
