"""Pausing Python's cyclic collector while many values are made that all stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """With, or around a function: values without cycles, of which none becomes garbage.

    The collector would walk all of a large result again and again and take several times the work itself.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
