"""What a full disk looks like from inside: a file that cannot grow. The kernel refuses it, in child processes too."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Writing a file beyond ``size`` bytes fails with "File too large" inside this block."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
