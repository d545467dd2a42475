"""An event loop whose clock jumps: what waits an hour is done at once, and in the order it would have been."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):  # type: ignore[misc, valid-type] # its class depends on the platform
    """Passes virtual time in the place of waiting for it."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if timeout and not found:
            self.now += timeout
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """Nothing outside the loop may be waited for: there is no time for it."""

    def __init__(self) -> None:
        self.selector = _JumpingSelector()
        super().__init__(self.selector)

    def time(self) -> float:
        return self.selector.now


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """``asyncio.run`` in virtual time; ``asyncio.get_running_loop().time`` is its clock."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())
