"""The heartbeat: a thread that says the process is alive, and shows the stack that blocks the event loop."""

import asyncio
import sys
import threading
import time

from agent_eval_worker_errors import stack_of_thread


class Watch(threading.Thread):
    """Asks the loop to tick every ``interval`` seconds and reports how long it has not."""

    def __init__(self, loop, channel, worker, interval):
        super().__init__(name="agent-eval-heartbeat", daemon=True)
        self._loop = loop
        self._channel = channel
        self._worker = worker
        self._interval = interval
        self._asked_at = None
        self._main = threading.main_thread().ident

    def run(self):
        while True:
            time.sleep(self._interval)
            now = time.monotonic()
            lag = 0.0 if self._asked_at is None else now - self._asked_at
            frame = {"ev": "beat", "lag": lag}
            if lag > 2 * self._interval:
                frame["stack"] = stack_of_thread(self._main)
                frame["s"] = self._worker.session_on_stack(sys._current_frames().get(self._main))  # noqa: SLF001
            self._channel.send(frame)
            if self._asked_at is None:
                self._asked_at = now
                try:
                    self._loop.call_soon_threadsafe(self._tick)
                except RuntimeError:
                    return

    def _tick(self):
        self._asked_at = None
        self._worker.tick()


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
