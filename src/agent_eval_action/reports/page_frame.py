"""The page's frame: what report.html shows of the run as a whole. ``html`` adds the cases."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.base import ReportInput
from agent_eval_action.reports.markdown import ADDRESS
from agent_eval_action.reports.messages import main_event, run_findings
from agent_eval_action.reports.next_steps import advice, next_steps, rerun_commands
from agent_eval_action.reports.prose import Name, Prose
from agent_eval_action.reports.verdict import heading, why
from agent_eval_action.reports.view import COLUMNS, CaseView, Group, by_severity, cost_rows, facts
from agent_eval_action.results.decision import CriterionChange, Decision, MainRun, PairChange, Stat
from agent_eval_action.results.history import RunCost
from agent_eval_action.results.run_result import AgentConditions, RunResult

Json = dict[str, Any]

_TEXT, _FINDINGS, _AGENTS = 4_000, 60, 20
_PHASES: Final = {
    "first": "First pass",
    "rerun": "Re-runs of suspects",
    "suite": "The suite again",
    "control": "Beside main's agent",
}
_TONES: Final = {
    Group.REGRESSED: "bad",
    Group.NEEDS_RUNS: "warn",
    Group.NOT_MEASURED: "warn",
    Group.BELOW_THRESHOLD: "bad",
    Group.WORSE: "warn",
    Group.BETTER: "good",
}


def page_frame(report: ReportInput, cases: Sequence[CaseView]) -> Json:
    """Verdict, causes, criteria, main's past, cost and conditions, as the page's script reads them."""
    decision, result = report.decision, report.result
    counted = Counter(view.group for view in cases)
    messages = report.view.messages
    pairs: defaultdict[str, list[PairChange]] = defaultdict(list)
    for pair in decision.pairs:
        pairs[pair.criterion].append(pair)
    return {
        "outcome": decision.outcome.value,
        "label": fmt.OUTCOME_LABELS[decision.outcome],
        "commits": [
            (commit or "")[:7] for commit in (result.conditions.commit, decision.baseline and decision.baseline.commit)
        ],
        "heading": prose_parts(heading(report)),
        "why": [prose_parts(sentence) for sentence in why(report)],
        "causes": [
            {"text": prose_parts(cause.text.sentence), "tone": tone_of(cause.group), "n": len(cause.cases)}
            for cause in report.causes[:_FINDINGS]
        ],
        "facts": facts(result),
        "weakenings": [prose_parts(messages.sentence(finding)) for finding in decision.weakenings[:_FINDINGS]],
        "findings": [prose_parts(messages.sentence(finding)) for finding in run_findings(decision)[:_FINDINGS]],
        "notes": [prose_parts(messages.sentence(note)) for note in decision.notes[:_FINDINGS]],
        "criteria": [_criterion(row, pairs[row.criterion]) for row in sorted(decision.criteria, key=by_severity)],
        "columns": [row.criterion for row in decision.criteria],
        "groups": [
            {"key": group.name.lower(), "label": group.label, "tone": tone_of(group), "n": counted[group]}
            for group in sorted(counted)
        ],
        "advice": prose_parts(advice(report).sentence),
        "steps": [
            ["Run just the cases that need attention:", [], rerun_commands(report)],
            *(
                [prose_parts(step.text), [prose_parts(place) for place in step.places], step.commands]
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
        "events": [[event.kind, prose_parts(main_event(event))] for event in run.events],
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


def _tiles(result: RunResult, decision: Decision) -> list[list[str]]:
    """Label, value, and what it was on main."""
    totals, cost = result.totals, RunCost.of_run(result) or RunCost()
    attempts = [attempt for owner in result.sets for case in owner.cases for attempt in case.attempts]
    seconds = [made.durations.total for made in attempts if made.durations.total is not None]
    judged = [use for use in totals.uses if use.purpose != "agent"]

    def on_main(values: Iterable[float | None], shown: Callable[[float], str]) -> str:
        known = [value for value in values if value is not None]
        return f"main's median {shown(statistics.median(known))}" if known else ""

    tiles = []
    if cost.tokens is not None:
        main = on_main((run.tokens for run in decision.main_runs), lambda value: fmt.count(round(value)))
        tiles.append(["Tokens per attempt", fmt.count(round(cost.tokens)), main])
    if totals.usd is not None:
        main = on_main((run.usd for run in decision.main_runs), lambda value: fmt.number(value, "usd"))
        tiles.append(["Agent and judges", fmt.number(totals.usd, "usd"), main])
    if cost.seconds is not None:
        main = on_main((run.seconds for run in decision.main_runs), fmt.duration)
        middle = fmt.duration(statistics.median(seconds))
        tiles.append(["Attempt, median · p95", f"{middle} · {fmt.duration(cost.seconds)}", main and f"p95: {main}"])
    if judged:
        cached = sum(use.cached for use in judged)
        more = f"{fmt.count(cached)} more from the cache" if cached else ""
        tiles.append(["Judge calls", fmt.count(sum(use.calls for use in judged)), more])
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


def tone_of(group: Group) -> str:
    """How a class of cases is coloured; "" for one that is neither good nor bad."""
    return _TONES.get(group, "")


def prose_parts(sentence: Prose) -> list[Any]:
    """Text as text, names (shown in code type) each as a list of one."""
    return [[str(part)] if isinstance(part, Name) else str(part) for part in sentence.cleaned(_TEXT).parts]
