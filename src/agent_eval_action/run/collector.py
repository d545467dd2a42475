"""Collect finished attempts into a RunResult: scores in full, turns as excerpts of limited size.

An excerpt includes the digest of what it leaves out, so that two different huge values never look equal.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from agent_eval_action.llm.budget import Meter
from agent_eval_action.results.base import CaseKey, json_digest, text_digest
from agent_eval_action.results.decision import CallBrief, TurnBrief
from agent_eval_action.results.evalset import FunctionCall, Invocation
from agent_eval_action.results.run_result import (
    ArmName,
    Attempt,
    AttemptError,
    AttemptSummary,
    CaseResult,
    CriterionScore,
    ErrorKind,
    RunResult,
    ScoreStatus,
    SetResult,
    Totals,
    TurnScore,
    Usage,
)
from agent_eval_action.run.plan import Plan, PlannedCase

TEXT_LIMIT: Final = 600
CALLS_LIMIT: Final = 60
_VALUE_LIMIT: Final = 300
_ITEMS_LIMIT: Final = 20
_ARGS_LIMIT: Final = 2_000
_DEPTH_LIMIT: Final = 5
_REASON_LIMIT: Final = 2_000
_TRACEBACK_LIMIT: Final = 8_000
_SAME: Final = ("repeat", "arm", "purpose", "ended", "usage", "durations", "tries")
_NOT_MADE: Final = AttemptError(kind=ErrorKind.STOPPED, message="the run ended before this attempt was made")
_MAX_SHARED: Final = 1_024
"""The most distinct scores to remember, which bounds the memory if all scores differ."""

_Score = TypeVar("_Score", TurnScore, CriterionScore)


@dataclass
class SharedScores:
    """Returns one object for equal scores, as most are in a large suite. Does not share scores with a judge's text."""

    _known: dict[tuple[object, ...], Any] = field(default_factory=dict)

    def share(self, score: CriterionScore) -> CriterionScore:
        """Return an equal score, whose turns may belong to other attempts."""
        turns = tuple(
            turn
            if turn.votes or turn.rubrics or turn.sentences
            # by repr, because 1 == 1.0 == True, but they are written differently
            else self._first((turn.turn, turn.status, repr(turn.score), turn.reason, repr(turn.details)), turn)
            for turn in score.turns
        )
        if score.rubrics or score.details:
            return score.model_copy(update={"turns": turns})
        values = score.criterion, score.digest, score.status, repr(score.score), score.passed, score.reason
        key = (*values, *map(id, turns))
        known: CriterionScore | None = self._known.get(key)
        return known or self._first(key, score.model_copy(update={"turns": turns}))

    def _first(self, key: tuple[object, ...], score: _Score) -> _Score:
        known = self._known
        first: _Score = known.setdefault(key, score) if len(known) < _MAX_SHARED else known.get(key, score)
        return first


def excerpt_turn(turn: Invocation, like: TurnBrief | None = None) -> TurnBrief:
    """Return the excerpt of one turn, expected or actual. Where it equals ``like`` it shares its objects."""
    calls = turn.tool_calls()
    excerpts = [_call_parts(call) for call in calls[:CALLS_LIMIT]]
    if rest := [call.model_dump(mode="json") for call in calls[CALLS_LIMIT:]]:
        excerpts.append(("…", {"more": len(rest), "sha256": _digest(rest)}))
    user, response = (excerpt_text(text, TEXT_LIMIT) for text in (turn.user_content.text, turn.response_text))
    # by repr, because 1 == 1.0 == True
    if like is None or [(call.name, repr(call.args)) for call in like.calls] != [(n, repr(a)) for n, a in excerpts]:
        briefs = tuple(CallBrief(name=name, args=args) for name, args in excerpts)
    elif like.user == user and like.response == response:
        return like
    else:
        briefs = like.calls
    return TurnBrief(user=like.user if like and like.user == user else user, calls=briefs, response=response)


def excerpt_call(call: FunctionCall) -> CallBrief:
    """Return the excerpt of one call."""
    name, args = _call_parts(call)
    return CallBrief(name=name, args=args)


def _call_parts(call: FunctionCall) -> tuple[str, dict[str, Any]]:
    given = call.args or {}
    args = {str(key): _shorten(value, _DEPTH_LIMIT) for key, value in itertools.islice(given.items(), _ITEMS_LIMIT)}
    # cheap check first: JSON needs at most 12 characters for one character of the repr
    many = len(repr(args)) * 12 > _ARGS_LIMIT and len(json.dumps(args, default=str)) > _ARGS_LIMIT
    if many or len(given) > _ITEMS_LIMIT:
        args = {"…": f"sha256:{_digest(call.args)}"}
    return call.name or "", args


def excerpt_text(text: str, limit: int) -> str:
    """Return ``text``, or if it is too long its beginning, length and digest."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text):,} characters, sha256:{text_digest(text)[:12]})"


def _shorten(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return excerpt_text(value, _VALUE_LIMIT)
    if not isinstance(value, dict | list):
        return value
    if depth == 0 or len(value) > _ITEMS_LIMIT:
        return f"… (sha256:{_digest(value)})"
    if isinstance(value, dict):
        return {str(key): _shorten(item, depth - 1) for key, item in value.items()}
    return [_shorten(item, depth - 1) for item in value]


def _digest(value: Any) -> str:
    return json_digest(value)[:12]


def summarise(attempt: Attempt, shared: SharedScores) -> AttemptSummary:
    """Return the summary of an attempt for results.json: scores and reasons, and excerpts of the transcript."""
    error = attempt.error
    if error is not None:
        message, traceback = excerpt_text(error.message, _REASON_LIMIT), error.traceback[-_TRACEBACK_LIMIT:]
        error = error.model_copy(update={"message": message, "traceback": traceback})
    scores = (
        score
        if len(score.reason) <= _REASON_LIMIT
        else score.model_copy(update={"reason": excerpt_text(score.reason, _REASON_LIMIT)})
        for score in attempt.scores
    )
    kept = {name: vars(attempt)[name] for name in _SAME}
    turns = tuple(excerpt_turn(turn) for turn in attempt.turns)
    return AttemptSummary(error=error, scores=tuple(map(shared.share, scores)), turns=turns, **kept)


@dataclass
class ResultCollector:
    """Collects the summaries of finished attempts, and shared parts of results: cases and their expected turns.

    ``made``: the number of repeats of a case that other jobs of this run have made. ``not_made``: the reason why a case
    was not run, where there is a better one than the end of the run.
    """

    plan: Plan
    made: Mapping[tuple[CaseKey, ArmName], int] = field(default_factory=dict)
    not_made: Mapping[CaseKey, AttemptError] = field(default_factory=dict)
    _summaries: dict[tuple[CaseKey, ArmName], dict[int, AttemptSummary]] = field(default_factory=dict)
    _shared: SharedScores = field(default_factory=SharedScores)
    _expected: dict[CaseKey, tuple[TurnBrief, ...]] = field(default_factory=dict)
    _cases: dict[CaseKey, CaseResult] = field(default_factory=dict)
    _sets: tuple[SetResult, ...] | None = None

    def add(self, attempt: Attempt, item: PlannedCase) -> None:
        key = attempt.key
        summary = summarise(attempt, self._shared)
        self._summaries.setdefault((key.case_key, key.arm), {})[key.repeat] = summary
        self._cases.pop(key.case_key, None)
        self._sets = None
        self._expected_turns(key.case_key, item)

    def restore(self, key: CaseKey, arm: ArmName, summary: AttemptSummary) -> None:
        """Add an attempt that another job of this run made, unless that job was interrupted during it."""
        if summary.error is None or summary.error.kind is not ErrorKind.STOPPED:
            self._summaries.setdefault((key, arm), {})[summary.repeat] = summary
            self._cases.pop(key, None)
            self._sets = None

    def unmade(self) -> Iterator[CaseKey]:
        """Yield the cases that lack an attempt of the first pass."""
        for planned in self.plan.sets:
            for item in planned.run:
                case = planned.case_key(item)
                if not self._summaries.get((case, "head"), {}).keys() >= set(range(self.plan.repeats)):
                    yield case

    def next_repeat(self, case: CaseKey, arm: ArmName = "head") -> int:
        """Return a case's next free repeat number, higher than all so far."""
        return max(self.made.get((case, arm), 0), 1 + max(self._summaries.get((case, arm), {}), default=-1))

    def score_count(self) -> int:
        """Return the number of scores, which shows whether a step measured anything."""
        made = (summary for summaries in self._summaries.values() for summary in summaries.values())
        return sum(score.status is ScoreStatus.SCORED for summary in made for score in summary.scores)

    def base_errors(self) -> dict[str, AttemptError]:
        """Return, by agent, an error of the base's agent, unless both sides lack credentials."""
        errors: dict[str, AttemptError] = {}
        for (case, arm), summaries in sorted(self._summaries.items()):
            if arm == "base":
                base = [made.error for made in summaries.values()]
                both = (*base, *(made.error for made in self._summaries.get((case, "head"), {}).values()))
                shared = all(error is not None and error.kind is ErrorKind.CREDENTIALS for error in both)
                if (error := next(filter(None, base), None)) is not None and not shared:
                    errors.setdefault(case.agent, error)
        return errors

    def result(self, meter: Meter, seconds: float, **fields: Any) -> RunResult:
        """Return the run so far. Attempts of the first pass that were not made become errors ``stopped``.

        ``meter`` has counted the spending. ``fields``: the result's other fields.
        """
        sets = self._set_results()
        cases = [case for result in sets for case in result.cases]
        # attempts cut off by the end of the run count neither as attempts nor as errors
        attempts = (made for case in cases for made in case.attempts)
        head = [made for made in attempts if made.error is None or made.error.kind is not ErrorKind.STOPPED]
        control = [made for case in cases for made in case.control]
        totals = Totals(
            cases=self.plan.cases,
            attempts=len(head),
            extra=sum(made.purpose != "first" for made in head),
            control=len(control),
            errors=sum(made.error is not None for made in head),
            retries=sum(made.tries - 1 for made in (*head, *control)),
            seconds=round(seconds, 3),
            usage=Usage.total(made.usage for made in (*head, *control)),
            uses=meter.uses(),
            usd=meter.usd(),
        )
        return RunResult(sets=sets, totals=totals, **fields)

    def _set_results(self) -> tuple[SetResult, ...]:
        """Return the results of all sets; the same object until another attempt is added."""
        if self._sets is None:
            self._sets = tuple(
                SetResult(
                    agent=planned.agent,
                    eval_set=planned.key,
                    path=planned.path,
                    criteria=planned.infos,
                    cases=tuple(self._case(planned.case_key(item), item) for item in planned.cases),
                )
                for planned in self.plan.sets
            )
        return self._sets

    def _case(self, key: CaseKey, item: PlannedCase) -> CaseResult:
        """Return the result of a case; the same object until another attempt of it is added."""
        if (known := self._cases.get(key)) is not None:
            return known
        head, base = (self._summaries.get((key, arm), {}) for arm in ("head", "base"))
        repeats = sorted({*range(0 if item.unmeasured else self.plan.repeats), *head})
        stopped = self.not_made.get(key, _NOT_MADE)
        attempts = (head.get(number) or AttemptSummary(repeat=number, error=stopped, tries=1) for number in repeats)
        result = self._cases[key] = CaseResult(
            case=item.case.eval_id,
            line=item.case.line,
            digest=item.digest,
            expected=self._expected_turns(key, item),
            attempts=tuple(attempts),
            control=tuple(base[repeat] for repeat in sorted(base)),
            unmeasured=item.unmeasured,
        )
        return result

    def _expected_turns(self, key: CaseKey, item: PlannedCase) -> tuple[TurnBrief, ...]:
        known = self._expected.get(key)
        if known is None:
            made = next(iter(self._summaries.get((key, "head"), {}).values()), None)
            actual = made.turns if made else ()
            turns = item.case.turns
            made_turns = itertools.islice(itertools.chain(actual, itertools.repeat(None)), len(turns))
            known = self._expected[key] = tuple(map(excerpt_turn, turns, made_turns))
        return known
