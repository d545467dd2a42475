"""The worker's main part: loads the agent, then opens sessions and makes turns as the frames ask."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import os
import platform
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import agent_eval_worker_load as loading
from agent_eval_worker_errors import describe, last_lines
from agent_eval_worker_json import encode
from agent_eval_worker_pipe import Channel, flush_streams
from agent_eval_worker_plugin import RateLimitRetries, make_plugin_class, make_retry_options
from agent_eval_worker_session import Factory, Session, Turn, turn_frame
from agent_eval_worker_watch import Watch, cancelled_only_by, run_forever

MIN_ADK = (1, 10)
# What an import can meet and no change of the code can help.
NOT_OF_CODE = frozenset({"credentials", "rate_limited", "unavailable"})


class Worker:
    """Everything the worker holds. All but ``session_on_stack`` runs on the loop's thread."""

    def __init__(self, channel: Channel, init: dict[str, Any]) -> None:
        self._channel = channel
        self._init = init
        self._sessions: dict[str, Session] = {}
        self._tasks: set[asyncio.Future[Any]] = set()
        self._factory: Any = None  # a Factory, once the agent is loaded
        self._stop = asyncio.Event()
        self._timeout = init["timeout_s"]
        self._grace = init["cancel_grace_s"]
        self._report_s = min(1.0, self._timeout / 4)
        self._last_tick = time.monotonic()

    def run(self) -> None:
        """Serve until told to stop; does not return."""
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        code = 1
        try:
            run_forever(loop, self._main(loop))
            code = 0
        finally:
            # Not the interpreter's own end: it waits for the agent's threads.
            with contextlib.suppress(BaseException):
                atexit._run_exitfuncs()  # noqa: SLF001 - agents register clean-ups there
            flush_streams()
            self._channel.flush(2.0)
            os._exit(code)

    async def _main(self, loop: asyncio.AbstractEventLoop) -> None:
        threading.Thread(target=self._receive, args=(loop,), name="agent-eval-reader", daemon=True).start()
        os.chdir(self._init["cwd"])
        # Imports make a hundred thousand objects that stay: looking for garbage among them costs a seventh of the time.
        gc.disable()
        try:
            loaded = await self._load()
        except BaseException as error:  # noqa: BLE001 - whatever an import raises is said, not died of
            self._channel.send({"ev": "failed", "error": self._import_error(error)})
            return
        gc.freeze()
        gc.enable()
        Watch(loop, self._channel, self, self._report_s).start()
        await cancelled_only_by(self._stop)
        await self._clean_up(loaded)

    async def _load(self) -> loading.Loaded:
        folder = Path(self._init["folder"])
        sys.path[:0] = [place for place in self._init["sys_path"] if place not in sys.path]
        version = self._adk_version()
        loading.load_dotenv(folder, Path(self._init["workspace"]))
        loaded = await loading.load(folder)
        plugin_class, retries = make_plugin_class(), make_retry_options(self._timeout)
        limited = RateLimitRetries(self._timeout / 2)
        self._factory = Factory(loaded, lambda: plugin_class(retries, limited), self._init["frame_bytes"])
        self._channel.send(
            {
                "ev": "ready",
                "python": platform.python_version(),
                "adk": version,
                "models": loading.models_of(loaded.agent),
                "packages": loading.installed(),
                "exclusive": loaded.reset is not None,
            }
        )
        return loaded

    def _adk_version(self) -> str:
        try:
            from google.adk import version
        except ImportError as error:
            if (error.name or "") not in ("google", "google.adk"):
                raise
            raise EnvironmentProblemError(f"google-adk is not installed in {sys.executable}") from None
        found: str = version.__version__
        numbers = [int(part) for part in found.split(".")[:2] if part.isdigit()]
        if tuple(numbers) < MIN_ADK:
            raise EnvironmentProblemError(f"google-adk {found} is too old: 1.10 or newer is needed")
        return found

    def _import_error(self, error: BaseException) -> dict[str, str]:
        if isinstance(error, EnvironmentProblemError):
            return {"kind": "environment", "message": str(error), "traceback": ""}
        found = describe(error)
        trace = "" if isinstance(error, loading.NoAgentError) else last_lines(error)
        message = str(error) if isinstance(error, loading.NoAgentError) else found["message"]
        kind = found["kind"] if found["kind"] in NOT_OF_CODE else "import"
        return {"kind": kind, "message": message, "traceback": trace}

    def _receive(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            frame = self._channel.receive()
            if frame is None:
                # The run is gone: nothing of the agent may outlive it.
                os.killpg(os.getpgrp(), signal.SIGKILL)
                return
            loop.call_soon_threadsafe(self._dispatch, frame)

    def _dispatch(self, frame: dict[str, Any]) -> None:
        if frame["op"] == "stop":
            self._stop.set()
            return
        task = asyncio.ensure_future(getattr(self, "_on_" + frame["op"])(frame))
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    async def _on_open(self, frame: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            os.chdir(self._init["cwd"])  # a tool of an earlier session may have left it
        try:
            self._sessions[frame["s"]] = await self._factory.open(frame)
            answer = {"ev": "opened", "s": frame["s"]}
        except BaseException as error:  # noqa: BLE001 - the case's error, not the worker's
            answer = {"ev": "opened", "s": frame["s"], "error": describe(error)}
        self._channel.send(answer)

    async def _on_turn(self, frame: dict[str, Any]) -> None:
        session = self._sessions[frame["s"]]
        session.turn = turn = Turn()
        turn.task = asyncio.current_task()
        body = await session.make_turn(turn, frame["content"])
        session.turn = None
        if not turn.answered:
            turn.answered = True
            self._channel.send(turn_frame(frame["s"], body))

    async def _on_close(self, frame: dict[str, Any]) -> None:
        session = self._sessions.pop(frame["s"], None)
        answer = {"ev": "closed", "s": frame["s"], "state": {}}
        if session is not None and session.turn is not None and session.turn.task is not None:
            session.turn.task.cancel()  # nobody waits for it any more
        try:
            if session is not None:
                answer["state"] = await session.state()
            body = encode(answer)
        except BaseException as error:  # noqa: BLE001 - the case's error, not the worker's
            body = encode({"ev": "closed", "s": frame["s"], "error": describe(error)})
        self._channel.send(body)

    def tick(self, lag: float) -> None:
        """Charge the turns for the time that passed, and cancel those beyond their limit.

        The ``lag`` in which the loop stood still is charged to a turn only where it is the only one:
        it may have been another's synchronous tool that took it.
        """
        now = time.monotonic()
        passed, self._last_tick = now - self._last_tick, now
        live = [(name, s, s.turn) for name, s in self._sessions.items() if s.turn is not None]
        if len(live) > 1:
            passed = max(0.0, passed - lag)
        for name, session, turn in live:
            turn.charged += 0.0 if session.idle else min(passed, now - turn.started)
            if turn.timed_out_at is None and turn.charged > self._timeout:
                turn.timed_out_at, turn.doing = now, session.doing()
                if turn.task is not None:
                    turn.task.cancel()
            elif turn.timed_out_at is not None and now - turn.timed_out_at > self._grace and not turn.answered:
                self._give_up(name, turn)

    def _give_up(self, name: str, turn: Turn) -> None:
        turn.answered = True
        text = "it was cancelled and goes on all the same"
        error = {"kind": "timeout", "message": text, "traceback": ""}
        self._channel.send({"ev": "turn", "s": name, "error": error, "retired": True})

    def session_on_stack(self, frame: FrameType | None) -> str | None:
        """The session whose code is on a stack, as far as its frames tell. Called from the heartbeat's thread."""
        sessions = dict(self._sessions)
        while frame is not None:
            values = frame.f_locals
            if isinstance(values.get("self"), Session):
                return next((name for name, s in sessions.items() if s is values["self"]), None)
            for name in ("invocation_context", "tool_context"):
                found = values.get(name)
                context = getattr(found, "_invocation_context", found)
                service = getattr(context, "session_service", None)
                if service is not None:
                    return next((n for n, s in sessions.items() if s.runner.session_service is service), None)
            frame = frame.f_back
        return None

    async def _clean_up(self, loaded: Any) -> None:
        for task in list(self._tasks):
            task.cancel()
        with contextlib.suppress(BaseException):
            cleanup = getattr(loaded.cleanup, "aclose", loaded.cleanup)
            done: Any = cleanup() if callable(cleanup) else None
            if hasattr(done, "__await__"):
                await done
        with contextlib.suppress(BaseException):
            # Toolsets and plugins are shared by all sessions, so they are closed once, here.
            if self._factory is not None and self._factory.last_runner is not None:
                await self._factory.last_runner.close()


def serve_agent(channel: Channel, init: dict[str, Any]) -> None:
    """Load the agent and serve sessions; does not return."""
    Worker(channel, init).run()


class EnvironmentProblemError(Exception):
    """The interpreter cannot run the agent, whatever the agent is."""
