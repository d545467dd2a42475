"""Prices of models: the list prices in prices.json, extended and overridden by the configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Final

from agent_eval_action.errors import ConfigError
from agent_eval_action.llm.client import LlmUsage

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """USD per million tokens.

    ``cached_input`` None: same as ``input``. ``long`` applies to calls with more than ``above`` input tokens.
    """

    input: float
    output: float
    cached_input: float | None = None
    above: int | None = None
    long: Price | None = None

    def usd(self, usage: LlmUsage) -> float:
        """The cost of a call in USD; unreported tokens count as 0."""
        sent = usage.input_tokens or 0
        if self.long is not None and self.above is not None and sent > self.above:
            return self.long.usd(usage)
        cached = min(sent, usage.cached_input_tokens or 0)
        reused = self.input if self.cached_input is None else self.cached_input
        dear = (sent - cached) * self.input + cached * reused + (usage.output_tokens or 0) * self.output
        return dear / _MILLION


@cache
def _price_table() -> tuple[str, dict[str, Price]]:
    table = json.loads(files(__package__).joinpath("prices.json").read_text("utf-8"))
    prices = {}
    for model, entry in table["models"].items():
        long = entry.pop("long", None)
        prices[model] = Price(**entry, long=Price(**long) if long else None)
    return table["listed_on"], prices


def listed_on() -> str:
    """The date of the price table. A new table changes the scores of cost_usd_v1 for the same calls."""
    return _price_table()[0]


# gemini-2.5-flash-preview-09-2025 has the price of gemini-2.5-flash; gpt-5-pro is not gpt-5.
_SAME_MODEL: Final = re.compile(r"(?:[-@:](?:\d{2,8}|preview|exp|experimental|latest|stable|default))*")
_BOUNDARIES: Final = ("", *"-@:/")  # what may follow a configured name in a model's name


@dataclass(frozen=True)
class Prices:
    """Prices by model: ``own`` from the configuration, then the table. The longest matching name wins."""

    own: Mapping[str, Price] = field(default_factory=dict)

    def find(self, model: str) -> Price | None:
        """The price of a model, by its configured or its reported name; None if unknown."""
        short = model.rpartition("/")[2]  # openai/gpt-5, models/gemini-2.5-flash, projects/p/…/models/gemini-2.5-pro
        for name in (model, short):
            if fits := [key for key in self.own if name.startswith(key) and name[len(key) :][:1] in _BOUNDARIES]:
                return self.own[max(fits, key=len)]
        listed = _price_table()[1]
        fits = [key for key in listed if short.startswith(key) and _SAME_MODEL.fullmatch(short[len(key) :])]
        return listed[max(fits, key=len)] if fits else None

    def require(self, models: Iterable[str], max_cost: float | None) -> None:
        """Raise ConfigError if a limit in USD is set and a model has no price, since it could not be enforced."""
        if max_cost is None:
            return
        if unknown := sorted({model for model in models if self.find(model) is None}):
            raise ConfigError(
                f"max_cost is {max_cost:g} USD, and there is no price of {', '.join(unknown)}",
                hint=f"set its price (USD per million tokens): {price_hint(unknown[0])}",
            )


def price_hint(model: str) -> str:
    """Show how to set a model's price in agent-eval.yaml."""
    return f'llm: {{prices: {{"{model}": {{input: 0.30, output: 2.50}}}}}}'


# Tokens of one judge call: a prompt with a short conversation, an answer with its reason.
_CALL = LlmUsage(1_500, 600)
_CENT = 0.01


@dataclass(slots=True)
class Estimate:
    """Likely and maximal number and cost of planned answers. USD is None if a model has no price.

    ``calls`` counts answers; one request may return several.
    """

    prices: Prices
    calls: int = 0
    most_calls: int = 0
    usd: float | None = 0.0
    most_usd: float | None = 0.0

    def add(self, model: str, questions: int, samples: int = 1) -> None:
        """Add questions with up to ``samples`` votes each; usually a bare majority decides, such as 3 of 5."""
        likely, most = questions * (samples // 2 + 1), questions * samples
        self.calls += likely
        self.most_calls += most
        price = self.prices.find(model)
        if price is None or self.usd is None or self.most_usd is None:
            self.usd = self.most_usd = None
        else:
            self.usd += price.usd(_CALL) * likely
            self.most_usd += price.usd(_CALL) * most

    @property
    def sentence(self) -> str:
        """A line for the log; "" if no judge is asked."""
        if not self.most_calls:
            return ""
        if self.usd is None or self.most_usd is None:
            cost = "at unknown cost (llm.prices)"
        elif self.most_usd < _CENT:
            cost = "less than $0.01"
        else:
            cost = (f"about ${self.usd:,.2f}, " if self.usd >= _CENT else "") + f"at most ${self.most_usd:,.2f}"
        tokens = _CALL.total or 0
        return (
            f"judges: about {self.calls:,} answers and {self.calls * tokens:,} tokens, at most {self.most_calls:,} and "
            f"{self.most_calls * tokens:,}; {cost}"
        )
