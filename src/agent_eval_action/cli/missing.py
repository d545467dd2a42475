"""What a run left unmeasured, and the command that makes only that."""

from __future__ import annotations

import shlex
from pathlib import Path

from agent_eval_action.config.models import Settings
from agent_eval_action.results.run_result import RunResult, RunStatus, ScoreStatus
from agent_eval_action.results.transcripts import ATTEMPTS
from agent_eval_action.run.loader import relative


def rest_command(result: RunResult, settings: Settings) -> str:
    """The command that makes only what is missing; "" where nothing is, or nothing was kept."""
    attempts = [attempt for one in result.sets for case in one.cases for attempt in case.attempts]
    lost = any(one.error or any(score.status is ScoreStatus.ERROR for score in one.scores) for one in attempts)
    kept = any(one.error is None for one in attempts)
    # answers that were cut off before their judges had scored them are in the transcripts alone
    kept = kept or (result.status is not RunStatus.COMPLETE and _has_content(settings.out / ATTEMPTS))
    if kept and (result.status is not RunStatus.COMPLETE or lost):
        out = relative(settings.out, settings.workspace)
        return shlex.join(["agent-eval", "run", *result.conditions.arguments, "--resume", out])
    return ""


def _has_content(path: Path) -> bool:
    try:
        return path.lstat().st_size > 0
    except OSError:
        return False
