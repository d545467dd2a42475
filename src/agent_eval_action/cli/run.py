"""``agent-eval run``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from agent_eval_action.cli import files, summary
from agent_eval_action.cli.session import Session, console, exit_code, settings_for
from agent_eval_action.config.settings import Settings
from agent_eval_action.errors import ExitCode
from agent_eval_action.model.result import RunResult, RunStatus, ScoreStatus
from agent_eval_action.run.load import relative


def run_command(selectors: Sequence[str], flags: Mapping[str, Any]) -> ExitCode:
    """Run, write, show, decide."""
    resolved = settings_for(flags)
    settings = resolved.settings
    files.begin(settings)
    result = Session(resolved, tuple(selectors), flags=flags).evaluate()
    written = files.write(result, settings)
    summary.show(console(), result, written, rest=_rest(result, settings))
    return exit_code(result, result.conditions.fail_on or settings.fail_on)


def _rest(result: RunResult, settings: Settings) -> str:
    """The command that makes only what is missing; "" where nothing is."""
    attempts = [attempt for one in result.sets for case in one.cases for attempt in case.attempts]
    lost = any(one.error or any(score.status is ScoreStatus.ERROR for score in one.scores) for one in attempts)
    if result.status is not RunStatus.COMPLETE or lost:
        out = relative(settings.out, settings.workspace)
        return shlex.join(["agent-eval", "run", *result.conditions.arguments, "--resume", out])
    return ""
