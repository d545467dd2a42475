"""``agent-eval post``: comment with the results of an earlier run that was not trusted with a token."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_eval_action.baseline.lookup import payload_of
from agent_eval_action.ci.comment import Marker, RunComment, publish
from agent_eval_action.ci.github.client import ApiError, GitHubClient
from agent_eval_action.ci.github.post import UNVERIFIED, TriggeringRun, pulls_of, verified
from agent_eval_action.cli.comment import with_title
from agent_eval_action.cli.output import in_detail
from agent_eval_action.cli.text import terminal
from agent_eval_action.config.settings import Settings, resolve
from agent_eval_action.errors import ExitCode, OutputError, UsageError
from agent_eval_action.reports import REPORTS, ReportInput
from agent_eval_action.reports.artifact import read_foreign
from agent_eval_action.reports.detail import state_of
from agent_eval_action.results.run_result import RunResult


def post_command(results: Path, flags: Mapping[str, Any]) -> ExitCode:
    """Find the pull requests the earlier run is of, and comment there. The verdict makes no step red: it is no check.

    No agent-eval.yaml is read: what lies in this job's folder may have come with the results.
    """
    run = TriggeringRun.of(os.environ, payload_of(os.environ))
    settings = resolve(flags=flags, environ=os.environ, cwd=Path.cwd(), files=False).settings
    given = settings.github_token
    token = given.get_secret_value() if given else os.environ.get("GITHUB_TOKEN", "")
    if not token:
        raise UsageError("there is no token to comment with", hint="env: GITHUB_TOKEN: ${{ github.token }}")
    result = verified(read_foreign(results), run)
    github = GitHubClient.of(os.environ, token, settings.ca_bundle)
    try:
        return _post(github, run, result, settings)
    except ApiError as error:
        raise OutputError(f"no comment: {error}") from error
    finally:
        github.close()


def _post(github: GitHubClient, run: TriggeringRun, result: RunResult, settings: Settings) -> ExitCode:
    pulls, why = pulls_of(github, run)
    if not pulls:
        _say(f"nothing is posted: {why}")
        return ExitCode.PASS
    failed = []
    for pull in pulls:
        said = publish(github, pull, run_comment(run, result, settings), settings.comment)
        _say(f"{pull}: {said.note or said.url or 'nothing to change'}")
        failed += [] if said.ok else [str(pull)]
    if failed:
        raise OutputError(f"the results could not be posted to {', '.join(failed)}")
    return ExitCode.PASS


def _say(text: str) -> None:
    print(terminal(text), file=sys.stderr)


def run_comment(run: TriggeringRun, result: RunResult, settings: Settings) -> RunComment:
    """What is said on the pull request: rendered here from the numbers alone, and of a fork's that nobody vouches."""
    given = in_detail("markdown", ReportInput(result=result, marker=UNVERIFIED if run.fork else ""), settings)
    marker = Marker(
        key=settings.comment_key or run.name or "agent-eval",
        sha=run.head_sha,
        run=run.run_number,
        attempt=run.run_attempt,
        run_id=run.run_id,
        outcome=given.decision.outcome.value,
        state=state_of(given.decision),
    )
    return RunComment(marker, with_title(settings.comment_key or "", lambda room: REPORTS["markdown"](given, room)))
