"""What can go wrong at Gemini's endpoint, beside what can at any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from support.model_server.faults import WireFault

Kind = Literal[
    "status",
    "reset",
    "hang",
    "truncated",
    "invalid_json",
    "empty_candidates",
    "blocked_prompt",
    "blocked",
    "max_tokens",
    "only_thoughts",
    "wrong_schema",
    "not_json",
    "other_json",
]


@dataclass
class Fault(WireFault):
    """One fault.

    Of this wire: *empty_candidates*, *blocked_prompt* (promptFeedback, no candidate), *blocked* (finishReason
    SAFETY, no content), *max_tokens* (a cut text, finishReason MAX_TOKENS), *only_thoughts* (thinking parts and
    nothing else). ``retry_info`` is google.rpc.RetryInfo's retryDelay ("2s"), ``quota``
    google.rpc.QuotaFailure's quotaId.
    """

    kinds: ClassVar[tuple[str, ...]] = get_args(Kind)

    kind: Kind = "status"
    retry_info: str | None = None
    quota: str | None = None

    def details(self) -> list[dict[str, Any]]:
        """Details of the error envelope."""
        details: list[dict[str, Any]] = []
        if self.quota is not None:
            violations = [{"quotaId": self.quota, "quotaMetric": "generate_content_requests"}]
            details.append({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": violations})
        if self.retry_info is not None:
            details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": self.retry_info})
        return details
