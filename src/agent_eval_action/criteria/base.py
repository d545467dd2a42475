"""The base classes of criteria: what a criterion looks at, how it scores, and which changed option asks for less."""

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
    from agent_eval_action.llm.client import Llm
    from agent_eval_action.llm.pricing import Prices

# `Criterion` is a public name: what is imported inside functions here would double the time of its import.
# ruff: noqa: PLC0415

_TURNS_SHOWN = 3

ExpectedCalls = Literal["ignored", "matched", "exact"]
"""How a criterion compares tool calls with those a case expects; *exact*: one more of them is a difference too."""

Relaxed = Callable[[Any, Any], bool]
"""Whether the second value of an option asks for less than the first."""


@dataclass(frozen=True, slots=True)
class Relaxation:
    """An option whose change asks for less, or whose direction is unknown. ``lost``: entries that are gone."""

    option: str
    old: Any
    new: Any
    lost: tuple[str, ...] = ()


def lower(old: Any, new: Any) -> bool:
    """A smaller number asks for less."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (old, new))
    return not numbers or new < old


def later_in(*strictest_first: str) -> Relaxed:
    """A value that stands later in this list asks for less."""

    def relaxed(old: Any, new: Any) -> bool:
        known = old in strictest_first and new in strictest_first
        return not known or strictest_first.index(new) > strictest_first.index(old)

    return relaxed


def becomes(value: Any) -> Relaxed:
    """Only this value asks for less."""
    return lambda old, new: old != value and new == value


def relaxations(
    old: Mapping[str, Any], new: Mapping[str, Any], declared: Mapping[str, Relaxed], *, free: bool = False
) -> tuple[Relaxation, ...]:
    """Every option that asks for less in ``new``; one inside another is ``judge_model_options.num_samples``.

    A side that records no option at all says nothing of them, as another tool's results; with ``free`` options,
    which may be given or not, it has none.
    """
    if not free and not (old and new):
        return ()
    then, now = _flat(old), _flat(new)
    found = []
    for name in sorted(then.keys() | now.keys()):
        before, after = then.get(name), now.get(name)
        if before == after or (name in declared and not declared[name](before, after)):
            continue
        if not (isinstance(before, list | tuple) and isinstance(after, list | tuple)):
            found.append(Relaxation(name, before, after))
        elif lost := {*map(_text, before)} - {*map(_text, after)}:  # one more entry asks for more
            found.append(Relaxation(name, before, after, tuple(sorted(lost))))
    return tuple(found)


def _flat(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with those inside them; ``weights`` and a judge's own configuration stay whole."""
    judge = options.get("judge_model_options")
    if not isinstance(judge, Mapping):
        return dict(options)
    whole = {name: value for name, value in options.items() if name != "judge_model_options"}
    return whole | {f"judge_model_options.{key}": value for key, value in judge.items()}


def _text(entry: Any) -> str:
    """An entry of a list, identified by its content."""
    content = entry.get("rubric_content") if isinstance(entry, Mapping) else None
    text = content.get("text_property") if isinstance(content, Mapping) else None
    return text if isinstance(text, str) else json.dumps(entry, sort_keys=True, default=str)


class Functions(Protocol):
    """The user's own metric functions, in the user's interpreter and in no process the agent runs in."""

    async def call(self, function: str, arguments: Mapping[str, Any], source: str = "") -> FunctionReply:
        """Call ``package.module.function``, or ``evaluate`` of ``source``, which goes by the name ``function``.

        Never raises; the reply has the error.
        """
        ...


@dataclass(frozen=True, slots=True)
class ScoringContext:
    """The resources that a criterion may use; None: the run has none."""

    llm: Llm | None = None
    functions: Functions | None = None
    prices: Prices | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """What a criterion looks at: the case as written and what the agent did, and what to measure it with.

    ``actual`` has one invocation per turn made, of a fixed conversation that is over as many as the case has.
    """

    case: EvalCase
    actual: tuple[Invocation, ...]
    final_session_state: dict[str, Any] | None = None
    repeat: int = 0
    context: ScoringContext = field(default_factory=ScoringContext)

    def unmeasurable(self, *, by_events: bool = False) -> str:
        """Why a criterion cannot score this attempt: its turns are not those of the case. Empty when it can.

        One that scores ``by_events`` cannot where events of a turn may be missing either.
        """
        if self.case.conversation is not None and len(self.case.conversation) != len(self.actual):
            return f"the agent made {len(self.actual)} of the {len(self.case.conversation)} turns of the case"
        if by_events and (why := next((turn.unseen for turn in self.actual if turn.unseen), "")):
            return why
        return "" if self.actual else "the case has no turns: nothing to measure"


class Criterion(AdkModel, abc.ABC):
    """Base of every criterion. Options are fields, in snake_case or camelCase.

    ``threshold`` None: reported and compared, but nothing to meet (allowed for ``goal`` minimize, and where
    ``needs_threshold`` is False). ``waits``: scoring waits for a model or a function, so that other attempts go on
    meanwhile. ``by_events``: it looks at tool calls or other events, so it scores no turn of which some may be missing.
    """

    name: ClassVar[str]
    goal: ClassVar[Goal] = "maximize"
    unit: ClassVar[Unit] = "score"
    scale: ClassVar[tuple[float, float]] = (0.0, 1.0)
    needs_reference: ClassVar[bool] = False
    needs_threshold: ClassVar[bool] = True
    waits: ClassVar[bool] = False
    by_events: ClassVar[bool] = False
    scoring_version: ClassVar[str] = "1"
    relaxed_when: ClassVar[Mapping[str, Relaxed]] = {}  # an option that is not named may ask for less at any change

    threshold: float | None = None

    def version(self) -> str:
        """What decides a score beside the options, prompts included: scores of other versions do not compare."""
        return self.scoring_version

    def models(self) -> tuple[str, ...]:
        """The models it will ask, as configured: their credentials are looked for before anything is spent."""
        return ()

    def functions(self) -> tuple[str, ...]:
        """The user's own functions that it will call, by the names that ``Functions`` has them by."""
        return ()

    @classmethod
    def expected_calls(cls, _: CriterionInfo) -> ExpectedCalls:
        """How the criterion with these options compares tool calls with those a case expects."""
        return "ignored"

    @classmethod
    def relaxes(cls, old: CriterionInfo, new: CriterionInfo) -> tuple[Relaxation, ...]:
        """The options (without the threshold) that ask for less in ``new``, or whose direction is unknown."""
        return relaxations(old.options, new.options, cls.relaxed_when)

    def check(self, case: EvalCase) -> str:
        """Why this case can never be scored, known from the files alone; "" when it can."""
        del case
        return ""

    def check_cases(self, cases: Iterable[EvalCase]) -> str:
        """Which of the options fits none of these cases, in a sentence; "" when all do."""
        del cases
        return ""

    def refuse(self, sample: Sample) -> CriterionScore | None:
        """The result without a score if this case cannot be scored; known before the first turn."""
        if not self.needs_reference or sample.case.conversation is not None:
            return None
        reason = f"{self.name} needs reference answers, and the user of this case is simulated"
        return self.no_score(ScoreStatus.NOT_APPLICABLE, reason)

    async def score(self, sample: Sample) -> CriterionScore:
        """Score one attempt. Never raises: a failure becomes the status error."""
        if refused := self.refuse(sample):
            return refused
        if reason := sample.unmeasurable(by_events=self.by_events):
            return self.no_score(ScoreStatus.ERROR, reason)
        return await self.score_case(sample)

    @abc.abstractmethod
    async def score_case(self, sample: Sample) -> CriterionScore:
        """Score an attempt that is not refused and has all of its turns."""

    def meets(self, score: float) -> bool | None:
        """Whether a score meets the threshold in the criterion's direction; None without one."""
        from agent_eval_action.results.pair_scores import meets

        return None if self.threshold is None else meets(score, self.threshold, self.goal)

    def result(self, score: float, **fields: Any) -> CriterionScore:
        """A scored result with ``passed`` filled in."""
        passed = self.meets(score)
        return CriterionScore(criterion=self.name, status=ScoreStatus.SCORED, score=score, passed=passed, **fields)

    def no_score(self, status: ScoreStatus, reason: str, **fields: Any) -> CriterionScore:
        """A result without a score, and why."""
        return CriterionScore(criterion=self.name, status=status, reason=reason, **fields)

    def unscored(self, turn: int, reason: str, status: ScoreStatus = ScoreStatus.ERROR, **fields: Any) -> TurnScore:
        """A turn without a score, and why."""
        return TurnScore(turn=turn, status=status, reason=reason, **fields)


class TurnCriterion(Criterion, abc.ABC):
    """Scores each turn on its own; the case's score is the mean over its turns.

    Where it waits for a model, a turn is scored as soon as it is there. A turn without a score voids the case, where
    ADK takes the mean of the others, so that an outage can pass a case; turns it does not apply to are left out.
    """

    @abc.abstractmethod
    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        """The score of one turn, counted from 0; what ``sample.actual`` has beyond it must not count."""

    async def score_case(self, sample: Sample) -> CriterionScore:
        numbers = range(len(sample.actual))
        if self.waits:
            import asyncio

            turns = await asyncio.gather(*(self.score_turn(sample, turn) for turn in numbers))
        else:
            turns = [await self.score_turn(sample, turn) for turn in numbers]
        return await self.aggregate(sample, turns)

    async def aggregate(self, sample: Sample, turns: Sequence[TurnScore]) -> CriterionScore:
        """The case's score from those of all its turns, in order, with the reasons of the turns that lost something."""
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
        """The case's score from those of its turns; here their mean.

        Added one by one, as ADK does: sum() of Python 3.12 compensates, and the last bit decides at a threshold.
        """
        total = 0.0
        for score in scores:
            total += score
        return total / len(scores)


def worst_reasons(turns: Sequence[TurnScore]) -> str:
    """The reasons of the first few of these turns, each with its number from 1."""
    shown = [f"turn {turn.turn + 1}: {turn.reason}" for turn in turns[:_TURNS_SHOWN]]
    rest = len(turns) - len(shown)
    return "; ".join(shown) + (f"; and {plural(rest, 'more turn')}" if rest else "")


def _checked_pattern(pattern: str) -> str:
    if problem := pattern_problem(pattern):
        raise ValueError(problem[0])
    return pattern


RegexPattern = Annotated[str, AfterValidator(_checked_pattern)]
"""A user's pattern as an option, in RE2's syntax; ``matches`` searches it."""


def matches(pattern: str, text: str) -> bool:
    """Whether a ``RegexPattern`` occurs in a text; in linear time."""
    from agent_eval_action.llm.client import sendable

    return compile_pattern(pattern).search(sendable(text)) is not None
