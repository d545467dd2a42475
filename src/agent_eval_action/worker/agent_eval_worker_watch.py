"""The heartbeat: a thread that says the process is alive, and shows the stack that blocks the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Coroutine
from typing import Any

from agent_eval_worker_errors import stack_of_thread
from agent_eval_worker_pipe import Channel

TICK_S = 0.1


class Watch(threading.Thread):
    """Has the loop tick ten times a second, and reports every ``report_s`` how long it has not."""

    def __init__(self, loop: asyncio.AbstractEventLoop, channel: Channel, worker: Any, report_s: float) -> None:
        super().__init__(name="agent-eval-heartbeat", daemon=True)
        self._loop = loop
        self._channel = channel
        self._worker = worker
        self._report_s = report_s
        self._asked_at: float | None = None
        self._task: asyncio.Task[Any] | None = None
        self._since = time.monotonic()
        self._lagged = 0.0
        self._cpu = time.process_time()
        self._main = threading.main_thread().ident or 0

    def run(self) -> None:
        """Until the loop is closed."""
        reported = time.monotonic()
        while not self._loop.is_closed():
            time.sleep(TICK_S)
            now = time.monotonic()
            self._look(now)
            if now - reported >= self._report_s:
                self._report(now - self._since, now - reported)
                reported = now
            if self._asked_at is None:
                self._asked_at = now
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._tick)

    def _look(self, now: float) -> None:
        """Since when the loop has been in one and the same task.

        Many tasks that are ready at once run one after the other before the loop ticks again: together
        they may take long, and none of them blocks.
        """
        task = asyncio.current_task(self._loop)
        if self._asked_at is None or task is not self._task:
            self._task, self._since = task, now

    def _report(self, lag: float, passed: float) -> None:
        cpu = time.process_time()
        # Busy with computing, or with waiting in a synchronous call: either way no good place for more sessions.
        busy = max(cpu - self._cpu, self._lagged + lag) / passed
        self._cpu, self._lagged = cpu, 0.0
        frame: dict[str, Any] = {"ev": "beat", "lag": lag, "busy": busy}
        if lag > self._report_s:
            frame["stack"] = stack_of_thread(self._main)
            frame["s"] = self._worker.session_on_stack(sys._current_frames().get(self._main))  # noqa: SLF001 - the one way to see another thread's stack
        self._channel.send(frame)

    def _tick(self) -> None:
        asked_at, self._asked_at = self._asked_at or 0.0, None
        lag = time.monotonic() - asked_at
        self._lagged += lag
        self._worker.tick(lag)


def run_forever(loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, None]) -> None:
    """Run ``main`` whatever the agent does to the loop: stop it, or leave it by sys.exit in a task.

    SystemExit in a task is stored there and raised out of the loop as well. The loop is still good: the
    turn that awaits the task gets it as an exception, and no other turn need suffer.
    """
    task = loop.create_task(main)
    task.add_done_callback(lambda _: loop.stop())
    while not task.done():
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            continue
        if not task.done():
            time.sleep(0.01)
    task.result()


async def cancelled_only_by(event: asyncio.Event) -> None:
    """Wait for an event; an agent that cancels every task it can find does not end the worker."""
    while not event.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await event.wait()
