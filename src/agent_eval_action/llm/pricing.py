"""What models cost: the list prices of prices.json, which the configuration extends and overrides."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final

from agent_eval_action.errors import ConfigError
from agent_eval_action.llm.client import LlmUsage

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """USD per million tokens.

    ``cached_input`` None: as input. ``long`` holds for calls of more input tokens than ``above``.
    """

    input: float
    output: float
    cached_input: float | None = None
    above: int | None = None
    long: Price | None = None

    def usd(self, usage: LlmUsage) -> float:
        """USD of a call; tokens that were not reported count as none."""
        sent = usage.input_tokens or 0
        if self.long is not None and self.above is not None and sent > self.above:
            return self.long.usd(usage)
        cached = min(sent, usage.cached_input_tokens or 0)
        reused = self.input if self.cached_input is None else self.cached_input
        dear = (sent - cached) * self.input + cached * reused + (usage.output_tokens or 0) * self.output
        return dear / _MILLION


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(files(__package__).joinpath("prices.json").read_text("utf-8"))
    return table


def listed_on() -> str:
    """The day of the table: a change of it changes what cost_usd_v1 says of the same calls."""
    return str(_table()["listed_on"])


@cache
def _listed() -> dict[str, Price]:
    return {model: _price(**entry) for model, entry in _table()["models"].items()}


def _price(long: Mapping[str, Any] | None = None, **fields: Any) -> Price:
    return Price(**fields, long=Price(**long) if long else None)


# gemini-2.5-flash-preview-09-2025 is gemini-2.5-flash; gpt-5-pro is not gpt-5.
_SAME_MODEL: Final = re.compile(r"(?:[-@:](?:\d{2,8}|preview|exp|experimental|latest|stable|default))*")
_BOUNDARY: Final = re.compile(r"[-@:/]")


@dataclass(frozen=True)
class Prices:
    """Prices by model: ``own``, of the configuration, then the table. The longest name that fits wins."""

    own: Mapping[str, Price] = field(default_factory=dict)

    def find(self, model: str) -> Price | None:
        """The price of a model as configured or as it called itself; None: unknown."""
        short = model.rpartition("/")[2]  # openai/gpt-5, models/gemini-2.5-flash, projects/p/…/models/gemini-2.5-pro
        for name in (model, short):
            if fits := [key for key in self.own if _begins(name, key)]:
                return self.own[max(fits, key=len)]
        fits = [key for key in _listed() if short.startswith(key) and _SAME_MODEL.fullmatch(short[len(key) :])]
        return _listed()[max(fits, key=len)] if fits else None

    def require(self, models: Iterable[str], max_cost: float | None) -> None:
        """Raise ConfigError when a limit in USD is set and a model has no price: it could not be held."""
        if max_cost is None:
            return
        if unknown := sorted({model for model in models if self.find(model) is None}):
            raise ConfigError(
                f"max_cost is {max_cost:g} USD, and there is no price of {', '.join(unknown)}",
                hint=f"set its price (USD per million tokens): {price_hint(unknown[0])}",
            )


def price_hint(model: str) -> str:
    """How to price a model, as agent-eval.yaml has it."""
    return f'llm: {{prices: {{"{model}": {{input: 0.30, output: 2.50}}}}}}'


def _begins(name: str, key: str) -> bool:
    return name == key or (name.startswith(key) and bool(_BOUNDARY.match(name[len(key) :])))


# Tokens of one judge call where no earlier run says: a prompt with a short conversation, an answer with its reason.
_INPUT = 1_500
_OUTPUT = 600
_CENT = 0.01


@dataclass(frozen=True, slots=True)
class PlannedCalls:
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


def estimate(planned: Iterable[PlannedCalls], prices: Prices) -> Estimate:
    """What these come to."""
    total = Estimate()
    for calls in planned:
        sent = _INPUT if calls.input_tokens is None else calls.input_tokens
        answered = _OUTPUT if calls.output_tokens is None else calls.output_tokens
        price = prices.find(calls.model)
        usd = None if price is None else price.usd(LlmUsage(round(sent), round(answered)))
        likely, most = calls.questions * calls.likely_samples, calls.questions * calls.samples
        total = Estimate(
            total.calls + likely,
            total.most_calls + most,
            total.tokens + round(likely * (sent + answered)),
            total.most_tokens + round(most * (sent + answered)),
            None if total.usd is None or usd is None else total.usd + usd * likely,
            None if total.most_usd is None or usd is None else total.most_usd + usd * most,
        )
    return total
