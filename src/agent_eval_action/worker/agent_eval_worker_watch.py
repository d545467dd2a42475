"""The heartbeat: a thread that says the process is alive, and shows the stack that blocks the event loop."""

import asyncio
import contextlib
import sys
import threading
import time

from agent_eval_worker_errors import stack_of_thread


TICK_S = 0.1


class Watch(threading.Thread):
    """Has the loop tick ten times a second, and reports every ``report_s`` how long it has not."""

    def __init__(self, loop, channel, worker, report_s):
        super().__init__(name="agent-eval-heartbeat", daemon=True)
        self._loop = loop
        self._channel = channel
        self._worker = worker
        self._report_s = report_s
        self._asked_at = None
        self._task = None
        self._since = time.monotonic()
        self._main = threading.main_thread().ident

    def run(self):
        """Until the loop is closed."""
        reported = time.monotonic()
        while not self._loop.is_closed():
            time.sleep(TICK_S)
            now = time.monotonic()
            self._look(now)
            if now - reported >= self._report_s:
                reported = now
                self._report(now - self._since)
            if self._asked_at is None:
                self._asked_at = now
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._tick)

    def _look(self, now):
        """Since when the loop has been in one and the same task.

        Many tasks that are ready at once run one after the other before the loop ticks again: together
        they may take long, and none of them blocks.
        """
        task = asyncio.current_task(self._loop)
        if self._asked_at is None or task is not self._task:
            self._task, self._since = task, now

    def _report(self, lag):
        frame = {"ev": "beat", "lag": lag}
        if lag > self._report_s:
            frame["stack"] = stack_of_thread(self._main)
            frame["s"] = self._worker.session_on_stack(sys._current_frames().get(self._main))  # noqa: SLF001
        self._channel.send(frame)

    def _tick(self):
        lag, self._asked_at = time.monotonic() - self._asked_at, None
        self._worker.tick(lag)


def run_forever(loop, main):
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
    return task.result()


async def cancelled_only_by(event):
    """Wait for an event; an agent that cancels every task it can find does not end the worker."""
    while not event.is_set():
        try:
            await event.wait()
        except asyncio.CancelledError:
            continue
