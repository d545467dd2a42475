"""What can go wrong at a server of OpenAI's wire, beside what can at any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from support.model_server.faults import WireFault

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
class Fault(WireFault):
    """One fault.

    Of this wire: *empty_choices*, *empty_text*, *refusal* (message.refusal), *content_filter* and *length*
    (finish_reason). ``error`` and ``param`` are of the error envelope.
    """

    kinds: ClassVar[tuple[str, ...]] = get_args(Kind)

    kind: Kind = "status"
    error: str = ""
    param: str | None = None
    retry_after_ms: float | None = None

    def headers(self) -> dict[str, str]:
        """Headers of the faulty response."""
        said = super().headers()
        return said if self.retry_after_ms is None else {**said, "retry-after-ms": f"{self.retry_after_ms:g}"}
