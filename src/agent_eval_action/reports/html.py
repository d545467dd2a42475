"""report.html: one file that loads nothing. The data is JSON in the page; its script renders what is looked at."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.base import ReportInput
from agent_eval_action.reports.causes import error_line
from agent_eval_action.reports.formatting import clean
from agent_eval_action.reports.messages import Messages
from agent_eval_action.reports.next_steps import select_case
from agent_eval_action.reports.page_frame import Json, page_frame, prose_parts
from agent_eval_action.reports.prose import Prose
from agent_eval_action.reports.recorded_details import MEDIA_BUDGET, RecordedDetails
from agent_eval_action.reports.view import CaseView, passing
from agent_eval_action.results.decision import ChangeKind, PairChange, Stat, TurnBrief
from agent_eval_action.results.history import kept_key
from agent_eval_action.results.run_result import (
    AttemptSummary,
    CastVote,
    CriterionScore,
    SetResult,
    TurnScore,
    Votes,
)

if TYPE_CHECKING:
    from jinja2 import Environment

BUDGET: Final = 9_000_000
"""Bytes of UTF-8. Beyond it cases keep their row and lose what is behind it, the best ones first."""

_DATA: Final = "<!-- data -->"
_ODD: Final = re.compile(r'\x7f|\\(?!["\\n]|u(?:2212|2026|2265|2264|2192|2013|00b7|201c|201d))')
"""In JSON: a character that may have to be cleaned. The signs of our own sentences never have to."""
_LARGE: Final = 50_000
"""Characters of JSON in which a text may be longer than a page shows."""
_TEMPLATES: Final = Path(__file__).with_name("templates")
_PURPOSES: Final = {"first": "first pass", "rerun": "re-run", "suite": "suite again", "control": "beside main"}
_ATTEMPTS, _TURNS, _CALLS, _RUBRICS, _SENTENCES, _TRACE = 8, 20, 40, 40, 60, 30
_TEXT, _ARGUMENTS = 4_000, 2_000


def html(report: ReportInput, budget: int | None = None) -> str:
    """The page in about ``budget`` bytes of UTF-8; a row for every case is there in any case."""
    frame = (
        _environment()
        .get_template("report.html")
        .render(
            title=f"{fmt.OUTCOME_LABELS[report.decision.outcome]}: agent evaluation",
            style=_digest("report.css"),
            script=_digest("report.js"),
        )
    )
    before, after = frame.split(_DATA)
    return "".join((before, *_data(report, (BUDGET if budget is None else budget) - len(frame)), after))


def _data(report: ReportInput, budget: int) -> Iterator[str]:
    """What the page shows, as pieces of JSON that may stand in a script element."""
    cases, messages = report.view.worst_first, report.view.messages
    columns = [row.criterion for row in report.decision.criteria]
    causes = {
        view.key: (at, difference)
        for at, cause in enumerate(report.causes)
        for view, difference in zip(cause.cases, cause.differences, strict=True)
    }
    past = {(one.agent, one.eval_set, one.case): one.outcomes for one in report.decision.main_cases}
    yield '{"frame":'
    yield (text := _json(page_frame(report, cases)))
    room = budget - len(text)
    recorded = RecordedDetails(report.recordings, min(MEDIA_BUDGET, budget // 3))
    for at, view in enumerate(cases):
        row = {**_row(view, columns, causes.get(view.key), messages), "past": past.get(kept_key(view.key), "")}
        yield ",\n" if at else ',\n"rows":['
        yield (text := _json(row))
        room -= len(text)
    yield '],\n"details":[' if cases else ',"rows":[],"details":['
    for at, view in enumerate(cases):
        before = recorded.used
        text = _json(_detail(view, messages, recorded)) if room > 0 else "null"
        room -= len(text) + recorded.used - before
        yield ",\n" if at else ""
        yield text if room > 0 else "null"
    yield "]"
    yield from recorded.media_json()
    yield "}"


def _json(value: Json) -> str:
    """ASCII, so that its length is its size; no text in it can end the script element."""
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:  # a number that JSON lacks
        text = ""
    if not text or len(text) > _LARGE or _ODD.search(text):
        text = json.dumps(_cleaned(value), separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _cleaned(value: Any) -> Any:
    """Every text without what draws, hides or breaks, as in every other format."""
    if isinstance(value, str):
        return clean(value, _TEXT, lines=True)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {_cleaned(str(key)): _cleaned(item) for key, item in value.items()}
    return [_cleaned(item) for item in value] if isinstance(value, list | tuple) else value


def _row(view: CaseView, columns: Sequence[str], cause: tuple[int, Prose] | None, messages: Messages) -> Json:
    pairs = {pair.criterion: pair for pair in view.pairs}
    first = view.pairs[0] if view.pairs else None
    attempts = view.result.attempts if view.result is not None else ()
    line = f":{view.result.line}" if view.result is not None and view.result.line else ""
    tokens = [attempt.usage.total_tokens for attempt in attempts if attempt.usage.total_tokens is not None]
    seconds = [attempt.durations.total for attempt in attempts if attempt.durations.total is not None]
    return {
        "agent": view.key.agent,
        "set": view.key.eval_set,
        "case": view.key.case,
        "where": view.where,
        "group": view.group.name.lower(),
        "cause": cause[0] if cause else None,
        "note": _note(view, cause, messages),
        "scores": [_cell(pairs.get(name)) for name in columns],
        "runs": "".join(_pip(attempt) for attempt in attempts[:20]),
        "main": [first.baseline.passed, first.baseline.n] if first is not None and first.baseline is not None else None,
        "tokens": round(sum(tokens) / len(tokens)) if tokens else None,
        "seconds": round(sum(seconds) / len(seconds), 2) if seconds else None,
        "file": f"{view.owner.path}{line}" if view.owner is not None else "",
        "select": ":".join(select_case(view)),
    }


def _note(view: CaseView, cause: tuple[int, Prose] | None, messages: Messages) -> list[Any]:
    """The first difference of a case that needs attention, else what became of its first pair."""
    if cause is not None and cause[1]:
        return prose_parts(cause[1])
    return prose_parts(messages.pair(view.pairs[0], with_case=False)) if view.pairs and view.telling else []


def _cell(pair: PairChange | None) -> list[Any] | None:
    """The number to sort by, the text and the tone of a score."""
    if pair is None:
        return None
    value = pair.current.mean if pair.current is not None else None
    return [value, fmt.number(value, pair.unit), _tone(pair)]


def _tone(pair: PairChange) -> str:
    if pair.kind is ChangeKind.ERROR or pair.errors:
        return "warn"
    if pair.blocking or passing(pair) is False:
        return "bad"
    return "good" if fmt.is_better(pair) else ""


def _pip(attempt: AttemptSummary) -> str:
    if attempt.error is not None:
        return "e"
    return "x" if any(score.passed is False for score in attempt.scores) else "p"


def _detail(view: CaseView, messages: Messages, recorded: RecordedDetails) -> Json:
    case = view.result

    def attempts(made: Sequence[AttemptSummary]) -> list[Json]:
        return [_attempt(attempt, recorded.turns(view.key, attempt)) for attempt in made[:_ATTEMPTS]]

    return {
        "pairs": [_pair(pair, messages) for pair in view.pairs],
        "attempts": attempts(case.attempts if case else ()),
        "control": attempts(case.control if case else ()),
        "more": max(0, len(case.attempts) - _ATTEMPTS) if case else 0,
        "expected": [_turn(turn) for turn in (case.expected if case else ())[:_TURNS]],
        "baseline": [_turn(turn) for turn in view.baseline_turns[:_TURNS]],
        "seen": [view.main.seen, view.main.attempts] if view.main is not None and view.main.seen else None,
        "criteria": _configured(view.owner),
    }


def _configured(owner: SetResult | None) -> list[list[str]]:
    if owner is None:
        return []
    return [
        [
            info.name,
            fmt.limits(info),
            f"{info.source}{f':{info.line}' if info.line else ''}",
            json.dumps(info.options, sort_keys=True, default=str)[:_ARGUMENTS] if info.options else "",
        ]
        for info in owner.criteria
    ]


def _pair(pair: PairChange, messages: Messages) -> Json:
    return {
        "criterion": pair.criterion,
        "minimize": pair.goal == "minimize",
        "main": _stat(pair.baseline, pair),
        "here": _stat(pair.current, pair),
        "change": fmt.signed(pair.change, pair.unit),
        "interval": fmt.interval(pair),
        "tone": _tone(pair),
        "needs": fmt.limits(pair),
        "kind": fmt.KIND_LABELS[pair.kind],
        "blocking": pair.blocking,
        "why": prose_parts(messages.pair(pair, with_case=False)),
        "fresh": _stat(pair.fresh, pair),
        "control": _stat(pair.control, pair),
    }


def _stat(stat: Stat | None, pair: PairChange) -> list[Any] | None:
    return None if stat is None else [fmt.number(stat.mean, pair.unit), stat.passed, stat.n]


def _attempt(attempt: AttemptSummary, recorded: Sequence[Json]) -> Json:
    """An attempt; ``recorded`` adds to its turns what only the transcript has."""
    error = attempt.error
    turns = [_turn(turn) for turn in attempt.turns[:_TURNS]]
    return {
        "repeat": attempt.repeat + 1,
        "purpose": _PURPOSES[attempt.purpose],
        "pip": _pip(attempt),
        "error": error_line(error) if error is not None else "",
        "trace": "\n".join(error.traceback.strip().splitlines()[-_TRACE:]) if error is not None else "",
        "tokens": attempt.usage.total_tokens,
        "seconds": [attempt.durations.total, attempt.durations.model, attempt.durations.tool],
        "tries": attempt.tries,
        "scores": [_score(score) for score in attempt.scores],
        "turns": [turn | (recorded[at] if at < len(recorded) else {}) for at, turn in enumerate(turns)],
    }


def _turn(turn: TurnBrief) -> Json:
    return {
        "user": turn.user,
        "calls": [[call.name, call.args] for call in turn.calls[:_CALLS]],
        "answer": turn.response,
    }


def _score(score: CriterionScore) -> Json:
    return {
        "criterion": score.criterion,
        "status": score.status.value,
        "score": score.score,
        "passed": score.passed,
        "reason": score.reason,
        "turns": [_turn_score(turn) for turn in score.turns[:_TURNS]],
    }


def _turn_score(turn: TurnScore) -> Json:
    return {
        "turn": turn.turn,
        "score": turn.score,
        "reason": turn.reason,
        "votes": _votes(turn.votes, turn.cast),
        "rubrics": [
            [rubric.rubric_id, rubric.text, rubric.score, _votes(rubric.votes, rubric.cast), rubric.rationale]
            for rubric in turn.rubrics[:_RUBRICS]
        ],
        "sentences": [[one.sentence, one.label, one.rationale] for one in turn.sentences[:_SENTENCES]],
    }


def _votes(votes: Votes | None, cast: Sequence[CastVote]) -> list[Any] | None:
    if votes is None:
        return None
    words = [[vote.yes, vote.rationale] for vote in cast]
    return [votes.yes, votes.no, votes.left_out, *([words] if words else [])]


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - most commands make no page

    return Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )


@cache
def _digest(name: str) -> str:
    """The policy's word for a style or script of the page: the browser takes no other."""
    text = _environment().get_template(name).render()
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
