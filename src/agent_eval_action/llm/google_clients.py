"""Clients of Google's libraries, one per address, made when first asked for and closed together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from agent_eval_action.llm.google_client import Address, new_session

if TYPE_CHECKING:
    import aiohttp

C = TypeVar("C")


@dataclass
class Clients(Generic[C]):
    """``make`` makes a client over a session; it blocks, and runs in a thread.

    Hundreds of first calls wait for one making; one that failed is made anew. Lives in one event loop.
    """

    make: Callable[[Address, aiohttp.ClientSession], C]
    _made: dict[Address, asyncio.Task[C]] = field(default_factory=dict, init=False, repr=False)
    _sessions: list[aiohttp.ClientSession] = field(default_factory=list, init=False, repr=False)

    async def of(self, where: Address) -> C:
        """The client of an address. Raises what its making raised."""
        task = self._made.get(where)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = self._made[where] = asyncio.create_task(self._new(where))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Give the connections back; never raises."""
        for task in self._made.values():
            task.cancel()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                client: Any = await task
                client.close()
        for session in self._sessions:
            with contextlib.suppress(Exception):
                await session.close()
        self._made.clear()
        self._sessions.clear()

    async def _new(self, where: Address) -> C:
        # In threads: the imports and the look-up of credentials would hold up every other call.
        await asyncio.to_thread(_load)
        session = new_session()
        self._sessions.append(session)
        return await asyncio.to_thread(self.make, where, session)


def _load() -> None:
    import aiohttp  # noqa: F401, PLC0415 - for the session, which the loop itself has to make
