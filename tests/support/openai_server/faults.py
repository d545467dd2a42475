"""What can go wrong at a server of OpenAI's wire, and when."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, get_args

from support.openai_server.messages import ChatRequest

Kind = Literal[
    "status",
    "reset",
    "hang",
    "truncated",
    "invalid_json",
    "empty_choices",
    "empty_text",
    "refusal",
    "content_filter",
    "length",
    "wrong_schema",
    "not_json",
    "other_json",
]


@dataclass
class Fault:
    """One fault.

    ``kind``: *status* (``code`` with OpenAI's envelope, or ``body`` as it is), *reset*, *hang*, *truncated* (the
    connection ends inside the body), *invalid_json* (a whole body, cut JSON), *empty_choices*, *empty_text*,
    *refusal* (message.refusal), *content_filter* and *length* (finish_reason), *wrong_schema*, *not_json*,
    *other_json* (a body that is no completion).
    When: of the requests whose user text fits ``user``, skip ``after``, then ``times`` in all (None: no end).
    """

    kind: Kind = "status"
    code: int = 500
    message: str = ""
    error: str = ""
    param: str | None = None
    body: str | None = None
    content_type: str = "application/json"
    user: str = ""
    after: int = 0
    times: int | None = None
    retry_after: float | None = None
    retry_after_ms: float | None = None
    location: str | None = None
    seen: int = field(default=0, init=False)
    made: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"unknown fault {self.kind!r}: known are {', '.join(get_args(Kind))}")

    def strikes(self, request: ChatRequest) -> bool:
        """Whether this request gets the fault; counts it when it does."""
        if not re.search(self.user, request.user_text) or (self.times is not None and self.made >= self.times):
            return False
        self.seen += 1
        if self.seen <= self.after:
            return False
        self.made += 1
        return True

    def headers(self) -> dict[str, str]:
        """Headers of the faulty response."""
        said = {"Retry-After": self.retry_after, "retry-after-ms": self.retry_after_ms}
        waits = {name: f"{value:g}" for name, value in said.items() if value is not None}
        return waits if self.location is None else {**waits, "Location": self.location}
