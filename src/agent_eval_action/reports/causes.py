"""Why cases are as they are: the first thing each does otherwise, and the cases that share it. No model is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from agent_eval_action.reports.differences import same_form, turn_at
from agent_eval_action.reports.prose import Name, Prose, compose, joined
from agent_eval_action.reports.view import CaseView, Group, failed_attempt, objections, score_of, telling_attempt
from agent_eval_action.results.decision import CallBrief, TurnBrief
from agent_eval_action.results.findings import excerpt
from agent_eval_action.results.run_result import AttemptError, AttemptSummary, CaseResult, ErrorKind, ScoreStatus
from agent_eval_action.results.trajectory import CallDifference, diff_calls, format_call

_NAME: Final = 80
_WORDS: Final = 160


@dataclass(frozen=True, slots=True)
class Difference:
    """The first thing a case does otherwise: ``text`` of this case, ``cause`` as it is said of every case like it."""

    cause: Prose
    text: Prose


@dataclass(frozen=True, slots=True)
class Cause:
    """Cases of one agent and one class that fail alike, the worst first, and the first difference of each."""

    text: Prose
    cases: tuple[CaseView, ...]
    differences: tuple[Prose, ...]

    @property
    def group(self) -> Group:
        return self.cases[0].group


def find_causes(cases: Iterable[CaseView]) -> tuple[Cause, ...]:
    """The causes of all ``cases`` that need attention, in their order."""
    found: dict[tuple[str, Group, bool, Prose], list[tuple[CaseView, Prose]]] = {}
    for view in cases:
        if view.needs_attention:
            difference = first_difference(view)
            alike = view.key.agent, view.group, view.blocks, difference.cause
            found.setdefault(alike, []).append((view, difference.text))
    return tuple(
        Cause(text, tuple(view for view, _ in members), tuple(first for _, first in members))
        for (_, _, _, text), members in found.items()
    )


def first_difference(view: CaseView) -> Difference:
    """An error, else the first call that differs, else what a judge objects to, else the score alone."""
    candidates: Iterator[Difference] = iter(())
    if view.group is Group.NOT_MEASURED and view.result is not None:
        candidates = _errors(view.result)
    elif view.result is not None and (attempt := telling_attempt(view)) is not None:
        candidates = _in_attempt(view, attempt, view.result.expected)
    return next(candidates, None) or _score(view)


def _errors(case: CaseResult) -> Iterator[Difference]:
    attempt = failed_attempt(case)
    if attempt is not None and attempt.error is not None:
        error = attempt.error
        yield _error(error)
    for score in attempt.scores if attempt is not None else ():
        if score.status is ScoreStatus.ERROR:
            why = excerpt(score.reason, _WORDS)
            cause = compose("{name} has no score: {why}", name=_name(score.criterion), why=why)
            yield Difference(cause, cause)


_ERRORS: Final = {
    ErrorKind.ENVIRONMENT: "the agent does not start",
    ErrorKind.IMPORT: "the agent does not start",
    ErrorKind.EXCEPTION: "the agent raised an error",
    ErrorKind.TIMEOUT: "the agent did not answer in time",
    ErrorKind.BLOCKED: "the agent blocked its event loop",
    ErrorKind.DIED: "the agent's process ended",
    ErrorKind.OUTPUT: "the agent's output is too large",
    ErrorKind.RATE_LIMITED: "the model refused calls because there were too many",
    ErrorKind.UNAVAILABLE: "the model's service did not answer",
    ErrorKind.PROTOCOL: "the agent's process sent something invalid",
    ErrorKind.CREDENTIALS: "credentials are missing",
    ErrorKind.USER: "the simulated user could not go on",
    ErrorKind.SCORING: "the answer could not be scored",
    ErrorKind.STOPPED: "the run ended first",
}


def _error(error: AttemptError) -> Difference:
    message = excerpt(error.message, _WORDS)
    cause = f"{_ERRORS[error.kind]}{f': {message}' if message else ''}"
    return Difference(Prose.join(cause), Prose.join(excerpt(error_line(error), _WORDS)))


def error_line(error: AttemptError) -> str:
    """``timeout in turn 2: no answer within 60 s``."""
    turn = f" in turn {error.turn + 1}" if error.turn is not None else ""
    return f"{error.kind}{turn}: {error.message}"


def _in_attempt(view: CaseView, attempt: AttemptSummary, expected: tuple[TurnBrief, ...]) -> Iterator[Difference]:
    yield from _calls(view, attempt, expected)
    for pair in view.pairs[: view.telling]:
        score = score_of(attempt, pair.criterion)
        for turn, kind, text, why in objections(score) if score is not None else ():
            if kind == "rubric":
                cause = compose("the rubric {rubric} is not met", rubric=_name(text))
                words = joined([f"turn {turn}: rubric ", _name(text), f" not met: {excerpt(why, _WORDS)}"], "")
            else:
                cause = Prose.join(f"the agent makes {kind} statements")
                words = Prose.join(f"turn {turn}: {kind}: “{excerpt(text, _WORDS)}”")
            yield Difference(cause, words)
    if attempt.error is not None:
        yield _error(attempt.error)


def _calls(view: CaseView, attempt: AttemptSummary, expected: tuple[TurnBrief, ...]) -> Iterator[Difference]:
    """Calls that main makes as well explain why a case is below its threshold, but not why it got worse."""
    reference = expected if any(turn.calls for turn in expected) else view.baseline_turns
    for index in range(max(len(reference), len(attempt.turns)) if reference else 0):
        want, then, now = (turn_at(turns, index) for turns in (reference, view.baseline_turns, attempt.turns))
        calls = now.calls if now else ()
        old = None if then is None else same_form(then.calls, calls)
        if old is not None and view.group is not Group.BELOW_THRESHOLD and not diff_calls(old, calls):
            continue
        aims = same_form(want.calls, calls) if want else ()
        for found in diff_calls(aims, calls):
            yield _call(found, index + 1, on_main=old)


def _call(found: CallDifference, turn: int, *, on_main: list[CallBrief] | None) -> Difference:
    want, got = found.expected, found.actual
    tool = next((_name(str(call.name)) for call in (want, got) if call), Name(""))
    then, now = (Name(format_call(call, _WORDS)) if call else Name("") for call in (want, got))
    if got is None:
        no_longer = want is not None and any(call.name == want.name for call in on_main or ())
        cause = "the agent no longer calls {tool}" if no_longer else "the agent does not call {tool}"
        text = "turn {turn}: {then} not called"
    elif want is None:
        cause, text = "the agent also calls {tool}", "turn {turn}: {now} called as well"
    elif found.kind == "moved":
        cause, text = "the agent calls {tool} at another place", "turn {turn}: {now} out of order"
    else:
        old, new = want.args or {}, got.args or {}
        names = sorted(name for name in old.keys() | new.keys() if name not in old or old.get(name) != new.get(name))
        cause, text = "the agent calls {tool} with another {names}", "turn {turn}: {now}, not {then}"
        changed = joined([_name(name) for name in names[:3] or ["argument"]], ", ")
        return Difference(compose(cause, tool=tool, names=changed), compose(text, turn=str(turn), now=now, then=then))
    return Difference(compose(cause, tool=tool), compose(text, turn=str(turn), now=now, then=then))


def _score(view: CaseView) -> Difference:
    """Nothing is known but the scores, and what the criterion says of them."""
    pair = view.pairs[0] if view.pairs else None
    if pair is None:
        return Difference(Prose.join("nothing is known of it"), Prose())
    what = {Group.BELOW_THRESHOLD: "misses its threshold", Group.NOT_MEASURED: "has no score"}
    cause = joined([_name(pair.criterion), f" {what.get(view.group, 'got worse')}"], "")
    data = pair.reason.data if pair.reason is not None else {}
    why = excerpt(data.get("judgement") or data.get("error") or data.get("text") or "", _WORDS)
    return Difference(cause, joined([_name(pair.criterion), f": {why}"], "") if why else cause)


def _name(text: str) -> Name:
    return Name.shortened(text, _NAME)
