"""What the page shows of one case, as plain values: text is escaped where the page is made, and nowhere here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from agent_eval_action.model.brief import TurnBrief
from agent_eval_action.model.decision import ChangeKind, PairChange, Stat, Unit
from agent_eval_action.model.judged import RubricScore, SentenceLabel
from agent_eval_action.model.result import AttemptSummary, CriterionScore, Purpose, ScoreStatus, TurnScore
from agent_eval_action.model.trajectory_text import format_call
from agent_eval_action.reports import format as fmt
from agent_eval_action.reports.cases import CaseView, Group, passing, worst_attempt
from agent_eval_action.reports.judged import votes_text
from agent_eval_action.reports.junit_text import error_line
from agent_eval_action.reports.turn_diff import turn_diffs

Shown = dict[str, Any]

WORDS: Final = {
    Group.REGRESSED: "regressed",
    Group.BLOCKING: "below a threshold",
    Group.ERRORED: "not measured",
    Group.FAILING: "below, not blocking",
    Group.WORSE: "worse, not blocking",
    Group.NEW: "new",
    Group.REMOVED: "removed",
    Group.CHANGED: "changed definition",
    Group.BETTER: "better",
    Group.SAME: "unchanged",
}
KEYS: Final = {group: group.name.lower() for group in Group}
_PURPOSES: Final[dict[Purpose, str]] = {
    "first": "",
    "rerun": "run again",
    "suite": "with the suite again",
    "control": "in turn with the control",
}
_ENDED: Final = {"stop_signal": "the user had what they came for", "turn_limit": "ended by the limit of turns"}
_ATTEMPTS, _TURNS, _CALLS, _RUBRICS, _SENTENCES, _TRACE = 6, 20, 20, 40, 60, 30
_CALL, _TEXT, _NAME = 400, 700, 200


def row(view: CaseView) -> Shown:
    """The line by which a case is found: all there is of it where the page is full."""
    first = view.pairs[0] if view.pairs else None
    said = ""
    if first is not None and view.telling and first.kind is not ChangeKind.ERROR:
        said = f"{first.criterion} {fmt.pair_text(first)}"
    result, owner = view.result, view.owner
    line = f":{result.line}" if result is not None and result.line else ""
    return {
        "group": KEYS[view.group],
        "word": WORDS[view.group],
        "name": view.key.case[:_NAME],
        "where": view.where[:_NAME],
        "said": said[:_NAME],
        "file": f"{owner.path}{line}" if owner is not None else "",
    }


def case(view: CaseView) -> Shown:
    """Everything of a case: each criterion then and now, what differs, and its attempts with what judges said."""
    told = _telling(view)
    attempts = view.result.attempts if view.result is not None else ()
    in_order = sorted(attempts, key=lambda one: one is not told)[:_ATTEMPTS]
    diffs = []
    if view.result is not None and told is not None:
        diffs = turn_diffs(view.result.expected, view.baseline_turns, told.turns)[:_TURNS]
    expected = view.result.expected if view.result is not None else ()
    units = {pair.criterion: pair.unit for pair in view.pairs}
    return {
        **row(view),
        "pairs": [_pair(pair) for pair in view.pairs],
        "diffs": diffs,
        "attempts": [_attempt(made, len(attempts), units) for made in in_order],
        "more": len(attempts) - len(in_order),
        "expected": [_turn(number, turn) for number, turn in enumerate(expected[:_TURNS], 1)],
        "baseline": [_turn(number, turn) for number, turn in enumerate(view.baseline_turns[:_TURNS], 1)],
    }


def _telling(view: CaseView) -> AttemptSummary | None:
    if view.result is None or not view.result.attempts:
        return None
    for pair in view.pairs:
        if pair.blocking or pair.kind is ChangeKind.WORSE or passing(pair) is False:
            worst = worst_attempt(view.result, pair.criterion, pair.goal)
            if worst is not None:
                return worst
    return next((one for one in view.result.attempts if one.error is not None), view.result.attempts[0])


def _pair(pair: PairChange) -> Shown:
    return {
        "criterion": pair.criterion,
        "lower": pair.goal == "minimize",
        "then": fmt.number(pair.baseline.mean, pair.unit) if pair.baseline else fmt.NONE,
        "now": fmt.number(pair.current.mean, pair.unit) if pair.current else fmt.NONE,
        "change": fmt.signed(pair.change, pair.unit),
        "interval": fmt.interval(pair),
        "tone": _tone(pair),
        "needs": fmt.limits(pair.unit, pair.goal, pair.threshold),
        "kind": fmt.KIND_LABELS[pair.kind],
        "blocking": pair.blocking,
        "reason": pair.reason[:_TEXT],
        "runs": ", ".join(_runs(pair)),
    }


def _tone(pair: PairChange) -> str:
    if pair.kind is ChangeKind.ERROR or pair.errors:
        return "warn"
    if pair.blocking or passing(pair) is False:
        return "bad"
    return "good" if fmt.is_better(pair.change, pair.goal) else ""


def _runs(pair: PairChange) -> Iterator[str]:
    for word, stat in (("run again", pair.fresh), ("base commit's agent", pair.control)):
        if stat is not None:
            yield f"{word}: {_stat(stat, pair.unit)}"


def _stat(stat: Stat, unit: Unit) -> str:
    return f"{fmt.number(stat.mean, unit)} over {fmt.plural(stat.n, 'run')}"


def _attempt(one: AttemptSummary, of: int, units: Mapping[str, Unit]) -> Shown:
    facts = [f"repeat {one.repeat + 1} of {of}" if of > 1 else "", _PURPOSES[one.purpose], _ENDED.get(one.ended, "")]
    if one.durations.total is not None:
        facts.append(fmt.duration(one.durations.total))
    if one.usage.total_tokens is not None:
        facts.append(f"{fmt.count(one.usage.total_tokens)} tokens")
    if one.tries > 1:
        facts.append(f"{one.tries} tries")
    error = one.error
    return {
        "facts": " · ".join(fact for fact in facts if fact),
        "error": error_line(error) if error is not None else "",
        "trace": error.traceback.strip().splitlines()[-_TRACE:] if error is not None else [],
        "scores": [_score(score, units.get(score.criterion, "score")) for score in one.scores],
        "turns": [_turn(number, turn) for number, turn in enumerate(one.turns[:_TURNS], 1)],
        "more": max(0, len(one.turns) - _TURNS),
    }


def _turn(number: int, turn: TurnBrief) -> Shown:
    calls = [format_call(call, _CALL) for call in turn.calls[:_CALLS]]
    if len(turn.calls) > _CALLS:
        calls.append(f"… and {len(turn.calls) - _CALLS} more")
    return {"number": number, "user": turn.user, "calls": calls, "answer": turn.response}


def _score(score: CriterionScore, unit: Unit) -> Shown:
    tone = "warn" if score.status is ScoreStatus.ERROR else "bad" if score.passed is False else ""
    told = [turn for turn in score.turns if len(score.turns) > 1 or turn.rubrics or turn.sentences]
    return {
        "criterion": score.criterion,
        "value": _value(score.status, score.score, unit),
        "tone": tone,
        "reason": score.reason[:_TEXT],
        "turns": [_turn_score(turn, unit) for turn in told[:_TURNS]],
    }


def _value(status: ScoreStatus, score: float | None, unit: Unit) -> str:
    return fmt.number(score, unit) if status is ScoreStatus.SCORED else str(status).replace("_", " ")


def _turn_score(turn: TurnScore, unit: Unit) -> Shown:
    return {
        "number": turn.turn + 1,
        "value": _value(turn.status, turn.score, unit),
        "reason": turn.reason[:_TEXT],
        "votes": votes_text(turn.votes),
        "rubrics": [_rubric(rubric) for rubric in _bounded(turn.rubrics, _RUBRICS)],
        "sentences": [_sentence(sentence) for sentence in _bounded(turn.sentences, _SENTENCES)],
    }


def _bounded(items: Sequence[Any], most: int) -> Sequence[Any]:
    return items if len(items) <= most else items[:most]


def _rubric(rubric: RubricScore) -> Shown:
    mark = "?" if rubric.score is None else "✓" if rubric.score >= 1 else "✗"
    weight = f", weight {rubric.weight:g}" if rubric.weight != 1 else ""
    return {
        "mark": mark,
        "tone": {"✗": "bad", "?": "warn"}.get(mark, "good"),
        "id": rubric.rubric_id,
        "text": rubric.text[:_CALL],
        "counted": f"{votes_text(rubric.votes) or 'no vote'}{weight}",
        "why": rubric.rationale[:_TEXT],
    }


def _sentence(sentence: SentenceLabel) -> Shown:
    good = sentence.label in {"supported", "not_applicable"}
    return {
        "label": sentence.label.replace("_", " "),
        "tone": "" if good else "bad",
        "text": sentence.sentence[:_TEXT],
        "why": sentence.rationale[:_TEXT],
    }
