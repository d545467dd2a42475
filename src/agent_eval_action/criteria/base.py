"""Base classes of criteria: their input, how they score, and which option changes relax them."""

from __future__ import annotations

import abc
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

from pydantic import AfterValidator

from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.results.base import AdkModel
from agent_eval_action.results.decision import Unit
from agent_eval_action.results.evalset import EvalCase, FunctionReply, Invocation
from agent_eval_action.results.redaction import compile_pattern, pattern_problem
from agent_eval_action.results.run_result import CriterionInfo, CriterionScore, Goal, ScoreStatus, TurnScore

if TYPE_CHECKING:
    from agent_eval_action.llm.budget import Prices
    from agent_eval_action.llm.client import Llm

# `Criterion` is public: importing these modules at the top would double the time its import takes.
# ruff: noqa: PLC0415

_TURNS_SHOWN = 3

ExpectedCalls = Literal["ignored", "matched", "exact"]
"""How a criterion compares tool calls with the expected ones; with *exact*, an extra call is a difference too."""

Relaxed = Callable[[Any, Any], bool]
"""True if the second value of an option is more lenient than the first."""


@dataclass(frozen=True, slots=True)
class Relaxation:
    """An option whose change makes a criterion more lenient, or may. ``lost``: removed list entries."""

    option: str
    old: Any
    new: Any
    lost: tuple[str, ...] = ()


def lower(old: Any, new: Any) -> bool:
    """A smaller number is more lenient."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (old, new))
    return not numbers or new < old


def later_in(*strictest_first: str) -> Relaxed:
    """A value later in this list is more lenient."""

    def relaxed(old: Any, new: Any) -> bool:
        known = old in strictest_first and new in strictest_first
        return not known or strictest_first.index(new) > strictest_first.index(old)

    return relaxed


def becomes(value: Any) -> Relaxed:
    """Only a change to this value is more lenient."""
    return lambda old, new: old != value and new == value


def relaxations(
    old: Mapping[str, Any], new: Mapping[str, Any], declared: Mapping[str, Relaxed]
) -> tuple[Relaxation, ...]:
    """Every option that is more lenient in ``new``; nested ones are named like ``judge_model_options.num_samples``."""
    then, now = dict(old), dict(new)
    for options in (then, now):
        if isinstance(judge := options.get("judge_model_options"), Mapping):
            options.update({f"judge_model_options.{key}": value for key, value in judge.items()})
            del options["judge_model_options"]
    found = []
    for name in sorted(then.keys() | now.keys()):
        before, after = then.get(name), now.get(name)
        if before == after or (name in declared and not declared[name](before, after)):
            continue
        if not (isinstance(before, list | tuple) and isinstance(after, list | tuple)):
            found.append(Relaxation(name, before, after))
        elif lost := {*map(_text, before)} - {*map(_text, after)}:  # an added entry is stricter
            found.append(Relaxation(name, before, after, tuple(sorted(lost))))
    return tuple(found)


def _text(entry: Any) -> str:
    """The text that identifies a list entry: a rubric's text, else JSON."""
    content = entry.get("rubric_content") if isinstance(entry, Mapping) else None
    text = content.get("text_property") if isinstance(content, Mapping) else None
    return text if isinstance(text, str) else json.dumps(entry, sort_keys=True, default=str)


class Functions(Protocol):
    """The user's metric functions. They run in the user's interpreter, but never in an agent's process."""

    async def call(self, function: str, arguments: Mapping[str, Any], source: str = "") -> FunctionReply:
        """Call ``package.module.function``; if ``source`` is given, call its ``evaluate`` under this name instead.

        Never raises; errors are in the reply.
        """
        ...


@dataclass(frozen=True, slots=True)
class ScoringContext:
    """Resources that criteria may use; None where the run does not have them."""

    llm: Llm | None = None
    functions: Functions | None = None
    prices: Prices | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """The input of a criterion: the case, what the agent did, and the resources to score it with.

    ``actual`` has one invocation per turn that was run; a finished fixed conversation has as many as the case.
    """

    case: EvalCase
    actual: tuple[Invocation, ...]
    final_session_state: dict[str, Any] | None = None
    repeat: int = 0
    context: ScoringContext = field(default_factory=ScoringContext)

    def unmeasurable(self, *, by_events: bool = False) -> str:
        """Why this attempt cannot be scored, "" if it can: its turns are not those of the case.

        With ``by_events``, turns that may lack events cannot be scored either.
        """
        if self.case.conversation is not None and len(self.case.conversation) != len(self.actual):
            return f"the agent made {len(self.actual)} of the {len(self.case.conversation)} turns of the case"
        if by_events and (why := next((turn.unseen for turn in self.actual if turn.unseen), "")):
            return why
        return "" if self.actual else "the case has no turns: nothing to measure"


class Criterion(AdkModel, abc.ABC):
    """Base of every criterion. Options are fields, in snake_case or camelCase.

    Without a ``threshold`` scores are reported and compared, but cannot fail (allowed for ``goal`` minimize, and if
    ``needs_threshold`` is False). ``waits``: scoring waits for a model or a function while other attempts go on.
    ``by_events``: it reads tool calls or other events, so it does not score turns that may lack some.
    """

    name: ClassVar[str]
    goal: ClassVar[Goal] = "maximize"
    unit: ClassVar[Unit] = "score"
    scale: ClassVar[tuple[float, float]] = (0.0, 1.0)
    needs_reference: ClassVar[bool] = False
    needs_threshold: ClassVar[bool] = True
    waits: ClassVar[bool] = False
    by_events: ClassVar[bool] = False
    compared_calls: ClassVar[ExpectedCalls] = "ignored"
    scoring_version: ClassVar[str] = "1"
    relaxed_when: ClassVar[Mapping[str, Relaxed]] = {}  # any change of an option not listed counts as relaxed

    threshold: float | None = None

    def version(self) -> str:
        """Version of everything but the options that decides a score, prompts included.

        Scores of different versions are not comparable.
        """
        return self.scoring_version

    def models(self) -> tuple[str, ...]:
        """The models it will call, as configured; the run checks their credentials before it spends anything."""
        return ()

    def functions(self) -> tuple[str, ...]:
        """The user's functions that it will call, by their names in ``Functions``."""
        return ()

    @classmethod
    def expected_calls(cls, _: CriterionInfo) -> ExpectedCalls:
        """How the criterion with these options compares tool calls with the expected ones."""
        return cls.compared_calls

    @classmethod
    def relaxes(cls, old: CriterionInfo, new: CriterionInfo) -> tuple[Relaxation, ...]:
        """The options (without the threshold) that are more lenient in ``new``, or may be."""
        known = old.options and new.options  # results of other tools record no options
        return relaxations(old.options, new.options, cls.relaxed_when) if known else ()

    def check(self, case: EvalCase) -> str:
        """Why this case can never be scored, judged from the files alone; "" if it can."""
        del case
        return ""

    def check_cases(self, cases: Iterable[EvalCase]) -> str:
        """A sentence about an option that fits none of these cases; "" if all options fit."""
        del cases
        return ""

    def refuse(self, sample: Sample) -> CriterionScore | None:
        """A result without a score if this case cannot be scored, decided before the first turn; else None."""
        if not self.needs_reference or sample.case.conversation is not None:
            return None
        reason = f"{self.name} needs reference answers, and the user of this case is simulated"
        return self.no_score(ScoreStatus.NOT_APPLICABLE, reason)

    async def score(self, sample: Sample) -> CriterionScore:
        """Score one attempt. Never raises: failures become the status error."""
        if refused := self.refuse(sample):
            return refused
        if reason := sample.unmeasurable(by_events=self.by_events):
            return self.no_score(ScoreStatus.ERROR, reason)
        return await self.score_case(sample)

    @abc.abstractmethod
    async def score_case(self, sample: Sample) -> CriterionScore:
        """Score an attempt that was not refused and has all its turns."""

    def meets(self, score: float) -> bool | None:
        """Whether a score meets the threshold; None without a threshold."""
        from agent_eval_action.results.pair_scores import meets

        return None if self.threshold is None else meets(score, self.threshold, self.goal)

    def result(self, score: float, **fields: Any) -> CriterionScore:
        """A scored result with ``passed`` filled in."""
        passed = self.meets(score)
        return CriterionScore(criterion=self.name, status=ScoreStatus.SCORED, score=score, passed=passed, **fields)

    def no_score(self, status: ScoreStatus, reason: str, **fields: Any) -> CriterionScore:
        return CriterionScore(criterion=self.name, status=status, reason=reason, **fields)

    def unscored(self, turn: int, reason: str, status: ScoreStatus = ScoreStatus.ERROR, **fields: Any) -> TurnScore:
        return TurnScore(turn=turn, status=status, reason=reason, **fields)


class TurnCriterion(Criterion, abc.ABC):
    """Scores each turn on its own; the case's score is the mean over its turns.

    Criteria that wait for a model score each turn as soon as it arrives.
    If one turn fails to get a score, so does the case: ADK averages the other turns, so an outage can pass a case.
    Turns that the criterion does not apply to are left out of the mean.
    """

    @abc.abstractmethod
    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        """Score turn ``turn``, counted from 0. Later turns in ``sample.actual`` must not affect the score."""

    async def score_case(self, sample: Sample) -> CriterionScore:
        numbers = range(len(sample.actual))
        if self.waits:
            import asyncio

            turns = await asyncio.gather(*(self.score_turn(sample, turn) for turn in numbers))
        else:
            turns = [await self.score_turn(sample, turn) for turn in numbers]
        return await self.aggregate(sample, turns)

    async def aggregate(self, sample: Sample, turns: Sequence[TurnScore]) -> CriterionScore:
        """The case's score from the scores of all turns, in order, with the reasons of turns below the best score."""
        del sample
        lost = [turn for turn in turns if turn.status is ScoreStatus.ERROR]
        scored = [turn for turn in turns if turn.score is not None]
        if lost or not scored:
            status = ScoreStatus.ERROR if lost else ScoreStatus.NOT_APPLICABLE
            return self.no_score(status, worst_reasons(lost or turns), turns=tuple(turns))
        best = self.scale[1] if self.goal == "maximize" else self.scale[0]
        low = [turn for turn in scored if turn.score != best]
        score = self.mean([turn.score or 0.0 for turn in scored])
        return self.result(score, reason=worst_reasons(low or scored), turns=tuple(turns))

    def mean(self, scores: Sequence[float]) -> float:
        """The case's score from its turns' scores; here their mean.

        Adds one by one like ADK: Python 3.12's sum() compensates for rounding, and the last bit decides at a threshold.
        """
        total = 0.0
        for score in scores:
            total += score
        return total / len(scores)


def worst_reasons(turns: Sequence[TurnScore]) -> str:
    """The reasons of the first few turns, numbered from 1."""
    shown = [f"turn {turn.turn + 1}: {turn.reason}" for turn in turns[:_TURNS_SHOWN]]
    rest = len(turns) - len(shown)
    return "; ".join(shown) + (f"; and {plural(rest, 'more turn')}" if rest else "")


def _checked_pattern(pattern: str) -> str:
    if problem := pattern_problem(pattern):
        raise ValueError(problem[0])
    return pattern


RegexPattern = Annotated[str, AfterValidator(_checked_pattern)]
"""An option that holds a pattern in RE2's syntax; ``matches`` searches for it."""


def matches(pattern: str, text: str) -> bool:
    """Whether a ``RegexPattern`` occurs in a text; takes linear time."""
    from agent_eval_action.llm.client import sendable

    return compile_pattern(pattern).search(sendable(text)) is not None
