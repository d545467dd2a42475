"""``agent-eval baseline update`` and ``show``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_eval_action import api
from agent_eval_action.baseline import STORES, show
from agent_eval_action.baseline.records import Update, update
from agent_eval_action.cli import files
from agent_eval_action.cli.compare import in_folder
from agent_eval_action.cli.session import Session, console, settings_for
from agent_eval_action.cli.text import terminal
from agent_eval_action.errors import ExitCode, ResultsError
from agent_eval_action.model.result import RunResult, RunStatus
from agent_eval_action.reports import format as fmt
from agent_eval_action.reports import results_json
from agent_eval_action.run.load import relative

_REPEATS = 5  # one run of a noisy case says little about it; five cost little and are made rarely
_NAMES_SHOWN = 8


def update_command(selectors: Sequence[str], flags: Mapping[str, Any], results: Path | None) -> ExitCode:
    """Make a run (or take one) and store it."""
    resolved = settings_for(flags)
    settings, out = resolved.settings, console()
    store = api.stored_baseline(settings)
    before = store.read()
    if results is not None:
        result = results_json.read(in_folder(results))
    else:
        files.begin(settings)
        repeats = settings.repeats if "repeats" in resolved.origins else _REPEATS
        result = Session(resolved, out, tuple(selectors), repeats).evaluate()
        files.write(result, settings)
    if result.status is not RunStatus.COMPLETE:
        out.print(f"the run is not complete ({result.status}): the baseline stays as it was", markup=False)
        return ExitCode.INTERRUPTED if result.status is RunStatus.INTERRUPTED else ExitCode.INCONCLUSIVE
    after = update(before, result)
    if after.differs or before is None:
        store.write(after.baseline)
    for line in _lines(after, result, relative(settings.baseline, settings.workspace)):
        out.print(terminal(line), markup=False, soft_wrap=True)
    return ExitCode.INCONCLUSIVE if after.kept or after.missing else ExitCode.PASS


def _lines(after: Update, result: RunResult, path: str) -> list[str]:
    size = fmt.plural(len(after.baseline.records), "case")
    lines = [f"baseline {path}: {size}, {fmt.plural(result.conditions.repeats, 'repeat')}"]
    groups = [("added", after.added), ("changed", after.changed), ("removed", after.pruned), ("not run", after.left)]
    for word, keys in groups:
        if keys:
            lines.append(f"  {word}: {_some([key.case for key in keys])}")
    if after.kept:
        lines.append(f"  not measured, the older record stays: {_some(after.kept)}")
    if after.missing:
        lines.append(f"  not measured, no record: {_some(after.missing)}")
    if not after.differs:
        lines.append("  nothing changed")
    return lines


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more


def show_command(path: Path | None, config: str | None) -> ExitCode:
    """Print the baseline as a table on stdout."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    settings = settings_for({"config": config} if config else {}).settings
    found = (STORES["file"](path) if path else api.stored_baseline(settings)).read()
    shown = path or Path(relative(settings.baseline, settings.workspace))
    if found is None:
        raise ResultsError(f"there is no baseline at {shown}", hint="make one: agent-eval baseline update")
    table = Table("Agent", "Set", "Case", "Criterion", "Passed", "Mean", "Tool calls", box=None, pad_edge=False)
    for row in show(found):
        table.add_row(*(Text(terminal(cell, 120)) for cell in row))
    out = Console(width=None if Console().is_terminal else 200)
    commit = f" of commit {found.commit[:10]}" if found.commit else ""
    out.print(f"{shown}{commit}, made {found.created_at}", markup=False, highlight=False)
    out.print(table)
    return ExitCode.PASS
