"""``agent-eval explain CASE``: one case in the eval files, in main's history and in the last run."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent_eval_action.baseline.history_session import HistorySession
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
from agent_eval_action.results.history import Accepted, History, Quarantine, kept_key, kept_name
from agent_eval_action.results.pair_scores import meets
from agent_eval_action.results.run_result import CriterionInfo
from agent_eval_action.run.plan import Plan, PlannedCase, PlannedSet

_NAMES_SHOWN: Final = 8
_OUTCOMES: Final = {"p": "passed", "f": "failed", "m": "mixed", "-": "not run"}


@dataclass(frozen=True)
class MainScores:
    """Main's comparable scores of a criterion. ``met``: attempts that meet the current threshold; None without one."""

    runs: int
    attempts: int
    mean: float
    low: float
    high: float
    met: int | None
    flaky: bool


@dataclass(frozen=True)
class LastScore:
    """A criterion in the last run. ``short``: how far the mean misses the threshold; 0 if it is met."""

    mean: float | None
    attempts: int
    errors: int
    outcome: str
    blocks: bool
    short: float | None
    says: str


@dataclass(frozen=True)
class ExplainedCriterion:
    """A criterion of the case. ``main`` is None without comparable scores; ``why_no_main`` says why."""

    criterion: str
    lower_is_better: bool
    threshold: float | None
    where: str
    main: MainScores | None
    why_no_main: str
    last_run: LastScore | None


@dataclass(frozen=True)
class Change:
    """A commit; ``what`` is its subject, or how the case's outcome changed."""

    commit: str
    at: str
    what: str


@dataclass(frozen=True)
class ExplainedRun:
    """The case in the last run: its class, its first difference, and the commands or edits that would make it pass."""

    commit: str
    started_at: str
    outcome: str
    blocks: bool
    first_difference: str
    to_pass: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """Everything known about a case; ``--json`` prints the fields.

    ``outcomes``: one letter for each run of main, oldest first. ``edited``: the last commit that touched the case.
    ``turned``: the newest run of main in which its outcome changed.
    """

    case: str
    agent: str
    eval_set: str
    path: str
    line: int | None
    turns: int
    edited: Change | None
    criteria: tuple[ExplainedCriterion, ...]
    source: str
    outcomes: str
    turned: Change | None
    quarantine: dict[str, str] | None
    accepted: tuple[dict[str, str], ...]
    last_run: ExplainedRun | None
    commands: dict[str, str]


def explain_command(
    name: str, agent: str | None, eval_set: str | None, results: Path | None, config: str | None, *, as_json: bool
) -> None:
    """Print the explanation on stdout. Raises UsageError if no case, or more than one, has this name."""
    settings = settings_for({"config": config}).settings
    plan = plan_of(settings)
    planned, item = _find(plan, name, agent, eval_set)
    session = read_history(settings)
    found = _explanation(settings, plan, planned, item, session, results)
    if as_json:
        print(json.dumps(dataclasses.asdict(found), indent=1))
    else:
        _show(found)


def _find(plan: Plan, name: str, agent: str | None, eval_set: str | None) -> tuple[PlannedSet, PlannedCase]:
    every = [(planned, item) for planned in plan.sets for item in planned.cases]
    named = [(planned, item) for planned, item in every if item.case.eval_id == name]
    found = [
        (planned, item) for planned, item in named if planned.agent == (agent or planned.agent)
        and planned.key == (eval_set or planned.key)
    ]  # fmt: skip
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


def _explanation(  # noqa: PLR0917 - the sources of what is explained
    settings: Settings,
    plan: Plan,
    planned: PlannedSet,
    item: PlannedCase,
    session: HistorySession,
    results: Path | None,
) -> Explanation:
    key = planned.case_key(item)
    history = session.history(plan.suite())
    report, view = _last_view(settings, key, results)
    stored, names = kept_key(key), [kept_name(info.name) for info in planned.infos]
    entries = [entry for entry in session.entries if any(entry.covers(stored, name) for name in names)]
    quarantine = next((entry for entry in entries if isinstance(entry, Quarantine)), None)
    runs = {known.key: known.outcomes for known in history.main_cases}
    outcomes = runs.get(stored, "")
    criteria = tuple(_criterion(info, key, history, view, report) for info in planned.infos)
    offered = ["run"]
    if changed := view is not None and view.needs_attention:
        offered += ["update", "accept"]
    if changed or any(row.main.flaky for row in criteria if row.main):
        offered.append("quarantine")
    commands = _commands(planned.path, key, alone=sum(other.case == key.case for other, _ in plan.digests()) == 1)
    return Explanation(
        case=key.case,
        agent=key.agent,
        eval_set=key.eval_set,
        path=planned.path,
        line=item.case.line,
        turns=len(item.case.conversation or ()),
        edited=_last_edit(settings, planned, item),
        criteria=criteria,
        source=history.source,
        outcomes=outcomes,
        turned=_last_outcome_change(outcomes, history),
        quarantine=None
        if quarantine is None
        else _words(quarantine) | {"overdue": "yes" if quarantine in history.overdue else "no"},
        accepted=tuple(_words(entry) for entry in entries if not isinstance(entry, Quarantine)),
        last_run=None if view is None or report is None else _run(report, view),
        commands={name: commands[name] for name in offered},
    )


def _words(entry: Accepted) -> dict[str, str]:
    return {name: str(value) for name, value in entry.model_dump(exclude={"id"}).items() if value is not None}


def _last_view(settings: Settings, key: CaseKey, results: Path | None) -> tuple[ReportInput | None, CaseView | None]:
    try:
        report = ReportInput(read_last_run(settings, results))
    except ResultsError:
        if results is not None:
            raise
        return None, None
    return report, next((view for view in report.view.cases if view.key == key and view.result is not None), None)


def _criterion(
    info: CriterionInfo, key: CaseKey, history: History, view: CaseView | None, report: ReportInput | None
) -> ExplainedCriterion:
    past = history.pair(key, info.name)
    main = None
    if past.scores:
        scores = [score for score, _ in past.scores]
        mean = sum(score * times for score, times in past.scores) / past.n
        threshold = info.threshold
        met = None
        if threshold is not None:
            met = sum(times for score, times in past.scores if meets(score, threshold, info.goal))
        main = MainScores(past.runs, past.n, mean, min(scores), max(scores), met, met is not None and 0 < met < past.n)
    pair = view.pair(info.name) if view is not None else None
    return ExplainedCriterion(
        criterion=info.name,
        lower_is_better=info.goal == "minimize",
        threshold=info.threshold,
        where=fmt.criterion_place(info.source, info.line),
        main=main,
        why_no_main="" if main else past.incomparable,
        last_run=_score(pair, report) if pair is not None and report is not None else None,
    )


def _score(pair: PairChange, report: ReportInput) -> LastScore:
    mean, short = pair.current.mean if pair.current else None, None
    if mean is not None and pair.threshold is not None:
        away = mean - pair.threshold if pair.goal == "minimize" else pair.threshold - mean
        short = max(0.0, away)
    return LastScore(
        mean=mean,
        attempts=pair.current.n if pair.current else 0,
        errors=pair.errors,
        outcome=KIND_LABELS[pair.kind],
        blocks=pair.blocking,
        short=short,
        says=str(report.view.messages.pair(pair, with_case=False)),
    )


def _run(report: ReportInput, view: CaseView) -> ExplainedRun:
    """Describe the last run of the case; its steps are those of a run of this case alone."""
    decision, result = report.decision, report.result
    # findings about the whole suite would add steps that do not concern this case
    findings = tuple(finding for finding in decision.findings if finding.subject.case == view.key.case)
    alone = decision.model_copy(update={"pairs": view.pairs, "criteria": (), "findings": findings})
    steps = next_steps(result.model_copy(update={"decision": alone})) if view.needs_attention else ()
    lines = [line for step in steps for line in (str(step.text), *map(str, step.places), *step.commands)]
    return ExplainedRun(
        commit=result.conditions.commit or "",
        started_at=result.started_at,
        outcome=view.group.label,
        blocks=view.blocks,
        first_difference=str(first_difference(view).text) if view.needs_attention else "",
        to_pass=tuple(lines),
    )


def _last_edit(settings: Settings, planned: PlannedSet, item: PlannedCase) -> Change | None:
    """Return the last commit that changed the case's lines, or the file if several cases share a line."""
    lines = sorted({other.case.line for other in planned.cases if other.case.line})
    first = item.case.line
    after = [line for line in lines if first and line > first]
    whole = first is None or len(lines) < len(planned.cases)
    found = Repository(settings.workspace, {}).last_change(
        planned.path, None if whole or first is None else (first, after[0] - 1 if after else None)
    )
    return Change(*found) if found else None


def _last_outcome_change(outcomes: str, history: History) -> Change | None:
    """Return the newest run of main in which the case's outcome changed."""
    runs = [(letter, run) for letter, run in zip(outcomes, history.main_runs, strict=False) if letter != "-"]
    for (before, _), (now, run) in reversed(list(itertools.pairwise(runs))):
        if before != now:
            return Change(run.commit or "", run.created_at, f"{_OUTCOMES[before]} → {_OUTCOMES[now]}")
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


def _show(found: Explanation) -> None:
    out = data_console()
    where = f"{fmt.place(found.path, found.line)}, agent {found.agent}, {fmt.plural(found.turns, 'turn')}"
    print_line(f"{found.case}  {where}", "bold", out=out)
    for text in _facts(found):
        print_line(text, indent=2, out=out)
    print_line("", out=out)
    print_columns(out, map(_row, found.criteria), ("criterion", "needs", "main", "last run", "outcome"))
    if (run := found.last_run) is not None:
        blocks = ", and blocks" if run.blocks else ""
        print_line(f"\nlast run ({run.started_at}): {run.outcome}{blocks}", lines=True, out=out)
        for text in (run.first_difference, *run.to_pass):
            if text:
                print_line(text, indent=2, out=out)
    print_line("", out=out)
    for text in found.commands.values():
        if terminal(text) == text:  # too long to copy otherwise
            out.print(f"  {text}", soft_wrap=True, markup=False)


def _facts(found: Explanation) -> Iterator[str]:
    if found.edited:
        yield f"last edited with {found.edited.commit[:10]} on {found.edited.at[:10]}: {found.edited.what}"
    if found.outcomes:
        counts = ", ".join(
            f"{found.outcomes.count(letter)} {word}" for letter, word in _OUTCOMES.items() if letter in found.outcomes
        )
        yield f"main's runs, oldest first: {found.outcomes} ({counts})"
    if found.turned:
        yield f"last changed on main with {found.turned.commit[:10]} on {found.turned.at[:10]}: {found.turned.what}"
    flaky = [f"{row.criterion} met in {_met(row.main)}" for row in found.criteria if row.main and row.main.flaky]
    if flaky:
        yield f"{KIND_LABELS[ChangeKind.FLAKY]} on main: {', '.join(flaky)}"
    if found.quarantine:
        quarantine = found.quarantine
        was = "was " if quarantine["overdue"] == "yes" else ""
        yield f"{was}quarantined until {quarantine['until']} (owner {quarantine['owner']}): {quarantine['reason']}"
    for entry in found.accepted:
        yield f"its change is accepted: {entry['reason']}"


def _met(main: MainScores) -> str:
    return f"{main.met} of {fmt.plural(main.attempts, 'attempt')}"


def _row(row: ExplainedCriterion) -> Sequence[str]:
    needs = fmt.threshold(row.threshold, "minimize" if row.lower_is_better else "maximize") or "nothing"
    main, last = row.main, row.last_run
    past = row.why_no_main or fmt.NONE
    if main is not None:
        past = f"{fmt.number(main.mean)} in {fmt.plural(main.runs, 'run')}"
        past += f", met by {_met(main)}" if main.met is not None else ""
    if last is None:
        return row.criterion, f"{needs} ({row.where})", past, "not run", ""
    now = fmt.number(last.mean)
    now += f", {last.short:.3g} {'too high' if row.lower_is_better else 'short'}" if last.short else ""
    return row.criterion, f"{needs} ({row.where})", past, now, last.outcome + (", blocks" if last.blocks else "")
