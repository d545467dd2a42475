"""``agent-eval post``: comment with the results of an earlier run that was not trusted with a token."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_eval_action.ci import detect
from agent_eval_action.ci.api_client import ApiError
from agent_eval_action.ci.base import PostedRun
from agent_eval_action.ci.comment import CommentHost, Marker, RunComment, publish
from agent_eval_action.ci.posting import UNVERIFIED, verify
from agent_eval_action.cli.comment import token_of, with_title
from agent_eval_action.cli.log import terminal
from agent_eval_action.cli.outputs import in_detail
from agent_eval_action.config.loader import resolve
from agent_eval_action.config.models import Settings
from agent_eval_action.errors import ExitCode, OutputError, UsageError
from agent_eval_action.reports import REPORTS, ReportInput
from agent_eval_action.reports.artifact import read_foreign
from agent_eval_action.reports.detail import state_of
from agent_eval_action.results.run_result import RunResult


def post_command(results: Path, flags: Mapping[str, Any]) -> ExitCode:
    """Find the change requests the earlier run is of, and comment there. The verdict makes no step red: it is no check.

    No agent-eval.yaml is read: what lies in this job's folder may have come with the results.
    """
    ci = detect(os.environ)
    run = ci.posted_run(os.environ)
    settings = resolve(flags=flags, environ=os.environ, cwd=Path.cwd(), files=False).settings
    token = token_of(settings, os.environ)
    if not token:
        raise UsageError("there is no token to comment with", hint=ci.token_hint)
    result = verify(read_foreign(results), run.head_sha)
    host = ci.connect(os.environ, token, settings.ca_bundle)
    try:
        return _post(host, run, result, settings)
    except ApiError as error:
        raise OutputError(f"no comment: {error}") from error
    finally:
        host.close()


def _post(host: CommentHost, run: PostedRun, result: RunResult, settings: Settings) -> ExitCode:
    targets, why = run.targets(host)
    if not targets:
        _print(f"nothing is posted: {why}")
        return ExitCode.PASS
    failed = []
    for target in targets:
        published = publish(host, target, run_comment(run, result, settings), settings.comment)
        _print(f"{target}: {published.note or published.url or 'nothing to change'}")
        failed += [] if published.ok else [str(target)]
    if failed:
        raise OutputError(f"the results could not be posted to {', '.join(failed)}")
    return ExitCode.PASS


def _print(text: str) -> None:
    print(terminal(text), file=sys.stderr)


def run_comment(run: PostedRun, result: RunResult, settings: Settings) -> RunComment:
    """What is posted: rendered here from the numbers alone, and marked as a fork's where nobody vouches for them."""
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
