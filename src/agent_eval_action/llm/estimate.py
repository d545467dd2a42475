"""What a run will ask of judges, before anything is spent: at most, and likely."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agent_eval_action.llm.base import LlmUsage
from agent_eval_action.llm.prices import Prices

# Tokens of one judge call where no earlier run says: a prompt with a short conversation, an answer with its reason.
_INPUT = 1_500
_OUTPUT = 600
_CENT = 0.01


@dataclass(frozen=True, slots=True)
class Asked:
    """What one criterion asks of one model over the run.

    ``questions``: its turns (or cases) over all repeats. ``samples``: votes on each at most. ``input_tokens``
    and ``output_tokens`` are an earlier run's mean of a call; None: unknown.
    """

    purpose: str
    model: str
    questions: int
    samples: int = 1
    input_tokens: float | None = None
    output_tokens: float | None = None

    @property
    def likely_samples(self) -> int:
        """Votes that agree decide as soon as the rest could not outvote them: 3 of 5."""
        return self.samples // 2 + 1


@dataclass(frozen=True, slots=True)
class Estimate:
    """Calls, tokens and USD, likely and at most. USD None: some model has no price."""

    calls: int = 0
    most_calls: int = 0
    tokens: int = 0
    most_tokens: int = 0
    usd: float | None = 0.0
    most_usd: float | None = 0.0

    @property
    def sentence(self) -> str:
        """For the log; "" when no judge is asked."""
        if not self.most_calls:
            return ""
        return (
            f"judges: about {self.calls:,} calls and {self.tokens:,} tokens, at most {self.most_calls:,} and "
            f"{self.most_tokens:,}; {self._cost}"
        )

    @property
    def _cost(self) -> str:
        if self.usd is None or self.most_usd is None:
            return "at unknown cost (llm.prices)"
        if self.most_usd < _CENT:
            return "less than $0.01"
        about = f"about ${self.usd:,.2f}, " if self.usd >= _CENT else ""
        return f"{about}at most ${self.most_usd:,.2f}"


def estimate(asked: Iterable[Asked], prices: Prices) -> Estimate:
    """What these come to."""
    total = Estimate()
    for one in asked:
        sent = _INPUT if one.input_tokens is None else one.input_tokens
        said = _OUTPUT if one.output_tokens is None else one.output_tokens
        price = prices.find(one.model)
        calls, most = one.questions * one.likely_samples, one.questions * one.samples
        each = None if price is None else price.of(LlmUsage(round(sent), round(said)))
        total = Estimate(
            total.calls + calls,
            total.most_calls + most,
            total.tokens + round(calls * (sent + said)),
            total.most_tokens + round(most * (sent + said)),
            _plus(total.usd, each, calls),
            _plus(total.most_usd, each, most),
        )
    return total


def _plus(total: float | None, each: float | None, times: int) -> float | None:
    return None if total is None or each is None else total + each * times
