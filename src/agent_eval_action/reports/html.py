"""report.html: one file with every case, its turns and what was said of them; it loads nothing and runs only its own.

jinja2 escapes every value; a policy in the page itself lets the browser run the one script that is in it, by digest.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent_eval_action.model.decision import CriterionChange
from agent_eval_action.model.result import AgentConditions
from agent_eval_action.reports import format as fmt
from agent_eval_action.reports import html_case
from agent_eval_action.reports.base import ReportInput
from agent_eval_action.reports.cases import CaseView, severity, views
from agent_eval_action.reports.cleaning import clean
from agent_eval_action.reports.costs import COLUMNS, cost_rows, cost_text, judge_calls
from agent_eval_action.reports.markdown_foot import ADDRESS
from agent_eval_action.reports.next_steps import next_steps

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from markupsafe import Markup

BUDGET: Final = 6_000_000
"""What a telephone still opens; beyond it cases keep their line and lose what is behind it, the best ones first."""

_TEMPLATES: Final = Path(__file__).with_name("templates")
_FINDINGS, _NOTES, _AGENTS = 60, 60, 20
_ROW: Final = 400  # bytes of a case's line, generously
_TEXT: Final = 4_000
_SPAN: Final = re.compile(r"`([^`]+)`")


def html(report: ReportInput, budget: int | None = None) -> str:
    """The page in about ``budget`` bytes of UTF-8: its frame and a line for every case are there in any case."""
    env = _environment()
    cases = sorted(views(report.result, report.decision), key=lambda view: (view.group, severity(view)))
    shown = list(_cases(cases, env.get_template("case.html"), BUDGET if budget is None else budget))
    page = env.get_template("report.html")
    return page.render(**_frame(report, cases), cases=shown, style=_digest("report.css"), script=_digest("report.js"))


def _cases(cases: list[CaseView], template: Template, budget: int) -> Iterator[Any]:
    """Each case as markup: whole while there is room beside the lines of those that follow."""
    from markupsafe import Markup  # noqa: PLC0415 - not needed by other reports

    room = budget - _ROW * len(cases)
    for view in cases:
        text = template.render(case=html_case.case(view), whole=True) if room > 0 else ""
        room -= len(text.encode()) - _ROW
        if not text or room < 0:  # the page is full: of those that follow nothing is made in vain
            text, room = template.render(case=html_case.row(view), whole=False), 0
        yield Markup(text)  # noqa: S704 - made by our own template, which escaped every value


def _frame(report: ReportInput, cases: list[CaseView]) -> dict[str, Any]:
    decision, result = report.decision, report.result
    counted = Counter(view.group for view in cases)
    told = {decision.reason, *(one.reason for one in decision.weakenings)}
    findings = [one for one in decision.findings if one.case is None and one.reason not in told]
    return {
        "outcome": decision.outcome.value,
        "label": fmt.OUTCOME_LABELS[decision.outcome],
        "reason": decision.reason,
        "facts": _facts(report),
        "weakenings": [one.reason for one in decision.weakenings[:_FINDINGS]],
        "findings": [one.reason for one in findings[:_FINDINGS]],
        "notes": list(decision.notes[:_NOTES]),
        "criteria": [_criterion(row) for row in sorted(decision.criteria, key=fmt.by_severity)],
        "groups": [(html_case.KEYS[g], html_case.WORDS[g], fmt.count(counted[g])) for g in sorted(counted)],
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


def _facts(report: ReportInput) -> list[str]:
    totals, base = report.result.totals, report.decision.baseline
    facts = [fmt.plural(totals.cases, "case"), fmt.attempts(totals)]
    if totals.errors:
        facts.append(fmt.plural(totals.errors, "error"))
    if totals.usage.total_tokens is not None:
        facts.append(f"{fmt.count(totals.usage.total_tokens)} tokens")
    facts += [said for said in (judge_calls(totals), cost_text(totals)) if said]
    facts.append(fmt.duration(totals.seconds))
    of = f" of {base.commit[:10]}" if base is not None and base.commit else ""
    return [*facts, "no baseline" if base is None else f"baseline {base.path}{of}"]


def _criterion(row: CriterionChange) -> dict[str, Any]:
    worse = fmt.is_worse(row.change, row.goal)
    return {
        "name": row.criterion,
        "lower": row.goal == "minimize",
        "then": fmt.number(row.baseline, row.unit),
        "now": fmt.number(row.paired if row.paired is not None else row.current, row.unit),
        "change": fmt.change(row),
        "tone": "bad" if worse else "good" if fmt.is_better(row.change, row.goal) else "",
        "limits": fmt.limits(row.unit, row.goal, row.threshold, row.limit),
        "detectable": fmt.detectable(row),
        "below": row.failing,
        "pairs": row.pairs,
        "errors": fmt.plural(row.errors, "error") if row.errors else "",
        "status": row.status.replace("_", " "),
        "status_tone": {"fail": "bad", "error": "warn", "pass": "good"}.get(row.status, ""),
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


def _prose(text: str) -> Markup:
    """A sentence of ours: what it has between backticks is shown in code type."""
    from markupsafe import Markup, escape  # noqa: PLC0415 - not needed by other reports

    parts = _SPAN.split(clean(text, _TEXT))
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if index % 2 else escape(part) for index, part in enumerate(parts))


def _shown(value: Any) -> Any:
    """Every value on its way into the page: what draws, hides or breaks goes, as in every other format."""
    if type(value) is not str or (len(value) <= _TEXT and value.isascii() and value.isprintable()):
        return value  # nothing to clean, which half a million values are
    return clean(value, _TEXT, lines=True)


@cache
def _digest(name: str) -> str:
    """The policy's word for a style or script of the page: the browser takes no other."""
    text = _environment().get_template(name).render()
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
