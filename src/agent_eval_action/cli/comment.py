"""The comment of a run: what this job has to say, and where."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from agent_eval_action.ci import Ci, Job, detect
from agent_eval_action.ci.comment import Marker, Published, publish
from agent_eval_action.cli.log import terminal
from agent_eval_action.cli.outputs import in_detail, report_input
from agent_eval_action.config.models import Settings
from agent_eval_action.folders import relative
from agent_eval_action.reports import REPORTS, Link, ReportInput
from agent_eval_action.reports.detail import state_of
from agent_eval_action.reports.escaping import text as escaped
from agent_eval_action.results.run_result import RunResult

_KEY_LIMIT: Final = 200  # characters


def post_comment(result: RunResult, settings: Settings, job: Job) -> str:
    """Post it, where the job itself comments on a change request. Returns what went wrong, "" when nothing did."""
    ci, target = detect(os.environ), job.change_request
    if target is None or ci.log_commands is None or settings.comment == "off":
        return ""
    if token := token_of(settings, ci):
        marker, render = render_comment(_key(job, settings), job, replace(report_input(result), marker=""), settings)
        with contextlib.closing(ci.connect(os.environ, token, settings.ca_bundle)) as host:
            published = publish(host, target, marker, render, settings.comment)
    else:
        why = "there is no token; the input github-token has the job's own unless it is set to nothing"
        published = Published(f"no comment on {target}: {why}", ok=False)
    if not published.ok and not job.withheld:
        return published.note
    # no pull request of a fork may write: that is nobody's fault, and no warning
    if shown := published.note or published.url:
        why = "" if published.ok else f" ({job.withheld})"
        print(terminal(f"comment: {shown}{why}"), file=sys.stderr)
    return ""


def token_of(settings: Settings, ci: Ci) -> str:
    """The token to comment with: the input's, otherwise the job's own; "" for none."""
    given = settings.github_token
    return given.get_secret_value() if given else os.environ.get(ci.token_variable, "").strip()


def _key(job: Job, settings: Settings) -> str:
    """Workflow, job and leg of the matrix, and the configuration file where it is not in the usual place."""
    config, workspace = settings.config, settings.workspace
    if config is None or config.parent in (workspace, workspace / ".github"):
        return job.key
    return f"{job.key} / {relative(config, workspace)}"


def render_comment(key: str, job: Job, report: ReportInput, settings: Settings) -> tuple[Marker, Callable[[int], str]]:
    """The comment of ``job``'s run: its marker, and what renders it in so many bytes. ``key``: where none is set."""
    links = (Link("this run and its files", job.url),) if job.url else ()
    given = in_detail("markdown", replace(report, links=links), settings)
    key = settings.comment_key or key
    if len(key) > _KEY_LIMIT:
        key = f"{key[:_KEY_LIMIT]} {hashlib.sha256(key.encode()).hexdigest()[:8]}"
    marker = Marker(
        key=key,
        sha=job.commit or "",
        run=job.run_number,
        attempt=job.run_attempt or 1,
        run_id=job.run_id,
        outcome=report.decision.outcome.value,
        state=state_of(report.decision),
    )
    title = settings.comment_key or job.leg
    return marker, with_title(title, lambda room: REPORTS["markdown"](given, room))


def with_title(title: str, render: Callable[[int], str]) -> Callable[[int], str]:
    """Put a heading above a comment that is one of several; "" for none."""
    heading = f"## {escaped(title, _KEY_LIMIT)}\n\n" if title else ""
    return lambda room: heading + render(room - len(heading.encode()))
