"""report.html: one file that loads nothing. The data is JSON in the page; its script renders what is looked at."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.base import ReportInput
from agent_eval_action.reports.causes import error_line
from agent_eval_action.reports.formatting import clean
from agent_eval_action.reports.markdown import ADDRESS
from agent_eval_action.reports.messages import Messages, run_findings
from agent_eval_action.reports.next_steps import advice, next_steps, rerun_commands, select_case
from agent_eval_action.reports.prose import Name, Prose
from agent_eval_action.reports.verdict import heading, why
from agent_eval_action.reports.view import COLUMNS, CaseView, Group, by_severity, cost_rows, facts, passing
from agent_eval_action.results.decision import ChangeKind, CriterionChange, Decision, PairChange, Stat, TurnBrief
from agent_eval_action.results.history import kept_key
from agent_eval_action.results.run_result import (
    AgentConditions,
    AttemptSummary,
    CriterionScore,
    RunResult,
    SetResult,
    TurnScore,
    Votes,
)

if TYPE_CHECKING:
    from jinja2 import Environment

Json = dict[str, Any]

BUDGET: Final = 9_000_000
"""Bytes of UTF-8. Beyond it cases keep their row and lose what is behind it, the best ones first."""

_DATA: Final = "<!-- data -->"
_ODD: Final = re.compile(r'\x7f|\\(?!["\\n]|u(?:2212|2026|2265|2264|2192|2013|00b7|201c|201d))')
"""In JSON: a character that may have to be cleaned. The signs of our own sentences never have to."""
_LARGE: Final = 50_000
"""Characters of JSON in which a text may be longer than a page shows."""
_TEMPLATES: Final = Path(__file__).with_name("templates")
_PURPOSES: Final = {"first": "first pass", "rerun": "re-run", "suite": "suite again", "control": "beside main"}
_TONES: Final = {
    Group.REGRESSED: "bad",
    Group.NEEDS_RUNS: "warn",
    Group.NOT_MEASURED: "warn",
    Group.BELOW_THRESHOLD: "bad",
    Group.WORSE: "warn",
    Group.BETTER: "good",
}
_ATTEMPTS, _TURNS, _CALLS, _RUBRICS, _SENTENCES, _TRACE = 8, 20, 40, 40, 60, 30
_TEXT, _ARGUMENTS, _FINDINGS, _AGENTS = 4_000, 2_000, 60, 20


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
    return "".join((before, *_data(report, BUDGET if budget is None else budget), after))


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
    yield (text := _json(_frame(report, cases)))
    room = budget - len(text)
    for at, view in enumerate(cases):
        row = {**_row(view, columns, causes.get(view.key), messages), "past": past.get(kept_key(view.key), "")}
        yield ",\n" if at else ',\n"rows":['
        yield (text := _json(row))
        room -= len(text)
    yield '],\n"details":[' if cases else ',"rows":[],"details":['
    for at, view in enumerate(cases):
        text = _json(_detail(view, messages)) if room > 0 else "null"
        room -= len(text)
        yield ",\n" if at else ""
        yield text if room > 0 else "null"
    yield "]}"


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


def _frame(report: ReportInput, cases: Sequence[CaseView]) -> Json:
    decision, result = report.decision, report.result
    counted = Counter(view.group for view in cases)
    messages = report.view.messages
    pairs: defaultdict[str, list[PairChange]] = defaultdict(list)
    for pair in decision.pairs:
        pairs[pair.criterion].append(pair)
    return {
        "outcome": decision.outcome.value,
        "label": fmt.OUTCOME_LABELS[decision.outcome],
        "heading": _prose(heading(report)),
        "why": [_prose(sentence) for sentence in why(report)],
        "causes": [
            {"text": _prose(cause.text.sentence), "tone": _tone_of(cause.group), "n": len(cause.cases)}
            for cause in report.causes[:_FINDINGS]
        ],
        "facts": facts(result),
        "weakenings": [_prose(messages.sentence(finding)) for finding in decision.weakenings[:_FINDINGS]],
        "findings": [_prose(messages.sentence(finding)) for finding in run_findings(decision)[:_FINDINGS]],
        "notes": [_prose(messages.sentence(note)) for note in decision.notes[:_FINDINGS]],
        "criteria": [_criterion(row, pairs[row.criterion]) for row in sorted(decision.criteria, key=by_severity)],
        "columns": [row.criterion for row in decision.criteria],
        "groups": [
            {
                "key": group.name.lower(),
                "label": group.label,
                "tone": _tone_of(group),
                "n": counted[group],
            }
            for group in sorted(counted)
        ],
        "advice": _prose(advice(report).sentence),
        "steps": [
            ["Run just the cases that need attention:", [], rerun_commands(report)],
            *(
                [_prose(step.text), [_prose(place) for place in step.places], step.commands]
                for step in next_steps(result)
            ),
            ["Repeat the whole run:", [], [report.reproduce] if report.reproduce else []],
        ],
        "history": [
            [run.commit or "", run.created_at, run.models, run.means, run.passed, run.cases]
            for run in decision.main_runs
        ],
        "tiles": _tiles(result),
        "uses": {"columns": COLUMNS, "rows": cost_rows(result.totals)},
        "links": [
            {"label": link.label, "target": link.target, "address": bool(ADDRESS.fullmatch(link.target))}
            for link in report.links
        ],
        "run": _run(result, decision),
    }


def _run(result: RunResult, decision: Decision) -> list[list[Any]]:
    """What was run: labels with their values."""
    conditions = result.conditions
    return [
        ["Agents", [_agent(agent) for agent in conditions.agents[:_AGENTS]]],
        ["Commit", [(conditions.commit or "")[:10]]],
        ["Compared with", [_baseline(decision)]],
        ["Started", [result.started_at]],
        ["Took", [fmt.duration(result.totals.seconds)]],
        ["Attempts", [fmt.attempts(result.totals)]],
        ["Platform", [conditions.platform]],
        ["Made by", [f"agent-eval {conditions.tool_version}"]],
    ]


def _baseline(decision: Decision) -> str:
    base = decision.baseline
    if base is None:
        return "nothing: there is no baseline"
    return " ".join(filter(None, [base.path, f"of {base.commit[:10]}" if base.commit else "", base.created_at]))


def _agent(agent: AgentConditions) -> str:
    known = [f"google-adk {agent.adk_version}" if agent.adk_version else "", *agent.models[:5], agent.environment]
    return f"{agent.agent}: {', '.join(filter(None, known)) or 'nothing is known of its environment'}"


def _tiles(result: RunResult) -> list[list[str]]:
    totals = result.totals
    turns = sorted(
        attempt.durations.total
        for owner in result.sets
        for case in owner.cases
        for attempt in case.attempts
        if attempt.durations.total is not None
    )
    tokens = totals.usage.total_tokens
    judged = [use for use in totals.uses if use.purpose != "agent"]
    tiles = []
    if tokens is not None and totals.attempts:
        tiles.append(["Tokens per attempt", fmt.count(round(tokens / max(1, totals.attempts + totals.control)))])
    if totals.usd is not None:
        tiles.append(["Agent and judges", fmt.number(totals.usd, "usd")])
    if turns:
        late = turns[min(len(turns) - 1, int(0.95 * len(turns)))]
        tiles.append(["Attempt, median · p95", f"{fmt.duration(turns[len(turns) // 2])} · {fmt.duration(late)}"])
    if judged:
        cached = sum(use.cached for use in judged)
        more = f" + {fmt.count(cached)} cached" if cached else ""
        tiles.append(["Judge calls", f"{fmt.count(sum(use.calls for use in judged))}{more}"])
    return tiles


def _criterion(row: CriterionChange, pairs: Sequence[PairChange]) -> Json:
    """A row of the table of criteria; ``then`` and ``now`` count its pairs by tenths of the scale from 0 to 1."""
    value = row.paired if row.paired is not None else row.current
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
        "tone": "bad" if row.status == "fail" else "warn" if row.status == "error" else "",
        "limits": fmt.limits(row),
        "below": row.failing,
        "errors": row.errors,
        "pairs": row.pairs,
        "then": _tenths(pair.baseline for pair in pairs) if row.unit == "score" else [],
        "now": _tenths(pair.current for pair in pairs) if row.unit == "score" else [],
    }


def _tenths(stats: Iterable[Stat | None]) -> list[int]:
    counted = Counter(min(9, max(0, int(stat.mean * 10))) for stat in stats if stat is not None)
    return [counted[tenth] for tenth in range(10)]


def _tone_of(group: Group) -> str:
    return _TONES.get(group, "")


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
        return _prose(cause[1])
    return _prose(messages.pair(view.pairs[0], with_case=False)) if view.pairs and view.telling else []


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


def _detail(view: CaseView, messages: Messages) -> Json:
    case = view.result
    return {
        "pairs": [_pair(pair, messages) for pair in view.pairs],
        "attempts": [_attempt(attempt) for attempt in (case.attempts if case else ())[:_ATTEMPTS]],
        "control": [_attempt(attempt) for attempt in (case.control if case else ())[:_ATTEMPTS]],
        "more": max(0, len(case.attempts) - _ATTEMPTS) if case else 0,
        "expected": [_turn(turn) for turn in (case.expected if case else ())[:_TURNS]],
        "baseline": [_turn(turn) for turn in view.baseline_turns[:_TURNS]],
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
        "why": _prose(messages.pair(pair, with_case=False)),
        "fresh": _stat(pair.fresh, pair),
        "control": _stat(pair.control, pair),
    }


def _stat(stat: Stat | None, pair: PairChange) -> list[Any] | None:
    return None if stat is None else [fmt.number(stat.mean, pair.unit), stat.passed, stat.n]


def _attempt(attempt: AttemptSummary) -> Json:
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
        "scores": [_score(score) for score in attempt.scores],
        "turns": [_turn(turn) for turn in attempt.turns[:_TURNS]],
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
        "votes": _votes(turn.votes),
        "rubrics": [
            [rubric.rubric_id, rubric.text, rubric.score, _votes(rubric.votes), rubric.rationale]
            for rubric in turn.rubrics[:_RUBRICS]
        ],
        "sentences": [[one.sentence, one.label, one.rationale] for one in turn.sentences[:_SENTENCES]],
    }


def _votes(votes: Votes | None) -> list[int] | None:
    return None if votes is None else [votes.yes, votes.no, votes.left_out]


def _prose(sentence: Prose) -> list[Any]:
    """Text as text, names (shown in code type) each as a list of one."""
    return [[str(part)] if isinstance(part, Name) else str(part) for part in sentence.cleaned(_TEXT).parts]


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
