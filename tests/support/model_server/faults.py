"""When a fault strikes, and what its answer carries, on any wire. Faults come as JSON, also to a running server."""

from __future__ import annotations

import re
import time
from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar, Protocol


class Asked(Protocol):
    """A request as faults see it."""

    @property
    def user_text(self) -> str:
        """The user's newest message."""
        ...


@dataclass
class WireFault:
    """One fault of the kinds a wire knows.

    Of every wire: *status* (``code`` in the wire's envelope, or ``body`` of ``content_type`` as it is), *reset*
    (connection reset), *hang* (no answer until the client leaves), *truncated* (the connection ends inside the
    body), *invalid_json* (a whole body, cut JSON), *other_json* (a body that is JSON and no answer),
    *wrong_schema* (the text is JSON nobody asked for), *not_json* (the text is words).
    When: of the requests whose user text fits ``user``, skip ``after``, then every ``every``-th, ``times`` in all
    (None: no end). ``retry_after`` is the header (seconds), ``location`` where a redirect points to.
    """

    kinds: ClassVar[tuple[str, ...]]

    kind: str = "status"
    code: int = 500
    message: str = ""
    user: str = ""
    after: int = 0
    times: int | None = None
    every: int = 1
    retry_after: float | None = None
    body: str | None = None
    content_type: str = "application/json"
    location: str | None = None
    seen: int = field(default=0, init=False)
    made: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.kind not in self.kinds:
            raise ValueError(f"unknown fault {self.kind!r}: known are {', '.join(self.kinds)}")

    def strikes(self, request: Asked) -> bool:
        """Whether this request gets the fault; counts it when it does."""
        if not re.search(self.user, request.user_text) or (self.times is not None and self.made >= self.times):
            return False
        self.seen += 1
        if self.seen <= self.after or (self.seen - self.after - 1) % self.every:
            return False
        self.made += 1
        return True

    def headers(self) -> dict[str, str]:
        """Headers of the faulty response."""
        wait = {} if self.retry_after is None else {"Retry-After": f"{self.retry_after:g}"}
        return wait if self.location is None else {**wait, "Location": self.location}


@dataclass
class RateLimit:
    """Lets ``per_second`` requests through in any one second; None: all."""

    per_second: float | None = None
    _let: deque[float] = field(default_factory=deque, init=False, repr=False)

    def exceeded(self) -> bool:
        """Whether the request arriving now is one too many."""
        if self.per_second is None:
            return False
        now = time.monotonic()
        while self._let and now - self._let[0] >= 1:
            self._let.popleft()
        if len(self._let) >= self.per_second:
            return True
        self._let.append(now)
        return False
