"""Which worker a session gets, and what one that is given up takes along."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from agent_eval_action.processes.worker import WorkerPool


async def test_a_session_that_is_given_up_during_the_import_takes_no_other_along() -> None:
    unused: Any = None
    pool, ready = WorkerPool(unused, unused, usual=1, size=1), asyncio.get_running_loop().create_future()
    worker: Any = SimpleNamespace(ready=ready, sessions=set(), usable=True, saturated=False, dead=None, alone=False)
    pool._workers.append(worker)
    given_up, other = (asyncio.create_task(pool.acquire(name)) for name in ("given up", "other"))
    await asyncio.sleep(0)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    ready.set_result({"ev": "ready"})
    assert await other is worker
    assert worker.sessions == {"other"}
