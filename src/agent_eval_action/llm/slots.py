"""Places for what runs at once: as many as the ceiling allows until somebody is turned away, then fewer, then more."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

_CUT = 0.7  # CUBIC's: half is too much where what was refused is asked again anyway (RFC 9438, 4.6)


@dataclass(frozen=True, slots=True)
class Place:
    """One taken place. ``generation``: how many cuts there had been when it was taken."""

    generation: int


class Slots:
    """A semaphore whose size follows what it is told: ``went_well`` grows it, ``refused`` cuts it.

    It begins with ``start`` places and has one more for everything that goes well (doubling each round
    trip), until the first refusal; from then on one more a round. Refusals of what was begun before the
    last cut are the same news and do not cut again.
    """

    def __init__(self, ceiling: int, start: int | None = None) -> None:
        self.ceiling = ceiling
        self.size = float(min(ceiling, start or ceiling))
        self.taken = 0
        self._most = 0  # taken at once since the last cut: what was refused may be told when most have left
        self._cuts = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def place(self) -> AsyncIterator[Place]:
        """A place, in the order of asking."""
        if self._waiting or self.taken >= int(self.size):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn  # whoever wakes it has counted it as taken
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._leave()
                raise
        else:
            self.taken += 1
        self._most = max(self._most, self.taken)
        try:
            yield Place(self._cuts)
        finally:
            self._leave()

    def went_well(self) -> None:
        """Something in a place was not refused."""
        if self.taken * 2 >= int(self.size):  # growth nobody uses would be a burst later
            step = 1.0 if self._cuts == 0 else 1.0 / self.size
            self.size = min(float(self.ceiling), self.size + step)
            self._wake()

    def refused(self, place: Place) -> None:
        """What took this place was turned away."""
        if place.generation == self._cuts:
            self._cuts += 1
            self.size = max(1.0, min(self.size, float(self._most)) * _CUT)
            self._most = self.taken

    def _leave(self) -> None:
        self.taken -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self.taken < int(self.size):
            turn = self._waiting.popleft()
            if not turn.done():
                self.taken += 1
                turn.set_result(None)
