"""What a run may spend, what it has spent, and which limit it met."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent_eval_action.model.result import Attempt, Usage


@dataclass(frozen=True, slots=True)
class SpendingLimits:
    """Over the whole run, all arms together; None: no limit."""

    calls: int | None = None
    tokens: int | None = None


@dataclass
class Spending:
    """Adds up what attempts used. Tokens a model did not report count as none."""

    limits: SpendingLimits = SpendingLimits()
    used: Usage = field(default_factory=Usage)

    def add(self, attempt: Attempt) -> None:
        """What one attempt used."""
        self.used += attempt.usage

    def met(self) -> str:
        """The limit that is met, in words; "" while there is none."""
        calls, tokens = self.limits.calls, self.limits.tokens
        if calls is not None and self.used.model_calls >= calls:
            return f"the limit of {calls:,} model calls was reached"
        if tokens is not None and (self.used.total_tokens or 0) >= tokens:
            return f"the limit of {tokens:,} tokens was reached"
        return ""
