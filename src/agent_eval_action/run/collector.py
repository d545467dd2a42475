"""Excerpts of turns for results.json and reports: bounded whatever the agent said.

What is cut ends in its own digest, so that two different huge values never look equal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from agent_eval_action.results.evalset import FunctionCall, Invocation
from agent_eval_action.results.run_result import (
    ArmName,
    Attempt,
    AttemptError,
    AttemptSummary,
    CallBrief,
    CaseKey,
    CaseResult,
    Conditions,
    CriterionScore,
    ErrorKind,
    RunResult,
    RunStatus,
    ScoreStatus,
    SetResult,
    Totals,
    TurnBrief,
    Usage,
)
from agent_eval_action.run.plan import Plan, PlannedCase, PlannedSet
from agent_eval_action.run.scoring import SharedScores

TEXT_LIMIT = 600
CALLS_LIMIT = 60
_VALUE_LIMIT = 300
_ITEMS_LIMIT = 20
_ARGS_LIMIT = 2_000
_DEPTH_LIMIT = 5


def excerpt_turn(turn: Invocation) -> TurnBrief:
    """The excerpt of one turn, expected or actual."""
    calls = turn.tool_calls()
    briefs = [excerpt_call(call) for call in calls[:CALLS_LIMIT]]
    if len(calls) > CALLS_LIMIT:
        rest = [call.model_dump(mode="json") for call in calls[CALLS_LIMIT:]]
        briefs.append(CallBrief(name="…", args={"more": len(rest), "sha256": _digest(rest)}))
    return TurnBrief(
        user=excerpt_text(turn.user_content.text, TEXT_LIMIT),
        calls=tuple(briefs),
        response=excerpt_text(turn.response_text, TEXT_LIMIT),
    )


def excerpt_call(call: FunctionCall) -> CallBrief:
    """The excerpt of one call."""
    args = {str(key): _shorten(value, _DEPTH_LIMIT) for key, value in list((call.args or {}).items())[:_ITEMS_LIMIT]}
    if len(call.args or {}) > _ITEMS_LIMIT or len(json.dumps(args, default=str)) > _ARGS_LIMIT:
        return CallBrief(name=call.name or "", args={"…": f"sha256:{_digest(call.args)}"})
    return CallBrief(name=call.name or "", args=args)


def excerpt_text(text: str, limit: int) -> str:
    """``text`` itself, or its beginning and how much there was."""
    if len(text) <= limit:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{text[:limit]}… ({len(text):,} characters, sha256:{digest})"


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
    text = json.dumps(value, sort_keys=True, default=str, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


_REASON_LIMIT = 2_000
_TRACEBACK_LIMIT = 8_000


def summarise(attempt: Attempt) -> AttemptSummary:
    """What results.json keeps of an attempt: scores and reasons whole, the transcript as excerpts."""
    error = attempt.error
    if error is not None:
        error = error.model_copy(
            update={
                "message": excerpt_text(error.message, _REASON_LIMIT),
                "traceback": error.traceback[-_TRACEBACK_LIMIT:],
            }
        )
    return AttemptSummary(
        repeat=attempt.repeat,
        arm=attempt.arm,
        purpose=attempt.purpose,
        ended=attempt.ended,
        error=error,
        scores=tuple(_bounded(score) for score in attempt.scores),
        turns=tuple(excerpt_turn(turn) for turn in attempt.turns),
        usage=attempt.usage,
        durations=attempt.durations,
        tries=attempt.tries,
    )


def _in_objects_of(actual: TurnBrief, expected: TurnBrief) -> TurnBrief:
    """``expected``, with what ``actual`` has as well, mostly the calls, kept once."""
    same_calls = _written(actual) == _written(expected)
    if same_calls and actual.user == expected.user and actual.response == expected.response:
        return actual
    user = actual.user if actual.user == expected.user else expected.user
    return TurnBrief(user=user, calls=actual.calls if same_calls else expected.calls, response=expected.response)


def _written(turn: TurnBrief) -> list[tuple[str, str]]:
    """The calls by which they are told apart: by ==, 1 would be 1.0 and True."""
    return [(call.name, repr(call.args)) for call in turn.calls]


def _bounded(score: CriterionScore) -> CriterionScore:
    if len(score.reason) <= _REASON_LIMIT:
        return score
    return score.model_copy(update={"reason": excerpt_text(score.reason, _REASON_LIMIT)})


@dataclass
class ResultCollector:
    """Holds the summaries of what has finished.

    ``extra`` counts what was made beyond the first pass, the control's included.
    """

    plan: Plan
    extra: int = 0
    _summaries: dict[tuple[CaseKey, ArmName], dict[int, AttemptSummary]] = field(default_factory=dict)
    _shared: SharedScores = field(default_factory=SharedScores)
    _expected: dict[CaseKey, tuple[TurnBrief, ...]] = field(default_factory=dict)

    def add(self, attempt: Attempt, item: PlannedCase | None = None) -> None:
        """Keep the summary of a finished attempt. ``item``: its case, if that is unpacked just now."""
        key = attempt.key
        summary = summarise(attempt)
        summary = summary.model_copy(update={"scores": tuple(map(self._shared.share, summary.scores))})
        self._summaries.setdefault((key.case_key, key.arm), {})[key.repeat] = summary
        self.extra += attempt.purpose != "first"
        if item is not None:
            self._expected_turns(key.case_key, item)

    def made(self, case: CaseKey, arm: ArmName = "head") -> int:
        """The next free repeat of a case: whatever was made so far has a lower one."""
        return 1 + max(self._summaries.get((case, arm), {}), default=-1)

    def scored(self) -> int:
        """How many scores there are: a step that brings none changes nothing."""
        kept = (summary for made in self._summaries.values() for summary in made.values())
        return sum(score.status is ScoreStatus.SCORED for summary in kept for score in summary.scores)

    def base_errors(self) -> dict[str, AttemptError]:
        """Why agents of the base commit left an attempt unanswered, for a reason that this change's do not share."""
        found: dict[str, AttemptError] = {}
        for (case, arm), made in sorted(self._summaries.items()):
            if arm == "base" and not self._lacks_credentials(case):
                for one in made.values():
                    if one.error is not None:
                        found.setdefault(case.agent, one.error)
        return found

    def _lacks_credentials(self, case: CaseKey) -> bool:
        """Whether no attempt of a case was answered, on either side, for want of credentials."""
        both = [one for arm in ("head", "base") for one in self._summaries.get((case, arm), {}).values()]
        return all(one.error is not None and one.error.kind is ErrorKind.CREDENTIALS for one in both)

    def complete(self) -> bool:
        """Whether the first pass is."""
        keys = (planned.key for planned in self.plan.attempts())
        return all(key.repeat in self._summaries.get((key.case_key, "head"), {}) for key in keys)

    def result(self, *, started_at: str, seconds: float, status: RunStatus, conditions: Conditions) -> RunResult:
        """The run as far as it came; attempts of the first pass that were not made are errors of kind ``stopped``."""
        sets = tuple(self._set(planned) for planned in self.plan.sets)
        cases = [case for result in sets for case in result.cases]
        head = [attempt for case in cases for attempt in case.attempts if not _is_not_made(attempt)]
        control = [attempt for case in cases for attempt in case.control]
        return RunResult(
            started_at=started_at,
            status=status,
            conditions=conditions,
            sets=sets,
            totals=Totals(
                cases=self.plan.cases,
                attempts=len(head),
                extra=sum(attempt.purpose != "first" for attempt in head),
                control=len(control),
                errors=sum(attempt.error is not None for attempt in head),
                retries=sum(attempt.tries - 1 for attempt in (*head, *control)),
                seconds=round(seconds, 3),
                usage=_total(attempt.usage for attempt in (*head, *control)),
            ),
        )

    def _set(self, planned: PlannedSet) -> SetResult:
        cases = tuple(self._case(planned, item) for item in planned.cases)
        return SetResult(
            agent=planned.agent, eval_set=planned.key, path=planned.path, criteria=planned.infos, cases=cases
        )

    def _expected_turns(self, key: CaseKey, item: PlannedCase) -> tuple[TurnBrief, ...]:
        """Made once, and shared by every result: the gate asks for one after each step."""
        known = self._expected.get(key)
        if known is None:
            made = next(iter(self._summaries.get((key, "head"), {}).values()), None)
            actual = made.turns if made else ()
            briefs = [excerpt_turn(turn) for turn in item.case.turns]
            alike = [_in_objects_of(turn, brief) for turn, brief in zip(actual, briefs, strict=False)]
            known = self._expected[key] = (*alike, *briefs[len(alike) :])
        return known

    def _case(self, planned: PlannedSet, item: PlannedCase) -> CaseResult:
        key = CaseKey(planned.agent, planned.key, item.eval_id)
        head, base = (self._summaries.get((key, arm), {}) for arm in ("head", "base"))
        repeats = sorted({*range(0 if item.unmeasured else self.plan.repeats), *head})
        return CaseResult(
            case=item.eval_id,
            line=item.line,
            digest=item.digest,
            expected=self._expected_turns(key, item),
            attempts=tuple(head.get(repeat) or _not_made(repeat) for repeat in repeats),
            control=tuple(base[repeat] for repeat in sorted(base)),
            unmeasured=item.unmeasured,
        )


def _not_made(repeat: int) -> AttemptSummary:
    error = AttemptError(kind=ErrorKind.STOPPED, message="the run ended before this attempt was made")
    return AttemptSummary(repeat=repeat, error=error, tries=1)


def _is_not_made(attempt: AttemptSummary) -> bool:
    """What the end of the run cut off was not made: no attempt to count, and no error of anybody's."""
    return attempt.error is not None and attempt.error.kind is ErrorKind.STOPPED


def _total(usages: Iterable[Usage]) -> Usage:
    total = Usage()
    for usage in usages:
        total += usage
    return total
