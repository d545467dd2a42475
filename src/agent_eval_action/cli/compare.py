"""``agent-eval compare``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_eval_action import api
from agent_eval_action.ci import detect
from agent_eval_action.cli import log, output, summary
from agent_eval_action.cli.comparison_input import Side, read_side
from agent_eval_action.cli.output import outputs, refuse_unsafe_folders
from agent_eval_action.cli.session import console, exit_code, settings_for
from agent_eval_action.config.models import Settings
from agent_eval_action.errors import ExitCode, OutputError
from agent_eval_action.gate_changes.diff import apply_weakenings, weakenings
from agent_eval_action.gate_changes.snapshot import Snapshot, sets_of_result
from agent_eval_action.results.run_result import RunResult


def compare_command(base: Path, head: Path, flags: Mapping[str, Any]) -> ExitCode:
    """Decide ``head`` against ``base`` without running anything; reports are written when ``--out`` is given."""
    settings = settings_for(flags).settings
    if flags.get("out"):
        refuse_unsafe_folders(settings, os.environ)
    other, one = read_side(head), read_side(base)
    one, other = one.named_like(other), other.named_like(one)
    decided = api.judged(other.result, one.as_baseline(), settings, base)
    decided = _with_changes(decided, one, other, settings.policy.on_weakened)
    written = kept(decided, settings) if flags.get("out") else ()
    summary.show(console(), decided, written)
    return exit_code(decided, settings.fail_on)


def kept(result: RunResult, settings: Settings) -> tuple[tuple[str, str], ...]:
    """Every file, and outputs for later steps. Raises OutputError when a file cannot be written: it was asked for."""
    written = output.write(result, settings)
    if written.lost is not None:
        raise written.lost
    if written.problems:
        raise OutputError("; ".join(written.problems))
    if failed := detect(os.environ).write_outputs(outputs(result, written), os.environ):
        log.warning(failed)
    return written.shown


def in_folder(path: Path) -> Path:
    """results.json itself, or the one in a folder."""
    return path / output.RESULTS if path.is_dir() else path


def _with_changes(decided: RunResult, one: Side, other: Side, on_weakened: str) -> RunResult:
    """What was measured on one side and is not on the other is said, as it is of a change under test."""
    if decided.decision is None:
        return decided
    before, after = _measured(one), _measured(other)
    if decided.conditions.selection:  # narrowed on purpose
        run = {case.key for item in after.sets for case in item.cases}
        kept = [replace(item, cases=tuple(c for c in item.cases if c.key in run)) for item in before.sets]
        before = Snapshot(tuple(kept))
    decision = apply_weakenings(decided.decision, weakenings(before, after), on_weakened)
    notes = tuple(dict.fromkeys((*one.notes, *other.notes, *decision.notes)))
    return decided.model_copy(update={"decision": decision.model_copy(update={"notes": notes})})


def _measured(side: Side) -> Snapshot:
    """What a side was measured by; of google-adk's not what it counts unasked (its INFORMATIONAL metrics)."""
    sets = sets_of_result(side.result)
    if side.foreign:
        asked = [tuple(info for info in one.criteria if info.threshold is not None) for one in sets]
        sets = tuple(replace(one, criteria=infos) for one, infos in zip(sets, asked, strict=True))
    return Snapshot(sets)
