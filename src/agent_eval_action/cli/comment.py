"""The comment of a run: what this job has to say, and where."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from agent_eval_action.ci import Job, detect
from agent_eval_action.ci.comment import Marker, Published, RunComment, publish
from agent_eval_action.cli.log import terminal
from agent_eval_action.cli.outputs import in_detail, report_input
from agent_eval_action.config.models import Settings
from agent_eval_action.reports import REPORTS, Link
from agent_eval_action.reports.detail import state_of
from agent_eval_action.reports.escaping import text as escaped
from agent_eval_action.results.run_result import RunResult
from agent_eval_action.run.loader import relative

_KEY = 200


def publisher(result: RunResult, settings: Settings, job: Job) -> Callable[[], str]:
    """What posts the comment and returns what went wrong, "" when nothing did."""

    def post() -> str:
        published = post_comment(result, settings, job, os.environ)
        if not published.ok and not job.withheld:
            return published.note
        # no pull request of a fork may write: that is nobody's fault, and no warning
        if shown := published.note or published.url:
            why = f" ({job.withheld})" if not published.ok else ""
            print(terminal(f"comment: {shown}{why}"), file=sys.stderr)
        return ""

    return post


def token_of(settings: Settings, environ: Mapping[str, str]) -> str:
    """The token to comment with: the input's, otherwise the job's own; "" for none."""
    given = settings.github_token
    return given.get_secret_value() if given else environ.get(detect(environ).token_variable, "").strip()


def post_comment(result: RunResult, settings: Settings, job: Job, environ: Mapping[str, str]) -> Published:
    """Post it, where the job itself comments on a change request. Never raises for what its host does."""
    ci = detect(environ)
    if job.change_request is None or ci.log_commands is None or settings.comment == "off":
        return Published()
    target = job.change_request
    token = token_of(settings, environ)
    if not token:
        why = "there is no token; the input github-token has the job's own unless it is set to nothing"
        return Published(f"no comment on {target}: {why}", ok=False)
    host = ci.connect(environ, token, settings.ca_bundle)
    try:
        return publish(host, target, run_comment(result, settings, job), settings.comment)
    finally:
        host.close()


def run_comment(result: RunResult, settings: Settings, job: Job) -> RunComment:
    """What this job has to say: rendered when it is known how much room there is."""
    links = (Link("this run and its files", job.url),) if job.url else ()
    given = in_detail("markdown", replace(report_input(result), links=links, marker=""), settings)
    key = settings.comment_key or default_key(job, settings.config, settings.workspace)
    marker = Marker(
        key=key if len(key) <= _KEY else f"{key[:_KEY]} {hashlib.sha256(key.encode()).hexdigest()[:8]}",
        sha=job.commit or "",
        run=job.run_number,
        attempt=job.run_attempt or 1,
        run_id=job.run_id,
        outcome=given.decision.outcome.value,
        state=state_of(report_input(result).decision),
    )
    return RunComment(
        marker, with_title(settings.comment_key or job.leg, lambda room: REPORTS["markdown"](given, room))
    )


def with_title(title: str, render: Callable[[int], str]) -> Callable[[int], str]:
    """Put a heading above a comment that is one of several; "" for none."""
    heading = f"## {escaped(title, _KEY)}\n\n" if title else ""
    return lambda room: heading + render(room - len(heading.encode()))


def default_key(job: Job, config: Path | None, workspace: Path) -> str:
    """Workflow, job and leg of the matrix, and the configuration file where it is not in the usual place."""
    usual = config is None or config.parent in (workspace, workspace / ".github")
    return job.key if usual or config is None else f"{job.key} / {relative(config, workspace)}"
