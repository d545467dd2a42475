"""``agent-eval run``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_eval_action.cli import files, summary
from agent_eval_action.cli.session import Session, console, exit_code, settings_for
from agent_eval_action.errors import ExitCode


def run_command(selectors: Sequence[str], flags: Mapping[str, Any]) -> ExitCode:
    """Run, write, show, decide."""
    resolved = settings_for(flags)
    settings = resolved.settings
    files.begin(settings)
    result = Session(resolved, tuple(selectors), flags=flags).evaluate()
    written = files.write(result, settings)
    summary.show(console(), result, written)
    return exit_code(result, result.conditions.fail_on or settings.fail_on)
