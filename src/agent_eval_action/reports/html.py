"""report.html, a self-contained file. The page embeds its data as JSON; its script renders what the reader opens."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.base import ReportInput
from agent_eval_action.reports.differences import error_line
from agent_eval_action.reports.formatting import Name, Prose, clean
from agent_eval_action.reports.markdown import ADDRESS
from agent_eval_action.reports.messages import KIND_LABELS, OUTCOME_LABELS, Messages, main_event, run_findings
from agent_eval_action.reports.verdict import advice, heading, next_steps, rerun_commands, select_case, why
from agent_eval_action.reports.view import COLUMNS, CaseView, by_severity, cost_rows, facts, passing
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.decision import (
    ChangeKind,
    CriterionChange,
    Decision,
    MainRun,
    PairChange,
    Stat,
    TurnBrief,
)
from agent_eval_action.results.evalset import Invocation
from agent_eval_action.results.findings import Finding
from agent_eval_action.results.history import RunCost, kept_key
from agent_eval_action.results.run_result import (
    AttemptKey,
    AttemptSummary,
    CastVote,
    RunResult,
    SetResult,
    TurnScore,
    Votes,
)
from agent_eval_action.results.trajectory import format_call, format_value
from agent_eval_action.results.transcripts import Medium, Recordings, tool_results

if TYPE_CHECKING:
    from jinja2 import Environment

BUDGET: Final = 9_000_000
"""Bytes of UTF-8. Over it, cases lose their details but keep their row, best cases first."""

MEDIA_BUDGET: Final = 3_000_000
"""Characters of base64 in a page. Over it, media are named but left out, those of the best cases first."""

_DATA: Final = "<!-- data -->"
_ODD: Final = re.compile(r'\\(?!["\\n]|u(?:2212|2026|2265|2264|2192|2013|00b7|201c|201d))')
"""An escaped character in JSON that may need cleaning; the symbols of our own sentences never do.

The pattern begins with a fixed character, which ``re`` finds twenty times as fast as an alternative; so \\x7f is
checked separately.
"""
_LARGE: Final = 50_000
"""Longer JSON, in characters, may hold a text that is longer than a page shows."""
_TEMPLATES: Final = Path(__file__).with_name("templates")
_PURPOSES: Final = {"first": "first pass", "rerun": "re-run", "suite": "suite again", "control": "beside main"}
_ATTEMPTS, _TURNS, _CALLS, _RUBRICS, _SENTENCES, _TRACE = 8, 20, 40, 40, 60, 30
_TEXT, _ARGUMENTS, _FINDINGS, _AGENTS = 4_000, 2_000, 60, 20
_SPANS, _MEDIA, _RESULT = 100, 20, 400
_PHASES: Final = {
    "first": "First pass",
    "rerun": "Re-runs of suspects",
    "suite": "The suite again",
    "control": "Beside main's agent",
}
Json = dict[str, Any]

_encoded: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def html(report: ReportInput, budget: int | None = None) -> str:
    """Render the page in about ``budget`` bytes of UTF-8; every case keeps its row."""
    frame = (
        _environment()
        .get_template("report.html")
        .render(
            title=f"{OUTCOME_LABELS[report.decision.outcome]}: agent evaluation",
            style=_digest("report.css"),
            script=_digest("report.js"),
        )
    )
    before, after = frame.split(_DATA)
    return "".join((before, *_data(report, (BUDGET if budget is None else budget) - len(frame)), after))


def _data(report: ReportInput, budget: int) -> Iterator[str]:
    """Yield the page's data as pieces of JSON that are safe in a script element."""
    cases, messages = report.view.worst_first, report.view.messages
    columns = [row.criterion for row in report.decision.criteria]
    causes = {
        view.key: (at, difference)
        for at, cause in enumerate(report.causes)
        for view, difference in zip(cause.cases, cause.differences, strict=True)
    }
    past = {one.key: one.outcomes for one in report.decision.main_cases}
    yield '{"frame":'
    yield (text := _json(_page_frame(report, cases)))
    room = budget - len(text)
    yield ',"rows":['
    for at, view in enumerate(cases):
        row = {**_row(view, columns, causes.get(view.key), messages), "past": past.get(kept_key(view.key), "")}
        yield ",\n" if at else "\n"
        yield (text := _json(row))
        room -= len(text)
    yield '],\n"details":['
    with RecordedDetails(report.recordings, min(MEDIA_BUDGET, budget // 3)) as recorded:
        configured = {id(owner): _configured(owner) for owner in report.result.sets}
        for at, view in enumerate(cases):
            before = recorded.used
            criteria = configured.get(id(view.owner), [])
            text = _json({**_detail(view, messages, recorded), "criteria": criteria}) if room > 0 else "null"
            room -= len(text) + recorded.used - before
            yield ",\n" if at else ""
            yield text if room > 0 else "null"
    yield "]"
    yield from recorded.media_json()
    yield "}"


def _json(value: Json) -> str:
    """Return ASCII JSON, so that its length is its size in bytes; no text in it can end the script element."""
    try:
        text = _encoded(value)
    except ValueError:  # NaN or an infinity
        text = ""
    if not text or len(text) > _LARGE or "\x7f" in text or _ODD.search(text):
        text = json.dumps(_clean_texts(value), separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _clean_texts(value: Any) -> Any:
    """Clean every text as in the other formats; non-finite numbers become text."""
    if isinstance(value, str):
        return clean(value, _TEXT, lines=True)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {_clean_texts(str(key)): _clean_texts(item) for key, item in value.items()}
    return [_clean_texts(item) for item in value] if isinstance(value, list | tuple) else value


def _row(view: CaseView, columns: Sequence[str], cause: tuple[int, Prose] | None, messages: Messages) -> Json:
    """Return a case's row; a score has sort value, text and tone."""
    pairs = {pair.criterion: pair for pair in view.pairs}
    first = view.pairs[0] if view.pairs else None
    tokens = [attempt.usage.total_tokens for attempt in view.attempts if attempt.usage.total_tokens is not None]
    seconds = [attempt.durations.total for attempt in view.attempts if attempt.durations.total is not None]
    if cause is not None and cause[1]:
        note = cause[1]
    else:
        note = messages.pair(first, with_case=False) if first is not None and view.telling else Prose()
    return {
        "agent": view.key.agent,
        "set": view.key.eval_set,
        "case": view.key.case,
        "where": view.where,
        "group": view.group.name.lower(),
        "cause": cause[0] if cause else None,
        "note": _parts(note),
        "scores": [
            [(value := pair.current.mean if pair.current else None), fmt.number(value, pair.unit), _tone(pair)]
            if pair
            else None
            for pair in map(pairs.get, columns)
        ],
        "runs": "".join(_pip(attempt) for attempt in view.attempts[:20]),
        "main": [first.baseline.passed, first.baseline.n] if first is not None and first.baseline is not None else None,
        "tokens": round(sum(tokens) / len(tokens)) if tokens else None,
        "seconds": round(sum(seconds) / len(seconds), 2) if seconds else None,
        "file": fmt.place(view.owner.path, view.line) if view.owner is not None else "",
        "select": ":".join(select_case(view)),
    }


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
    def attempts(made: Sequence[AttemptSummary]) -> list[Json]:
        return [_attempt(attempt, recorded.turns(view.key, attempt)) for attempt in made[:_ATTEMPTS]]

    return {
        "pairs": [_pair(pair, messages) for pair in view.pairs],
        "attempts": attempts(view.attempts),
        "control": attempts(view.result.control if view.result else ()),
        "more": max(0, len(view.attempts) - _ATTEMPTS),
        "expected": [_turn(turn) for turn in view.expected[:_TURNS]],
        "baseline": [_turn(turn) for turn in view.baseline_turns[:_TURNS]],
        "seen": [view.main.seen, view.main.attempts] if view.main is not None and view.main.seen else None,
    }


def _configured(owner: SetResult) -> list[list[str]]:
    return [
        [
            info.name,
            fmt.limits(info),
            fmt.place(info.source, info.line),
            json.dumps(info.options, sort_keys=True, default=str)[:_ARGUMENTS] if info.options else "",
        ]
        for info in owner.criteria
    ]


def _pair(pair: PairChange, messages: Messages) -> Json:
    def stat(found: Stat | None) -> list[Any] | None:
        return None if found is None else [fmt.number(found.mean, pair.unit), found.passed, found.n]

    return {
        "criterion": pair.criterion,
        "minimize": pair.goal == "minimize",
        "main": stat(pair.baseline),
        "here": stat(pair.current),
        "change": fmt.signed(pair.change, pair.unit),
        "interval": fmt.interval(pair),
        "tone": _tone(pair),
        "needs": fmt.limits(pair),
        "kind": KIND_LABELS[pair.kind],
        "blocking": pair.blocking,
        "why": _parts(messages.pair(pair, with_case=False)),
        "fresh": stat(pair.fresh),
        "control": stat(pair.control),
    }


def _attempt(attempt: AttemptSummary, recorded: Sequence[Json]) -> Json:
    """Return an attempt; ``recorded`` holds what only the transcript has of its turns."""
    error = attempt.error
    return {
        "repeat": attempt.repeat + 1,
        "purpose": _PURPOSES[attempt.purpose],
        "pip": _pip(attempt),
        "error": error_line(error) if error is not None else "",
        "trace": "\n".join(error.traceback.strip().splitlines()[-_TRACE:]) if error is not None else "",
        "tokens": attempt.usage.total_tokens,
        "seconds": [attempt.durations.total, attempt.durations.model, attempt.durations.tool],
        "tries": attempt.tries,
        "scores": [
            {
                "criterion": score.criterion,
                "status": score.status.value,
                "score": score.score,
                "passed": score.passed,
                "reason": score.reason,
                "turns": [_turn_score(turn) for turn in score.turns[:_TURNS]],
            }
            for score in attempt.scores
        ],
        "turns": [
            _turn(turn) | more for turn, more in zip(attempt.turns[:_TURNS], chain(recorded, repeat({})), strict=False)
        ],
    }


def _turn(turn: TurnBrief) -> Json:
    calls = [[call.name, call.args] for call in turn.calls[:_CALLS]]
    return {"user": turn.user, "calls": calls, "answer": turn.response}


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
        "sentences": [[graded.sentence, graded.label, graded.rationale] for graded in turn.sentences[:_SENTENCES]],
    }


def _votes(votes: Votes | None, cast: Sequence[CastVote]) -> list[Any] | None:
    words = [[[vote.yes, vote.rationale] for vote in cast]] if cast else []
    return None if votes is None else [votes.yes, votes.no, votes.left_out, *words]


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - most commands make no page

    return Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )


@cache
def _digest(name: str) -> str:
    """Return the hash of a style or script for the page's content security policy."""
    text = _environment().get_template(name).render()
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


# --- the frame: data about the whole run -----------------------------------------------------------


def _page_frame(report: ReportInput, cases: Sequence[CaseView]) -> Json:
    """Return verdict, causes, criteria, main's history, costs and conditions for the page's script."""
    decision, result = report.decision, report.result
    counted = Counter(view.group for view in cases)

    def sentences(found: Sequence[Finding]) -> list[list[Any]]:
        return [_parts(report.view.messages.sentence(finding)) for finding in found[:_FINDINGS]]

    pairs: defaultdict[str, list[PairChange]] = defaultdict(list)
    for pair in decision.pairs:
        pairs[pair.criterion].append(pair)
    return {
        "outcome": decision.outcome.value,
        "label": OUTCOME_LABELS[decision.outcome],
        "commits": [
            (commit or "")[:7] for commit in (result.conditions.commit, decision.baseline and decision.baseline.commit)
        ],
        "heading": _parts(heading(report)),
        "why": list(map(_parts, why(report))),
        "causes": [
            {"text": _parts(cause.text.sentence), "tone": cause.group.tone, "n": len(cause.cases)}
            for cause in report.causes[:_FINDINGS]
        ],
        "facts": facts(result),
        "weakenings": sentences(decision.weakenings),
        "findings": sentences(run_findings(decision)),
        "notes": sentences(decision.notes),
        "criteria": [_criterion(row, pairs[row.criterion]) for row in sorted(decision.criteria, key=by_severity)],
        "columns": [row.criterion for row in decision.criteria],
        "groups": [
            {"key": group.name.lower(), "label": group.label, "tone": group.tone, "n": counted[group]}
            for group in sorted(counted)
        ],
        "advice": _parts(advice(report).sentence),
        "steps": [
            ["Run just the cases that need attention:", [], rerun_commands(report)],
            *(
                [_parts(step.text), [_parts(place) for place in step.places], step.commands]
                for step in next_steps(result)
            ),
            ["Repeat the whole run:", [], [report.reproduce] if report.reproduce else []],
        ],
        "history": [_main_run(run) for run in decision.main_runs],
        "cost": (RunCost.of_run(result) or RunCost()).model_dump(),
        "tiles": _tiles(result, decision),
        "phases": [
            [_PHASES[phase.purpose], fmt.plural(phase.attempts, "attempt"), phase.start, phase.seconds]
            for phase in result.phases
        ],
        "seconds": result.totals.seconds,
        "uses": {"columns": COLUMNS, "rows": cost_rows(result.totals)},
        "links": [
            {"label": link.label, "target": link.target, "address": bool(ADDRESS.fullmatch(link.target))}
            for link in report.links
        ],
        "run": _run(result, decision),
    }


def _main_run(run: MainRun) -> Json:
    return {
        "commit": run.commit or "",
        "at": run.created_at,
        "means": run.means,
        "share": run.passed / run.cases if run.cases else None,
        "tokens": run.tokens,
        "seconds": run.seconds,
        "usd": run.usd,
        "events": [[event.kind, _parts(main_event(event))] for event in run.events],
    }


def _run(result: RunResult, decision: Decision) -> list[list[Any]]:
    """Return labels and values that describe the run."""
    conditions, base = result.conditions, decision.baseline
    agents = []
    for agent in conditions.agents[:_AGENTS]:
        known = [f"google-adk {agent.adk_version}" if agent.adk_version else "", *agent.models[:5], agent.environment]
        agents.append(f"{agent.agent}: {', '.join(filter(None, known)) or 'nothing is known of its environment'}")
    compared = "nothing: there is no baseline"
    if base is not None:
        compared = " ".join(filter(None, [base.path, f"of {base.commit[:10]}" if base.commit else "", base.created_at]))
    return [
        ["Agents", agents],
        ["Commit", [(conditions.commit or "")[:10]]],
        ["Compared with", [compared]],
        ["Started", [result.started_at]],
        ["Took", [fmt.duration(result.totals.seconds)]],
        ["Attempts", [fmt.attempts(result.totals)]],
        ["Platform", [conditions.platform]],
        ["Made by", [f"agent-eval {conditions.tool_version}"]],
    ]


def _tiles(result: RunResult, decision: Decision) -> list[list[str]]:
    """Return label, value and main's value of each tile."""
    totals, cost = result.totals, RunCost.of_run(result) or RunCost()
    attempts = [attempt for owner in result.sets for case in owner.cases for attempt in case.attempts]
    seconds = [made.durations.total for made in attempts if made.durations.total is not None]
    judged = [use for use in totals.uses if use.purpose != "agent"]

    def on_main(name: str, shown: Callable[[float], str]) -> str:
        known = [value for run in decision.main_runs if (value := getattr(run, name)) is not None]
        return f"main's median {shown(statistics.median(known))}" if known else ""

    tiles = []
    if cost.tokens is not None:
        main = on_main("tokens", lambda value: fmt.count(round(value)))
        tiles.append(["Tokens per attempt", fmt.count(round(cost.tokens)), main])
    if totals.usd is not None:
        main = on_main("usd", lambda value: fmt.number(value, "usd"))
        tiles.append(["Agent and judges", fmt.number(totals.usd, "usd"), main])
    if cost.seconds is not None:
        main = on_main("seconds", fmt.duration)
        middle = fmt.duration(statistics.median(seconds))
        tiles.append(["Attempt, median · p95", f"{middle} · {fmt.duration(cost.seconds)}", main and f"p95: {main}"])
    if judged:
        cached = sum(use.cached for use in judged)
        more = f"{fmt.count(cached)} more from the cache" if cached else ""
        tiles.append(["Judge calls", fmt.count(sum(use.calls for use in judged)), more])
    return tiles


def _criterion(row: CriterionChange, pairs: Sequence[PairChange]) -> Json:
    """Return a row of the table of criteria; ``then`` and ``now`` count pairs by tenths of the scale from 0 to 1."""
    value = row.paired if row.paired is not None else row.current

    def tenths(stats: Iterable[Stat | None]) -> list[int]:
        counted = Counter(min(9, max(0, int(stat.mean * 10))) for stat in stats if stat is not None)
        return [counted[tenth] for tenth in range(10)] if row.unit == "score" else []

    return {
        "name": row.criterion,
        "status": row.status,
        "unit": row.unit,
        "minimize": row.goal == "minimize",
        "main": fmt.number(row.baseline, row.unit),
        "value": value,
        "here": fmt.number(value, row.unit),
        "change": fmt.signed(row.change, row.unit),
        "delta": row.change,
        "interval": row.interval,
        "allowed": row.max_drop if row.goal == "maximize" else None,
        "tone": {"fail": "bad", "error": "warn"}.get(row.status, ""),
        "limits": fmt.limits(row),
        "below": row.failing,
        "errors": row.errors,
        "pairs": row.pairs,
        "then": tenths(pair.baseline for pair in pairs),
        "now": tenths(pair.current for pair in pairs),
    }


def _parts(sentence: Prose) -> list[Any]:
    """Return texts as strings and names, shown in code type, as one-element lists."""
    return [[str(part)] if isinstance(part, Name) else str(part) for part in sentence.cleaned(_TEXT).parts]


# --- details from transcripts: timing of calls, tool results, and media, each once -----------------


@dataclass
class RecordedDetails:
    """Reads the details of attempts; ask for the worst cases first. ``used``: characters that media take so far."""

    recordings: Recordings | None
    budget: int
    used: int = 0
    _file: BinaryIO | None = None
    _media: dict[str, str] = field(default_factory=dict)
    _left_out: set[str] = field(default_factory=set)

    def __enter__(self) -> Self:
        if self.recordings is not None:
            with suppress(OSError):
                self._file = self.recordings.open()
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def turns(self, case: CaseKey, attempt: AttemptSummary) -> list[dict[str, Any]]:
        """Return the details of each turn beyond its excerpt."""
        known, file = self.recordings, self._file
        if known is None or file is None:
            return []
        return [self._turn(known, turn) for turn in known.turns(file, AttemptKey(*case, attempt.repeat, attempt.arm))]

    def media_json(self) -> Iterator[str]:
        """Yield the last members of the page's JSON: media by digest, and the number of media left out."""
        if not self._media and not self._left_out:
            return
        yield ',"media":{'
        for at, (digest, data) in enumerate(self._media.items()):
            yield f'{"," if at else ""}"{digest}":"{data}"'
        yield f'}},"left_out":{len(self._left_out)}'

    def _turn(self, recordings: Recordings, turn: Invocation) -> dict[str, Any]:
        spans = [
            [span.kind, span.name, span.start, span.seconds, span.input_tokens, span.output_tokens]
            for span in sorted(turn.spans, key=lambda span: span.start)[:_SPANS]
        ]
        results = [clean(text, _RESULT, lines=True) for text in tool_results(turn)[:_CALLS]]
        media = [self._medium(recordings, medium) for medium in islice(recordings.media(turn), _MEDIA)]
        return {
            "seconds": turn.duration,
            **({"spans": spans} if spans else {}),
            **({"results": results} if any(results) else {}),
            **({"media": media} if media else {}),
            **({"inner": inner} if turn.inner_events and (inner := list(islice(_inner_calls(turn), _CALLS))) else {}),
        }

    def _medium(self, recordings: Recordings, medium: Medium) -> list[Any]:
        if medium.digest and medium.digest not in self._media:
            fits = (medium.size or 0) * 4 // 3 <= self.budget - self.used
            data = recordings.encoded(medium) if fits else None
            if data is None:
                self._left_out.add(medium.digest)
            else:
                self._media[medium.digest] = data
                self.used += len(data)
        return [medium.place, medium.mime_type, medium.name, medium.digest or medium.uri, medium.size]


def _inner_calls(turn: Invocation) -> Iterator[tuple[int, str]]:
    """Yield calls of agents that were called as tools, with the number of the turn's call that ran the agent."""
    number_of: dict[str | None, int] = {call.id: number for number, call in enumerate(turn.tool_calls()) if call.id}
    answers = {
        part.function_response.id: part.function_response.response
        for event in turn.inner_events
        for part in event.parts
        if part.function_response
    }
    for event in turn.inner_events:
        for call in event.function_calls():
            if event.within in number_of:
                number_of[call.id] = number_of[event.within]
                result = f" → {format_value(answers[call.id], _RESULT)}" if call.id in answers else ""
                yield number_of[event.within], clean(f"{event.author}: {format_call(call)}{result}", 2 * _RESULT)
