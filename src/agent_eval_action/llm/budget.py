"""Count model calls, tokens and cost by purpose, and enforce the run's limits. Prices: prices.json and the config."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final

from agent_eval_action.config.models import Settings
from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.errors import ConfigError
from agent_eval_action.llm.client import (
    Llm,
    LlmError,
    LlmErrorKind,
    LlmReply,
    LlmRequest,
    LlmUsage,
    reported_usage,
)
from agent_eval_action.llm.providers import provider_of
from agent_eval_action.results.evalset import Invocation
from agent_eval_action.results.run_result import ModelUse


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
        return ((sent - cached) * self.input + cached * reused + (usage.output_tokens or 0) * self.output) / 1_000_000


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


AGENT = "agent"
"""The purpose that agents' calls are counted under."""

SIMULATED_USER = "user_simulator"
"""The purpose of simulated users' calls. They run inside attempts that have already reserved their own cost."""

# Bytes of English UTF-8 per token according to Google (ai.google.dev/gemini-api/docs/tokens); other languages need more
# bytes and more tokens.
_BYTES = 4
_ANSWER = 400  # tokens of a judge's answer with its rationale
_THINKING = 800  # tokens that thinking adds, billed as output

# The server may have billed these, by an unknown amount.
_MAY_COST = frozenset({LlmErrorKind.EMPTY, LlmErrorKind.TIMEOUT, LlmErrorKind.BLOCKED})


def _tokens(size: int) -> int:
    return -(-size // _BYTES)


def estimated_usage(request: LlmRequest) -> LlmUsage:
    """Estimate the tokens of a request and its answer; ``max_output_tokens`` bounds the answer."""
    texts = [request.system, *(message.text for message in request.messages)]
    if request.schema is not None:
        texts.append(json.dumps(request.schema))
    bound, likely = request.options.get("max_output_tokens"), _ANSWER + _THINKING
    if isinstance(bound, int) and not isinstance(bound, bool):
        likely = min(likely, bound)
    return LlmUsage(sum(_tokens(len(text.encode("utf-8", "replace"))) for text in texts), likely * request.candidates)


@dataclass(frozen=True, slots=True)
class AgentCall:
    """A model call by an agent. ``model`` is "" if its event does not name it.

    ``estimate`` is the usage with missing counts estimated from the lengths of request and answer.
    """

    model: str
    usage: LlmUsage
    estimate: LlmUsage


def agent_calls(turns: Sequence[Invocation]) -> Iterator[AgentCall]:
    """The model calls in these turns."""
    sent = 0
    for turn in turns:
        sent += _size(turn.user_content)
        for event in turn.events:
            size = _size(event.content)
            if event.is_model_call:
                usage = reported_usage(event.usage_metadata or {})
                # the final answer is not among the events
                size = size or _size(turn.final_response)
                yield AgentCall(event.model_version or "", usage, usage.or_else(LlmUsage(_tokens(sent), _tokens(size))))
            sent += size


def _size(content: Any) -> int:
    return 0 if content is None else len(content.model_dump_json(exclude_none=True).encode())


@dataclass(frozen=True, slots=True)
class SpendingLimits:
    """Limits for the whole run, all agents and judges together; None: no limit. ``usd`` is by the price table."""

    calls: int | None = None
    tokens: int | None = None
    usd: float | None = None


@dataclass(frozen=True, slots=True)
class Spend:
    """Calls, tokens and dollars, either spent or reserved for calls in flight."""

    calls: int = 0
    tokens: int = 0
    usd: float = 0.0

    def __add__(self, other: Spend) -> Spend:
        return Spend(self.calls + other.calls, self.tokens + other.tokens, self.usd + other.usd)

    def __sub__(self, other: Spend) -> Spend:
        return Spend(self.calls - other.calls, self.tokens - other.tokens, self.usd - other.usd)


@dataclass
class Meter:
    """Counts the calls of every model and enforces the run's limits.

    Usage that is not reported is estimated for the limits and counted as unreported, never as zero.
    """

    limits: SpendingLimits = SpendingLimits()
    prices: Prices = field(default_factory=Prices)
    spent: Spend = Spend()
    reserved: Spend = Spend()
    _counts: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    _unpriced: str = ""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def for_run(cls, settings: Settings) -> Meter:
        """The meter that agents and judges of a run share."""
        limits = SpendingLimits(settings.max_calls, settings.max_tokens, settings.max_cost)
        return cls(limits, Prices({model: Price(**price.model_dump()) for model, price in settings.llm.prices.items()}))

    def exhausted_reason(self) -> str:
        """A sentence about the limit that is reached; "" if none is."""
        limits = self.limits
        if limits.calls is not None and self.spent.calls >= limits.calls:
            return f"the limit of {plural(limits.calls, 'model call')} was reached"
        if limits.tokens is not None and self.spent.tokens >= limits.tokens:
            return f"the limit of {plural(limits.tokens, 'token')} was reached"
        if limits.usd is not None and self._unpriced:
            hint = price_hint(self._unpriced)
            return f"max_cost is set, and {self._unpriced} was used, which has no price ({hint})"
        if limits.usd is not None and self.spent.usd >= limits.usd:
            return f"the limit of {limits.usd:,g} USD was reached"
        return ""

    async def reserve(self, estimate: Spend, *, inside: bool = False) -> str:
        """Reserve a call's cost; waits while calls in flight may use up the limit.

        ``inside``: the caller is part of something that holds a reservation, so waiting for that would deadlock.
        Returns the limit that is reached, or "" if the call may start; then ``settle`` must follow.
        """
        while not (reached := self.exhausted_reason()):
            soon = zip(astuple(self.spent + self.reserved), astuple(self.limits), strict=True)
            room = all(limit is None or amount < limit for amount, limit in soon)
            if inside or room or not self.reserved.calls:  # nothing would end a wait; sums of dollars are inexact
                self.reserved += estimate
                return ""
            self._changed.clear()
            await self._changed.wait()
        return reached

    def settle(self, estimate: Spend, spent: Spend = Spend()) -> None:
        """Release a reservation and count the actual cost."""
        self.reserved -= estimate
        self.spent += spent
        self._changed.set()

    def expected(self, request: LlmRequest) -> Spend:
        return self._spend(request.model, estimated_usage(request))

    def count(self, request: LlmRequest, answer: LlmReply | LlmError) -> Spend:
        """Count an answered or failed call; returns its cost."""
        if isinstance(answer, LlmReply):
            self._count_call(request.purpose, request.model, answer.usage)
            answered = "".join((answer.text, *answer.more)).encode("utf-8", "replace")
            length = LlmUsage(output_tokens=max(1, _tokens(len(answered))))
            return self._spend(request.model, answer.usage.or_else(length).or_else(estimated_usage(request)))
        if answer.usage is not None and answer.usage.total:
            self._count_call(request.purpose, request.model, answer.usage, failed=1)
            return self._spend(request.model, answer.usage)
        if answer.kind in _MAY_COST:
            self._count_call(request.purpose, request.model, LlmUsage(), failed=1)
            return self.expected(request)
        self._add(request.purpose, request.model, calls=1, failed=1)
        return Spend(calls=1)

    def count_abandoned(self, request: LlmRequest) -> None:
        """Count a call that was cancelled in flight: the server still works and bills an unknown amount."""
        self._count_call(request.purpose, request.model, LlmUsage(), failed=1)
        self.spent += self.expected(request)

    def count_cached(self, request: LlmRequest) -> None:
        """Count an answer from the cache, which is not a call."""
        self._add(request.purpose, request.model, cached=1)

    def count_agent(self, calls: Iterable[AgentCall], fallback: str = "") -> Spend:
        """Count an agent's calls and return their sum. ``fallback``: the model of calls that do not name one."""
        total = Spend()
        for call in calls:
            model = call.model or fallback
            self._count_call(AGENT, model, call.usage)
            total += self._spend(model or "a model that does not say its name", call.estimate)
        return total

    def add_uses(self, uses: Iterable[ModelUse]) -> None:
        """Add the usage of other jobs of the same run, which share its limits."""
        for use in uses:
            self._add(use.purpose, use.model, **use.counts)
            self.spent += Spend(use.calls, use.input_tokens + use.output_tokens, use.usd or 0.0)

    def uses(self) -> tuple[ModelUse, ...]:
        """All usage so far, by purpose and model."""
        return tuple(
            ModelUse(purpose=purpose, provider=provider, model=model, **counts)
            for (purpose, provider, model), counts in sorted(self._counts.items(), key=lambda item: item[0])
        )

    def usd(self) -> float | None:
        """Dollars of all calls with a price and reported tokens; None if there are none."""
        known = [counts["usd"] for counts in self._counts.values() if "usd" in counts]
        return round(sum(known), 6) if known else None

    def _spend(self, model: str, usage: LlmUsage) -> Spend:
        price = self.prices.find(model)
        if price is None and not self._unpriced:
            self._unpriced = model
        tokens = (usage.input_tokens or 0) + (usage.output_tokens or 0)
        return Spend(1, tokens, price.usd(usage) if price is not None else 0.0)

    def _count_call(self, purpose: str, model: str, usage: LlmUsage, *, failed: int = 0) -> None:
        price = self.prices.find(model)
        reported = usage.total is not None
        cost = {"usd": price.usd(usage)} if price is not None and reported else {"unpriced": 1}
        tokens = {"input_tokens": usage.input_tokens or 0, "output_tokens": usage.output_tokens or 0}
        self._add(purpose, model, calls=1, failed=failed, calls_without_usage=int(not reported), **tokens, **cost)

    def _add(self, purpose: str, model: str, **counted: float) -> None:
        provider = AGENT if purpose == AGENT else provider_of(model)
        counts = self._counts.setdefault((purpose, provider, model), {})
        for name, number in counted.items():
            counts[name] = counts.get(name, 0) + number


@dataclass(frozen=True)
class Budgeted:
    """An ``Llm`` that makes no more calls once a limit is reached."""

    inner: Llm
    meter: Meter

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        """Return a reply, or an error if a limit is reached."""
        estimate = self.meter.expected(request)
        if reached := await self.meter.reserve(estimate, inside=request.purpose == SIMULATED_USER):
            return LlmError(LlmErrorKind.BUDGET, reached)
        spent = Spend()
        try:
            answer = await self.inner.generate(request)
            spent = self.meter.count(request, answer)
        finally:
            self.meter.settle(estimate, spent)
        return answer
