"""``agent-eval compare``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_eval_action import api
from agent_eval_action.ci import detect
from agent_eval_action.cli import log, output, summary
from agent_eval_action.cli.output import outputs, refuse_unsafe_folders
from agent_eval_action.cli.session import console, exit_code, settings_for
from agent_eval_action.config.models import Settings
from agent_eval_action.errors import ExitCode, OutputError
from agent_eval_action.results.run_result import RunResult


def compare_command(base: Path, head: Path, flags: Mapping[str, Any]) -> ExitCode:
    """Decide ``head`` against ``base`` without running anything; reports are written when ``--out`` is given."""
    settings = settings_for(flags).settings
    if flags.get("out"):
        refuse_unsafe_folders(settings, os.environ)
    decided = api.compare(base, head, settings)
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
