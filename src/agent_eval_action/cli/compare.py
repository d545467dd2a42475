"""``agent-eval compare``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_eval_action import api
from agent_eval_action.baseline.file import FileStore
from agent_eval_action.baseline.records import Baseline, from_result
from agent_eval_action.cli import files, summary
from agent_eval_action.cli.session import console, exit_code, settings_for
from agent_eval_action.errors import ExitCode, ResultsError
from agent_eval_action.reports import results_json


def compare_command(baseline: Path, results: Path, flags: Mapping[str, Any]) -> ExitCode:
    """Decide ``results`` against ``baseline``; reports are written when ``--out`` is given."""
    settings = settings_for(flags).settings
    result = results_json.read(in_folder(results))
    decided = api.judged(result, _baseline(baseline), settings, baseline)
    written = files.write(decided, settings) if flags.get("out") else []
    summary.show(console(), decided, written)
    return exit_code(decided, settings.fail_on)


def _baseline(path: Path) -> Baseline:
    """A stored baseline, or the results of another run."""
    if path.is_dir() or path.name == files.RESULTS:
        return from_result(results_json.read(in_folder(path)))
    found = FileStore(path).read()
    if found is None:
        raise ResultsError(f"there is no baseline at {path}", hint="make one: agent-eval baseline update")
    return found


def in_folder(path: Path) -> Path:
    """results.json itself, or the one in a folder."""
    return path / files.RESULTS if path.is_dir() else path
