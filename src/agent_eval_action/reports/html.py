"""What the page shows of one case, as plain values: text is escaped where the page is made, and nowhere here."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.base import ReportInput
from agent_eval_action.reports.case_text import error_line, turn_diffs
from agent_eval_action.reports.formatting import clean
from agent_eval_action.reports.markdown import ADDRESS
from agent_eval_action.reports.messages import Messages, run_findings
from agent_eval_action.reports.next_steps import next_steps
from agent_eval_action.reports.prose import Prose
from agent_eval_action.reports.view import (
    COLUMNS,
    GROUP_LABELS,
    CaseView,
    Group,
    cost_rows,
    facts,
    is_supported,
    passing,
    rubric_mark,
    rubric_votes,
    votes_text,
    worst_attempt,
)
from agent_eval_action.results.decision import ChangeKind, PairChange, Stat, TurnBrief, Unit
from agent_eval_action.results.run_result import (
    AgentConditions,
    AttemptSummary,
    CriterionScore,
    Purpose,
    RubricScore,
    ScoreStatus,
    SentenceLabel,
    TurnScore,
)
from agent_eval_action.results.trajectory import format_call

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from markupsafe import Markup


Shown = dict[str, Any]

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
        "word": GROUP_LABELS[view.group],
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
        "reason": Messages().pair(pair, with_case=False),
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
    mark = rubric_mark(rubric)
    return {
        "mark": mark,
        "tone": {"✗": "bad", "?": "warn"}.get(mark, "good"),
        "id": rubric.rubric_id,
        "text": rubric.text[:_CALL],
        "counted": rubric_votes(rubric),
        "why": rubric.rationale[:_TEXT],
    }


def _sentence(sentence: SentenceLabel) -> Shown:
    return {
        "label": sentence.label.replace("_", " "),
        "tone": "" if is_supported(sentence) else "bad",
        "text": sentence.sentence[:_TEXT],
        "why": sentence.rationale[:_TEXT],
    }


BUDGET: Final = 6_000_000
"""What a telephone still opens; beyond it cases keep their line and lose what is behind it, the best ones first."""

_TEMPLATES: Final = Path(__file__).with_name("templates")
_FINDINGS, _NOTES, _AGENTS = 60, 60, 20
_ROW: Final = 400  # bytes of a case's line, generously
_TEXT_HTML: Final = 4_000


def html(report: ReportInput, budget: int | None = None) -> str:
    """The page in about ``budget`` bytes of UTF-8: its frame and a line for every case are there in any case."""
    env = _environment()
    cases = report.view.worst_first
    shown = list(_cases(cases, env.get_template("case.html"), BUDGET if budget is None else budget))
    page = env.get_template("report.html")
    return page.render(**_frame(report, cases), cases=shown, style=_digest("report.css"), script=_digest("report.js"))


def _cases(cases: list[CaseView], template: Template, budget: int) -> Iterator[Any]:
    """Each case as markup: whole while there is room beside the lines of those that follow."""
    from markupsafe import Markup  # noqa: PLC0415 - not needed by other reports

    room = budget - _ROW * len(cases)
    for view in cases:
        text = template.render(case=case(view), whole=True) if room > 0 else ""
        room -= len(text.encode()) - _ROW
        if not text or room < 0:  # the page is full: of those that follow nothing is made in vain
            text, room = template.render(case=row(view), whole=False), 0
        yield Markup(text)  # noqa: S704 - made by our own template, which escaped every value


def _frame(report: ReportInput, cases: list[CaseView]) -> dict[str, Any]:
    decision, result = report.decision, report.result
    counted = Counter(view.group for view in cases)
    messages = report.view.messages
    findings = run_findings(decision)[:_FINDINGS]
    return {
        "outcome": decision.outcome.value,
        "label": fmt.OUTCOME_LABELS[decision.outcome],
        "reason": messages.headline(decision),
        "facts": facts(result, decision),
        "weakenings": [messages.sentence(finding) for finding in decision.weakenings[:_FINDINGS]],
        "findings": [messages.sentence(finding) for finding in findings],
        "notes": [messages.sentence(note) for note in decision.notes[:_NOTES]],
        "criteria": report.view.criteria,
        "groups": [(KEYS[g], GROUP_LABELS[g], fmt.count(counted[g])) for g in sorted(counted)],
        "total": fmt.plural(len(cases), "case"),
        "columns": COLUMNS,
        "costs": cost_rows(result.totals),
        "reproduce": report.reproduce,
        "steps": [(step.text, step.places, "\n".join(step.commands)) for step in next_steps(result)],
        "links": [(link.label, link.target, bool(ADDRESS.fullmatch(link.target))) for link in report.links],
        "started": result.started_at,
        "version": result.conditions.tool_version,
        "commit": (result.conditions.commit or "")[:10],
        "agents": [_agent(agent) for agent in result.conditions.agents[:_AGENTS]],
    }


def _agent(agent: AgentConditions) -> str:
    known = [f"google-adk {agent.adk_version}" if agent.adk_version else "", *agent.models[:5], agent.environment]
    return f"{agent.agent}: {', '.join(fact for fact in known if fact) or 'nothing is known of its environment'}"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - most commands make no page

    env = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters["prose"] = _prose
    return env


def _prose(sentence: Prose) -> Markup:
    """A sentence of ours, its names in code type."""
    from markupsafe import Markup, escape  # noqa: PLC0415 - not needed by other reports

    code = Markup("<code>{}</code>")
    return Markup(  # noqa: S704 - every part is escaped
        sentence.cleaned(_TEXT_HTML).render(lambda text: str(escape(text)), lambda name: str(code.format(name)))
    )


def _shown(value: Any) -> Any:
    """Every value on its way into the page: what draws, hides or breaks goes, as in every other format."""
    if type(value) is not str or (len(value) <= _TEXT_HTML and value.isascii() and value.isprintable()):
        return value  # nothing to clean, which half a million values are
    return clean(value, _TEXT_HTML, lines=True)


@cache
def _digest(name: str) -> str:
    """The policy's word for a style or script of the page: the browser takes no other."""
    text = _environment().get_template(name).render()
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
