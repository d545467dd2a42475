"""Comments on change requests: for this run, or with ``agent-eval post`` for an earlier run that had no token."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from agent_eval_action.ci import Ci, Job, detect
from agent_eval_action.ci.comment import Marker, Published, publish
from agent_eval_action.ci.host import ApiError
from agent_eval_action.cli.log import print_line, terminal
from agent_eval_action.cli.outputs import in_detail, report_input
from agent_eval_action.config.loader import resolve
from agent_eval_action.config.models import Settings
from agent_eval_action.errors import OutputError, ResultsError, UsageError
from agent_eval_action.folders import relative
from agent_eval_action.reports import REPORTS, Link, ReportInput
from agent_eval_action.reports.base import state_of
from agent_eval_action.reports.results_json import read_foreign
from agent_eval_action.results.decision import ChangeKind, Decision, PairChange, Verdict
from agent_eval_action.results.pair_scores import PairScores, measured_pairs
from agent_eval_action.results.run_result import RunResult, RunStatus

_KEY_LIMIT: Final = 200  # characters
_UNVERIFIED: Final = (
    "> [!WARNING]\n"
    "> **These numbers are not verified.** They come from a run of a fork, which can change the workflow that makes "
    "them. Do not merge on them alone.\n"
)


def post_comment(result: RunResult, settings: Settings, job: Job) -> str:
    """Post the comment if the job runs on a change request. Returns what went wrong, or ""."""
    ci, target = detect(os.environ), job.change_request
    if target is None or ci.log_commands is None or settings.comment == "off":
        return ""
    if token := token_of(settings, ci):
        key, config = job.key, settings.config
        # runs of one job with several configurations have a comment each
        if config is not None and config.parent not in {settings.workspace, settings.workspace / ".github"}:
            key = f"{key} / {relative(config, settings.workspace)}"
        marker, render = render_comment(key, job, replace(report_input(result), marker=""), settings)
        with contextlib.closing(ci.connect(os.environ, token, settings.ca_bundle)) as host:
            published = publish(host, target, marker, render, settings.comment)
    else:
        why = "there is no token; the input github-token has the job's own unless it is set to nothing"
        published = Published(f"no comment on {target}: {why}", ok=False)
    if not published.ok and not job.withheld:
        return published.note
    # pull requests from forks never get a token that may write, so this is not worth a warning
    if shown := published.note or published.url:
        print(terminal(f"comment: {shown}{'' if published.ok else f' ({job.withheld})'}"), file=sys.stderr)
    return ""


def token_of(settings: Settings, ci: Ci) -> str:
    """Return the token to comment with: the input's, else the job's own, else ""."""
    given = settings.github_token
    return given.get_secret_value() if given else os.environ.get(ci.token_variable, "").strip()


def render_comment(key: str, job: Job, report: ReportInput, settings: Settings) -> tuple[Marker, Callable[[int], str]]:
    """Return the comment's marker, and a function that renders it in a number of bytes. ``key``: the default key."""
    page = settings.report_url or ""
    named = (("full report", page), ("this run and its files", job.url))
    links = tuple(Link(label, target) for label, target in named if target)
    shown = replace(report, links=links, title=settings.comment_key or job.leg, page=page)
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
    return marker, partial(REPORTS["markdown"], in_detail("markdown", shown, settings))


def post_command(results: Path, flags: Mapping[str, Any]) -> None:
    """Comment on the change requests of an earlier run. The step's status does not depend on the verdict.

    Reads no agent-eval.yaml, because the files in this job's folder may have come with the untrusted results.
    """
    ci = detect(os.environ)
    job, find_targets = ci.posted_run(os.environ)
    settings = resolve(flags=flags, environ=os.environ, cwd=Path.cwd(), files=False).settings
    token = token_of(settings, ci)
    if not token:
        raise UsageError("there is no token to comment with", hint=ci.token_hint)
    result = _verify(read_foreign(results), job.commit or "")
    report = ReportInput(result=result, marker=_UNVERIFIED if job.event.fork else "")
    marker, render = render_comment(job.key, job, report, settings)
    with contextlib.closing(ci.connect(os.environ, token, settings.ca_bundle)) as host:
        try:
            targets, why = find_targets(host)
        except ApiError as error:
            raise OutputError(f"no comment: {error}") from error
        published = {target: publish(host, target, marker, render, settings.comment) for target in targets}
    for target, done in published.items():
        print_line(f"{target}: {done.note or done.url or 'nothing to change'}")
    if not targets:
        print_line(f"nothing is posted: {why}")
    if failed := [str(target) for target, done in published.items() if not done.ok]:
        raise OutputError(f"the results could not be posted to {', '.join(failed)}")


def _verify(result: RunResult, head_sha: str) -> RunResult:
    """Verify results of a run that executed untrusted code.

    They must belong to the commit ``head_sha``, and their verdict must follow from their own findings and numbers.
    Drops the untrusted command that repeats the run. Raises ResultsError.
    """
    commit = result.conditions.change or result.conditions.commit
    if commit != head_sha:
        raise ResultsError(
            f"these results are of commit {str(commit)[:40]!r}, the run before was of {head_sha}: nothing is posted"
        )
    if result.decision is None:
        raise ResultsError("these results hold no decision: nothing is posted")
    if wrong := find_inconsistency(result, result.decision):
        raise ResultsError(f"these results contradict themselves, nothing is posted: {wrong}")
    return result.model_copy(update={"conditions": result.conditions.model_copy(update={"arguments": ()})})


def find_inconsistency(result: RunResult, decision: Decision) -> str:
    """Return why the verdict contradicts its own findings and numbers, or ""."""
    severities = {finding.severity for finding in decision.findings}
    allowed = {Verdict.PASS, Verdict.COLLECTING}
    if "blocks" in severities:
        allowed = {Verdict.FAIL}
    elif "inconclusive" in severities or result.status is not RunStatus.COMPLETE:
        allowed = {Verdict.INCONCLUSIVE}
    if decision.outcome not in allowed:
        return f"the verdict is {decision.outcome.value}, its findings say {' or '.join(sorted(allowed))}"
    measured = {(*pair.key, pair.info.name): pair for pair in measured_pairs(result)}
    if not all(_agrees(change, measured.get((*change.key, change.criterion))) for change in decision.pairs):
        return "a score in the verdict is not the one that was measured"
    if any(change.blocking for change in decision.pairs) and "blocks" not in severities:
        return "a score blocks, and no finding says so"
    return ""


def _agrees(change: PairChange, pair: PairScores | None) -> bool:
    current = change.current
    if change.kind is ChangeKind.REMOVED:
        return current is None
    if pair is None or change.errors != pair.errors:
        return False
    if current is None or pair.mean is None:
        return current is None and pair.mean is None
    return current.n == len(pair.scores) and math.isclose(current.mean, pair.mean, rel_tol=1e-9, abs_tol=1e-9)
