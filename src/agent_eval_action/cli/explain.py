"""``agent-eval explain CASE``: one case in the eval files, in main's history and in the last run."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from agent_eval_action.cli.log import data_console, print_columns, print_line, terminal
from agent_eval_action.cli.outputs import read_last_run
from agent_eval_action.cli.session import plan_of, read_history, settings_for
from agent_eval_action.config.models import Settings
from agent_eval_action.diagnostics.reader import did_you_mean
from agent_eval_action.diagnostics.suggestions import shortlist
from agent_eval_action.errors import ResultsError, UsageError
from agent_eval_action.git.repository import Repository
from agent_eval_action.reports import ReportInput
from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.differences import first_difference
from agent_eval_action.reports.messages import KIND_LABELS
from agent_eval_action.reports.verdict import next_steps, quoted_case
from agent_eval_action.reports.view import CaseView
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.decision import ChangeKind, PairChange
from agent_eval_action.results.evalset import JsonObject
from agent_eval_action.results.history import Accepted, History, PairHistory, Quarantine, kept_key, kept_name
from agent_eval_action.results.pair_scores import meets
from agent_eval_action.results.run_result import CriterionInfo
from agent_eval_action.run.plan import Plan, PlannedCase, PlannedSet

_NAMES_SHOWN: Final = 8
_CHANGE: Final = ("commit", "at", "what")
_OUTCOMES: Final = {"p": "passed", "f": "failed", "m": "mixed", "-": "not run"}


def explain_command(
    name: str, agent: str | None, eval_set: str | None, results: Path | None, config: str | None, *, as_json: bool
) -> None:
    """Print the explanation on stdout. Raises UsageError if no case, or more than one, has this name."""
    settings = settings_for({"config": config}).settings
    plan = plan_of(settings)
    planned, item = _find(plan, name, agent, eval_set)
    found = _explanation(settings, plan, planned, item, results)
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        _show(found)


def _find(plan: Plan, name: str, agent: str | None, eval_set: str | None) -> tuple[PlannedSet, PlannedCase]:
    every = [(planned, item) for planned in plan.sets for item in planned.cases]
    named = [(planned, item) for planned, item in every if item.case.eval_id == name]
    found = [match for match in named if match[0].agent == (agent or match[0].agent)]
    found = [match for match in found if match[0].key == (eval_set or match[0].key)]
    if len(found) == 1:
        return found[0]

    def places(cases: Sequence[tuple[PlannedSet, PlannedCase]]) -> str:
        return shortlist(cases, _NAMES_SHOWN, lambda match: f"{match[0].agent} / {match[0].key}")

    if found:
        agent, eval_set = found[0][0].agent, found[0][0].key
        hint = f"name one of them: --agent {shlex.quote(agent)} --eval-set {shlex.quote(eval_set)}"
        raise UsageError(f"{len(found)} cases are called {name!r}: {places(found)}", hint=hint)
    if named:
        raise UsageError(f"there is no case {name!r} there", hint=f"it is in {places(named)}")
    ids = sorted({item.case.eval_id for _, item in every})
    hint = did_you_mean(name, ids) or f"known: {shortlist(ids, _NAMES_SHOWN)}"
    raise UsageError(f"there is no case {name!r}", hint=hint)


def _explanation(
    settings: Settings, plan: Plan, planned: PlannedSet, item: PlannedCase, results: Path | None
) -> JsonObject:
    """Return everything known about a case, as ``--json`` prints it.

    ``outcomes``: one letter for each run of main, oldest first. ``edited``: the last commit that touched the case.
    ``turned``: the newest run of main in which its outcome changed.
    """
    key, session = planned.case_key(item), read_history(settings)
    history = session.history(plan.suite())
    report, view = _last_view(settings, key, results)
    stored, names = kept_key(key), [kept_name(info.name) for info in planned.infos]
    entries = [entry for entry in session.entries if any(entry.covers(stored, name) for name in names)]
    quarantine = next((entry for entry in entries if isinstance(entry, Quarantine)), None)
    overdue = {"overdue": "yes" if quarantine in history.overdue else "no"}
    outcomes = next((known.outcomes for known in history.main_cases if known.key == stored), "")
    criteria = [_criterion(info, history.pair(key, info.name), view, report) for info in planned.infos]
    offered = ["run"]
    if changed := view is not None and view.needs_attention:
        offered += ["update", "accept"]
    if changed or any(row["main"] and row["main"]["flaky"] for row in criteria):
        offered.append("quarantine")
    commands = _commands(planned.path, key, alone=sum(other.case == key.case for other, _ in plan.digests()) == 1)
    return {
        "case": key.case,
        "agent": key.agent,
        "eval_set": key.eval_set,
        "path": planned.path,
        "line": item.case.line,
        "turns": len(item.case.conversation or ()),
        "edited": _last_edit(settings, planned, item),
        "criteria": criteria,
        "source": history.source,
        "outcomes": outcomes,
        "turned": _last_outcome_change(outcomes, history),
        "quarantine": _entry_fields(quarantine) | overdue if quarantine else None,
        "accepted": [_entry_fields(entry) for entry in entries if not isinstance(entry, Quarantine)],
        "last_run": _last_run(report, view) if report and view else None,
        "commands": {name: commands[name] for name in offered},
    }


def _entry_fields(entry: Accepted) -> dict[str, str]:
    return {name: str(value) for name, value in entry.model_dump(exclude={"id"}).items() if value is not None}


def _last_view(settings: Settings, key: CaseKey, results: Path | None) -> tuple[ReportInput | None, CaseView | None]:
    try:
        report = ReportInput(read_last_run(settings, results))
    except ResultsError:
        if results is not None:
            raise
        return None, None
    return report, next((view for view in report.view.cases if view.key == key and view.result is not None), None)


def _criterion(info: CriterionInfo, past: PairHistory, view: CaseView | None, report: ReportInput | None) -> JsonObject:
    """Describe a criterion of the case. ``main``: its comparable scores; ``met``: attempts that meet the threshold."""
    main, threshold = None, info.threshold
    if past.scores:
        scores = [score for score, _ in past.scores]
        met = None
        if threshold is not None:
            met = sum(times for score, times in past.scores if meets(score, threshold, info.goal))
        main = {
            "runs": past.runs,
            "attempts": past.n,
            "mean": sum(score * times for score, times in past.scores) / past.n,
            "low": min(scores),
            "high": max(scores),
            "met": met,
            "flaky": met is not None and 0 < met < past.n,
        }
    pair = view.pair(info.name) if view is not None else None
    return {
        "criterion": info.name,
        "lower_is_better": info.goal == "minimize",
        "threshold": threshold,
        "where": fmt.criterion_place(info.source, info.line),
        "main": main,
        "why_no_main": "" if main else past.incomparable,
        "last_run": _last_score(pair, report) if pair is not None and report is not None else None,
    }


def _last_score(pair: PairChange, report: ReportInput) -> JsonObject:
    """Describe a criterion in the last run. ``short``: how far the mean misses the threshold; 0 if it is met."""
    mean, short = pair.current.mean if pair.current else None, None
    if mean is not None and pair.threshold is not None:
        away = mean - pair.threshold if pair.goal == "minimize" else pair.threshold - mean
        short = max(0.0, away)
    return {
        "mean": mean,
        "attempts": pair.current.n if pair.current else 0,
        "errors": pair.errors,
        "outcome": KIND_LABELS[pair.kind],
        "blocks": pair.blocking,
        "short": short,
        "says": str(report.view.messages.pair(pair, with_case=False)),
    }


def _last_run(report: ReportInput, view: CaseView) -> JsonObject:
    """Describe the last run of the case; its steps are those of a run of this case alone."""
    decision, result = report.decision, report.result
    # findings about the whole suite would add steps that do not concern this case
    findings = tuple(finding for finding in decision.findings if finding.subject.case == view.key.case)
    alone = decision.model_copy(update={"pairs": view.pairs, "criteria": (), "findings": findings})
    steps = next_steps(result.model_copy(update={"decision": alone})) if view.needs_attention else ()
    return {
        "commit": result.conditions.commit or "",
        "started_at": result.started_at,
        "outcome": view.group.label,
        "blocks": view.blocks,
        "first_difference": str(first_difference(view).text) if view.needs_attention else "",
        "to_pass": [line for step in steps for line in (str(step.text), *map(str, step.places), *step.commands)],
    }


def _last_edit(settings: Settings, planned: PlannedSet, item: PlannedCase) -> JsonObject | None:
    """Return the last commit that changed the case's lines, or the file if several cases share a line."""
    lines = sorted({other.case.line for other in planned.cases if other.case.line})
    first = item.case.line
    after = [line for line in lines if first and line > first]
    whole = first is None or len(lines) < len(planned.cases)
    found = Repository(settings.workspace, {}).last_change(
        planned.path, None if whole or first is None else (first, after[0] - 1 if after else None)
    )
    return dict(zip(_CHANGE, found, strict=True)) if found else None


def _last_outcome_change(outcomes: str, history: History) -> JsonObject | None:
    runs = [(letter, run) for letter, run in zip(outcomes, history.main_runs, strict=False) if letter != "-"]
    for (before, _), (now, run) in reversed(list(itertools.pairwise(runs))):
        if before != now:
            change = run.commit or "", run.created_at, f"{_OUTCOMES[before]} → {_OUTCOMES[now]}"
            return dict(zip(_CHANGE, change, strict=True))
    return None


def _commands(path: str, key: CaseKey, *, alone: bool) -> dict[str, str]:
    """Return one-line commands to copy into a shell."""
    case = ["--", key.case] if key.case.startswith("-") else [key.case]
    where = [] if alone else ["--agent", key.agent, "--eval-set", key.eval_set]
    accept = ["agent-eval", "accept", *where, "--reason", "…"]
    options = ["--quarantine", "--owner", "NAME", "--until", "YYYY-MM-DD"]
    return {
        "run": _shell_command(["agent-eval", "run", f"{path}:{quoted_case(key.case)}"]),
        "update": _shell_command(["agent-eval", "update", f"--case={key.case}"]),
        "accept": _shell_command([*accept, *case]),
        "quarantine": _shell_command([*accept, *options, *case]),
    }


def _shell_command(words: Iterable[str]) -> str:
    """Quote words for a shell; a word that a terminal would not show verbatim becomes ``$'…'`` (bash and zsh)."""
    return " ".join(
        shlex.quote(word) if terminal(word) == word else f"$'{''.join(map(_escaped, word))}'" for word in words
    )


def _escaped(char: str) -> str:
    if (char.isalnum() or char in "_-./:,=@") and terminal(char) == char:
        return char
    return f"\\x{ord(char):02x}" if char.isascii() else f"\\U{ord(char):08x}"


# --- on a terminal ---------------------------------------------------------------------------------


def _show(found: JsonObject) -> None:
    out = data_console()
    place, turns = fmt.place(found["path"], found["line"]), fmt.plural(found["turns"], "turn")
    print_line(f"{found['case']}  {place}, agent {found['agent']}, {turns}", "bold", out=out)
    for text in _facts(found):
        print_line(text, indent=2, out=out)
    print_line("", out=out)
    print_columns(out, map(_row, found["criteria"]), ("criterion", "needs", "main", "last run", "outcome"))
    if run := found["last_run"]:
        blocks = ", and blocks" if run["blocks"] else ""
        print_line(f"\nlast run ({run['started_at']}): {run['outcome']}{blocks}", lines=True, out=out)
        for text in filter(None, (run["first_difference"], *run["to_pass"])):
            print_line(text, indent=2, out=out)
    print_line("", out=out)
    for text in found["commands"].values():
        if terminal(text) == text:  # too long to copy otherwise
            out.print(f"  {text}", soft_wrap=True, markup=False)


def _facts(found: JsonObject) -> Iterator[str]:
    if edited := found["edited"]:
        yield f"last edited with {edited['commit'][:10]} on {edited['at'][:10]}: {edited['what']}"
    if outcomes := found["outcomes"]:
        counts = [f"{outcomes.count(letter)} {word}" for letter, word in _OUTCOMES.items() if letter in outcomes]
        yield f"main's runs, oldest first: {outcomes} ({', '.join(counts)})"
    if turned := found["turned"]:
        yield f"last changed on main with {turned['commit'][:10]} on {turned['at'][:10]}: {turned['what']}"
    rows = [row for row in found["criteria"] if row["main"] and row["main"]["flaky"]]
    if rows:
        flaky = ", ".join(f"{row['criterion']} met in {_met(row['main'])}" for row in rows)
        yield f"{KIND_LABELS[ChangeKind.FLAKY]} on main: {flaky}"
    if quarantine := found["quarantine"]:
        was = "was " if quarantine["overdue"] == "yes" else ""
        yield f"{was}quarantined until {quarantine['until']} (owner {quarantine['owner']}): {quarantine['reason']}"
    for entry in found["accepted"]:
        yield f"its change is accepted: {entry['reason']}"


def _met(main: JsonObject) -> str:
    return f"{main['met']} of {fmt.plural(main['attempts'], 'attempt')}"


def _row(row: JsonObject) -> Sequence[str]:
    lower, main, last = row["lower_is_better"], row["main"], row["last_run"]
    needs = fmt.threshold(row["threshold"], "minimize" if lower else "maximize") or "nothing"
    past = row["why_no_main"] or fmt.NONE
    if main:
        past = f"{fmt.number(main['mean'])} in {fmt.plural(main['runs'], 'run')}"
        past += f", met by {_met(main)}" if main["met"] is not None else ""
    now, outcome = "not run", ""
    if last:
        now, outcome = fmt.number(last["mean"]), last["outcome"] + (", blocks" if last["blocks"] else "")
        now += f", {last['short']:.3g} {'too high' if lower else 'short'}" if last["short"] else ""
    return row["criterion"], f"{needs} ({row['where']})", past, now, outcome
