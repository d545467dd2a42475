"""``agent-eval baseline update``, ``show`` and ``history``; and ``simulate``, which works on the history."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_eval_action.baseline import STORES, accepted
from agent_eval_action.baseline.accepted import ACCEPT
from agent_eval_action.baseline.records import baseline_text, records_table, show, update
from agent_eval_action.baseline.stores import FileStore
from agent_eval_action.cli.log import console, data_console, print_columns, print_line
from agent_eval_action.cli.outputs import report_input, results_file, write_data, write_requested_files
from agent_eval_action.cli.progress import Verbosity, working
from agent_eval_action.cli.session import evaluated, output_folder, read_history, settings_for
from agent_eval_action.criteria import CRITERIA
from agent_eval_action.diagnostics.suggestions import shortlist
from agent_eval_action.errors import ExitCode, ResultsError, UsageError
from agent_eval_action.folders import relative
from agent_eval_action.gate.simulate import backtest_policy
from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports import results_json
from agent_eval_action.reports.messages import BEGIN
from agent_eval_action.results.pair_scores import measured_pairs
from agent_eval_action.results.run_result import RunStatus

_REPEATS = 5  # a single run of a noisy case says little; baselines are updated rarely, so five are affordable
_NAMES_SHOWN = 8
_MAX_RUNS = 100_000


def update_command(
    selectors: Sequence[str], flags: Mapping[str, Any], results: Path | None, verbosity: Verbosity = "normal"
) -> ExitCode:
    """Store a new run, or the one in ``results``, as the baseline."""
    resolved = settings_for(flags)
    settings = resolved.settings
    if settings.shard or settings.merge:
        hint = "agent-eval baseline update --from RESULTS takes merged results"
        raise UsageError("a baseline is made by a whole run, not by shards", hint=hint)
    kept = settings.baseline.store
    if kept != "auto" and STORES[kept].written_by_runs:
        raise UsageError(f"the {kept} store is written by runs of main alone", hint="let CI run on the main branch")
    store = FileStore(settings.baseline.path, settings.workspace)
    before, where = store.read(), relative(settings.baseline.path, settings.workspace)
    if results is not None:
        result = results_json.read(results_file(results))
    else:
        repeats = settings.repeats if "repeats" in resolved.origins else _REPEATS
        with output_folder(settings), evaluated(resolved, selectors, verbosity=verbosity, repeats=repeats) as result:
            write_requested_files(report_input(result), settings)
    if result.status is not RunStatus.COMPLETE:
        print_line(f"the run is not complete ({result.status}): the baseline stays as it was")
        return ExitCode.INTERRUPTED if result.status is RunStatus.INTERRUPTED else ExitCode.INCONCLUSIVE
    entries = accepted.read(settings.workspace / ACCEPT, workspace=settings.workspace)
    after = update(before, result, accepted.accepted_changes(entries))
    if not any(pair.scores for pair in measured_pairs(result)):
        print_line(f"nothing was measured, so {where} is not written: see the errors above")
        return ExitCode.INCONCLUSIVE
    if after.differs or before is None:
        store.write(after.record)
    size = fmt.plural(len(after.record.cases), "case")
    print_line(f"baseline {where}: {size}, {fmt.plural(result.conditions.repeats, 'repeat')}")
    cases = {"added": after.added, "changed": after.changed, "removed": after.pruned, "not run": after.left}
    names: dict[str, Sequence[str]] = {word: [key.case for key in keys] for word, keys in cases.items()}
    names |= {"not measured, the older record stays": after.kept, "not measured, no record": after.missing}
    for word, group in names.items():
        if group:
            print_line(f"  {word}: {shortlist(group, _NAMES_SHOWN)}")
    if not after.differs:
        print_line("  nothing changed")
    return ExitCode.INCONCLUSIVE if after.kept or after.missing else ExitCode.PASS


def show_command(path: Path | None, config: str | None, *, as_json: bool = False) -> None:
    """Print the pooled history, or the baseline in ``path``, on stdout: as a table, or as a baseline.json."""
    settings = settings_for({"config": config}).settings
    if path is not None:
        found, shown, begin = FileStore(path).read(), str(path), "name a file that `agent-eval baseline update` wrote"
    else:
        history = read_history(settings).history()
        found, shown, begin = history.pooled, history.source, str(BEGIN[history.store])
        _print_notes(history.notes)
    if found is None:
        raise ResultsError(f"there is no baseline at {shown}", hint=begin)
    if as_json:
        write_data(baseline_text(found), None)
        return
    out = data_console()
    commit = f" of commit {found.commit[:10]}" if found.commit else ""
    print_line(f"{shown}{commit}, made {found.created_at}", out=out)
    columns = ("agent", "set", "case", "criterion", "passed", "mean", "tool calls")
    if not out.is_terminal:
        print_columns(out, show(found), columns, indent=0)
        return
    for (agent, eval_set), rows in itertools.groupby(show(found), lambda row: row[:2]):
        print_line(f"\n{agent} / {eval_set}", lines=True, out=out)
        print_columns(out, (row[2:] for row in rows), columns[2:])


def history_command(config: str | None) -> None:
    """Print on stdout, newest first, the records that a run of this checkout is compared with."""
    settings = settings_for({"config": config}).settings
    main = read_history(settings)
    history = main.history()
    _print_notes(history.notes)
    if not main.found.records:
        raise ResultsError(f"there are no records at {main.store.name}", hint=str(BEGIN[main.store.kind]))
    pairs = fmt.plural(sum(bool(pair.runs) for pair in history.pairs.values()), "pair")
    size = fmt.plural(len(main.found.records), "run")
    which = f"{size} of main at or before {main.how}" if main.store.written_by_runs else "as it was committed"
    out = data_console()
    print_line(f"{main.store.name}: {which}; {pairs} comparable", out=out)
    columns = ("commit", "made", "cases", "attempts", "withheld", "agent-eval", "accepted")
    print_columns(out, records_table(main.found.records), columns)


def simulate_command(flags: Mapping[str, Any], runs: int, seed: int, *, as_json: bool) -> None:
    """Simulate the policy on main's history without running agents. The table goes to stderr, JSON to stdout."""
    if not 1 <= runs <= _MAX_RUNS:
        raise UsageError(f"--runs {runs} is not between 1 and {_MAX_RUNS:,}")
    settings = settings_for(flags).settings
    history = read_history(settings).history()
    _print_notes(history.notes)
    if not any(pair.scores for pair in history.pairs.values()):
        raise ResultsError(f"there is no history to simulate on at {history.source}", hint=str(BEGIN[history.store]))
    goals = {name: criterion.goal for name, criterion in CRITERIA.items()}
    with working("simulating") as report_progress:
        extra = settings.max_extra_runs
        found = backtest_policy(
            history, settings.policy, goals, runs=runs, seed=seed, extra_runs=extra, report_progress=report_progress
        )
    if as_json:
        value = {"runs": runs, "seed": seed, "source": history.source, **dataclasses.asdict(found)}
        print(json.dumps(value, indent=1))
        return
    print_line(f"{runs:,} simulated runs a line on the history in {history.source}; no agent was run")
    for criterion, group in itertools.groupby(found.rows, lambda row: row.criterion):
        rows = list(group)
        size = f"{fmt.plural(rows[0].cases, 'case')}, {fmt.plural(rows[0].history, 'score')} each"
        print_line(f"\n{criterion}  {size}", lines=True)
        columns = ("change", "blocked", "inconclusive", "runs per case")
        cells = [
            (row.change, f"{row.blocked:.1%}", f"{row.inconclusive:.1%}", f"{row.runs_per_case:.2f}") for row in rows
        ]
        print_columns(console(), cells, columns)
    for line in found.left_out:
        print_line(f"not simulated: {line}", style="dim", indent=2)


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        print_line(f"note: {note}")
