"""``agent-eval simulate``."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

from agent_eval_action.baseline.history_session import open_history_session
from agent_eval_action.ci import detect
from agent_eval_action.cli.session import console, print_line, print_table, settings_for
from agent_eval_action.criteria import CRITERIA
from agent_eval_action.errors import ExitCode, ResultsError, UsageError
from agent_eval_action.gate.simulate import backtest_policy
from agent_eval_action.reports.messages import BEGIN

_MAX_RUNS = 100_000


def simulate_command(flags: Mapping[str, Any], runs: int, seed: int, *, as_json: bool) -> ExitCode:
    """Simulate the policy on main's own history; nothing is run. The table goes to stderr, JSON to stdout."""
    if not 1 <= runs <= _MAX_RUNS:
        raise UsageError(f"--runs {runs} is not between 1 and {_MAX_RUNS:,}")
    settings = settings_for(flags).settings
    history = open_history_session(settings, os.environ, detect(os.environ).job(os.environ).event).history()
    for note in history.notes:
        print_line(f"note: {note}")
    if not any(pair.scores for pair in history.pairs.values()):
        raise ResultsError(f"there is no history to simulate on at {history.source}", hint=str(BEGIN[history.store]))
    goals = {name: one.goal for name, one in CRITERIA.items()}
    found = backtest_policy(history, settings.policy, goals, runs=runs, seed=seed, extra_runs=settings.max_extra_runs)
    if as_json:
        value = {"runs": runs, "seed": seed, "source": history.source, **dataclasses.asdict(found)}
        print(json.dumps(value, indent=1))
        return ExitCode.PASS
    print_line(f"{runs:,} simulated runs a line on the history in {history.source}; nothing was run")
    columns = ("Criterion", "Change", "Cases", "Scores each", "Blocked", "Inconclusive", "Runs per case")
    rows = [
        (
            *(row.criterion, row.change, str(row.cases), str(row.history)),
            *(f"{row.blocked:.1%}", f"{row.inconclusive:.1%}", f"{row.runs_per_case:.2f}"),
        )
        for row in found.rows
    ]
    if rows:
        print_table(console(), columns, rows)
    for line in found.left_out:
        print_line(f"  not simulated: {line}", style="dim")
    return ExitCode.PASS
