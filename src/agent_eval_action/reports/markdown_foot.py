"""The bottom of the comment: how to repeat the run, how to go on, where the files are."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent_eval_action.model.result import Conditions, Totals
from agent_eval_action.reports import format as fmt
from agent_eval_action.reports.base import Link, ReportInput
from agent_eval_action.reports.costs import COLUMNS, cost_rows, cost_text, judge_calls
from agent_eval_action.reports.escape_markdown import code, fence, text
from agent_eval_action.reports.next_steps import next_steps

_ROWS = 20
ADDRESS = re.compile(r"https?://[A-Za-z0-9.:-]+(?:/[A-Za-z0-9._~/%?=&#+-]*)?")


def foot(report: ReportInput) -> str:
    """Everything below the cases."""
    parts = [_costs(report.result.totals), *_commands(report), _conditions(report.result.conditions)]
    if report.links:
        parts.append(f"<sub>{' · '.join(_link(link) for link in report.links)}</sub>")
    return "\n\n".join(part for part in parts if part)


def _commands(report: ReportInput) -> Iterator[str]:
    steps = next_steps(report.result)
    if not report.reproduce and not steps:
        return
    intended = "Is this change intended?" if any(step.accepts for step in steps) else "How to go on"
    yield f"<details>\n<summary>{intended if steps else 'Repeat this run'}</summary>"
    for step in steps:
        yield text(step.text, 500)
        if step.places:
            yield "\n".join(f"* {text(place, 700)}" for place in step.places)
        if step.commands:
            yield fence(step.commands, "sh")
    if report.reproduce:
        yield "Repeat this run on your machine:"
        yield fence([report.reproduce], "sh")
    yield "</details>"


def _costs(totals: Totals) -> str:
    """What each criterion asked of which model, behind one line."""
    rows = cost_rows(totals)
    if not rows:
        return ""
    said = ", ".join(part for part in (judge_calls(totals), cost_text(totals)) if part) or "by purpose and model"
    shown = [
        f"| {text(purpose, 80)} | {text(model, 80)} | {' | '.join(numbers)} |"
        for purpose, model, *numbers in rows[:_ROWS]
    ]
    if len(rows) > _ROWS:
        shown.append(f"| … and {fmt.count(len(rows) - _ROWS)} more in results.json {'| ' * (len(COLUMNS) - 1)}|")
    head = [f"| {' | '.join(COLUMNS)} |", f"| :-- | :-- {'| --: ' * (len(COLUMNS) - 2)}|"]
    return "\n".join(["<details>", f"<summary>Model use: {said}</summary>", "", *head, *shown, "", "</details>"])


def _conditions(conditions: Conditions) -> str:
    said = [f"agent-eval {code(conditions.tool_version, 40)}"]
    for agent in conditions.agents[:5]:
        facts = [f"google-adk {agent.adk_version}" if agent.adk_version else "", *agent.models[:3]]
        known = ", ".join(text(fact, 80) for fact in facts if fact)
        said.append(f"{code(agent.agent, 80)}{f': {known}' if known else ''}")
    if conditions.commit:
        said.append(f"commit {code(conditions.commit[:10], 40)}")
    return f"<sub>{' · '.join(said)}</sub>"


def _link(link: Link) -> str:
    if ADDRESS.fullmatch(link.target):
        return f"[{text(link.label, 80)}]({link.target})"
    return f"{text(link.label, 80)}: {code(link.target, 200)}"
