"""``agent-eval post``: comment with the results of an earlier run that was not trusted with a token."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agent_eval_action.ci import detect
from agent_eval_action.ci.comment import publish
from agent_eval_action.ci.host import ApiError
from agent_eval_action.cli.comment import render_comment, token_of
from agent_eval_action.cli.session import print_line
from agent_eval_action.config.loader import resolve
from agent_eval_action.errors import ExitCode, OutputError, ResultsError, UsageError
from agent_eval_action.reports import ReportInput
from agent_eval_action.reports.artifact import read_foreign
from agent_eval_action.results.decision import ChangeKind, Decision, PairChange, Verdict
from agent_eval_action.results.pair_scores import PairScores, measured_pairs
from agent_eval_action.results.run_result import RunResult, RunStatus

_UNVERIFIED: Final = (
    "> [!WARNING]\n"
    "> **These numbers are not verified.** They come from a run of a fork, which can change the workflow that makes "
    "them. Do not merge on them alone.\n"
)


def post_command(results: Path, flags: Mapping[str, Any]) -> ExitCode:
    """Find the change requests the earlier run is of, and comment there. The verdict makes no step red: it is no check.

    No agent-eval.yaml is read: what lies in this job's folder may have come with the results.
    """
    ci = detect(os.environ)
    run = ci.posted_run(os.environ)
    settings = resolve(flags=flags, environ=os.environ, cwd=Path.cwd(), files=False).settings
    token = token_of(settings, ci)
    if not token:
        raise UsageError("there is no token to comment with", hint=ci.token_hint)
    result = _verified(read_foreign(results), run.job.commit or "")
    report = ReportInput(result=result, marker=_UNVERIFIED if run.job.event.fork else "")
    marker, render = render_comment(run.job.key, run.job, report, settings)
    with contextlib.closing(ci.connect(os.environ, token, settings.ca_bundle)) as host:
        try:
            targets, why = run.find_targets(host)
        except ApiError as error:
            raise OutputError(f"no comment: {error}") from error
        published = {target: publish(host, target, marker, render, settings.comment) for target in targets}
    for target, done in published.items():
        print_line(f"{target}: {done.note or done.url or 'nothing to change'}")
    if not targets:
        print_line(f"nothing is posted: {why}")
    if failed := [str(target) for target, done in published.items() if not done.ok]:
        raise OutputError(f"the results could not be posted to {', '.join(failed)}")
    return ExitCode.PASS


def _verified(result: RunResult, head_sha: str) -> RunResult:
    """The results, as far as they can be verified; their run executed a stranger's code, so they are only data.

    They must be of the run's commit ``head_sha`` and hold a verdict that follows from their own findings and numbers.
    The command that repeats the run is left out: it is a stranger's. Raises ResultsError.
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
    """Why the verdict does not follow from the findings and numbers beside it; "" when it does."""
    severities = {finding.severity for finding in decision.findings}
    allowed = {Verdict.PASS, Verdict.COLLECTING}
    if "blocks" in severities:
        allowed = {Verdict.FAIL}
    elif "inconclusive" in severities or result.status is not RunStatus.COMPLETE:
        allowed = {Verdict.INCONCLUSIVE}
    if decision.outcome not in allowed:
        return f"the verdict is {decision.outcome.value}, its findings say {' or '.join(sorted(allowed))}"
    measured = {(*pair.key, pair.info.name): pair for pair in measured_pairs(result)}
    for change in decision.pairs:
        if not _agrees(change, measured.get((change.agent, change.eval_set, change.case, change.criterion))):
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
