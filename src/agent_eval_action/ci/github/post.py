"""Posting the results of an earlier, untrusted run: which run it was, which pull requests it is of, what holds.

The event is GitHub's and trusted; the results are the run's and are not, for a fork can change the workflow that
makes them. Pure, but for the look-up of pull requests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent_eval_action.baseline.lookup import at, sha_of, text_of
from agent_eval_action.ci.github.client import ChangeRequest, GitHubClient, Pull
from agent_eval_action.errors import ResultsError, UsageError
from agent_eval_action.results.decision import ChangeKind, Decision, PairChange, Stat, Verdict
from agent_eval_action.results.pair_scores import Measured, measured_pairs
from agent_eval_action.results.run_result import RunResult, RunStatus

UNVERIFIED: Final = (
    "> [!WARNING]\n"
    "> **These numbers are not verified.** They come from a run of a fork, which can change the workflow that makes "
    "them. Do not merge on them alone.\n"
)
_MANY: Final = 10**15


@dataclass(frozen=True, slots=True)
class TriggeringRun:
    """The run this workflow_run is of, as GitHub's event has it.

    ``repository`` is where its pull requests ask to be merged; ``head_owner`` and ``head_id`` name the
    repository its commits are in, ``head_id`` is None when that is gone.
    """

    repository: str
    repository_id: int
    event: str
    head_sha: str
    head_branch: str
    head_owner: str
    head_id: int | None
    name: str = ""
    run_id: int = 0
    run_number: int = 0
    run_attempt: int = 1

    @property
    def fork(self) -> bool:
        """Whether its commits are in another repository."""
        return self.head_id != self.repository_id

    @classmethod
    def of(cls, environ: Mapping[str, str], payload: Any) -> TriggeringRun:
        """From this job's event. Raises UsageError where it is no workflow_run, or does not say what it is of."""
        name = environ.get("GITHUB_EVENT_NAME", "")
        if name != "workflow_run":
            where = f"not on {name}" if name else "not on a terminal"
            text = f"agent-eval post posts the results of an earlier run: it belongs on workflow_run, {where}"
            raise UsageError(text, hint="docs/forks.md has both workflows")
        run = at(payload, "workflow_run")
        found = cls(
            repository=text_of(at(payload, "repository", "full_name")),
            repository_id=_id(at(payload, "repository", "id")),
            event=text_of(at(run, "event")),
            head_sha=sha_of(at(run, "head_sha")) or "",
            head_branch=text_of(at(run, "head_branch")),
            head_owner=text_of(at(run, "head_repository", "owner", "login")),
            head_id=_id(at(run, "head_repository", "id")) or None,
            name=text_of(at(run, "name")),
            run_id=_id(at(run, "id")),
            run_number=_id(at(run, "run_number")),
            run_attempt=_id(at(run, "run_attempt")) or 1,
        )
        if not found.repository or not found.repository_id or not found.head_sha:
            raise UsageError("the event does not say which run it is of", hint="GITHUB_EVENT_PATH names its payload")
        return found


def pulls_of(github: GitHubClient, run: TriggeringRun) -> tuple[list[ChangeRequest], str]:
    """The open pull requests the run is of, and where there is none, why. Raises GitHubError.

    By commit GitHub finds none for forks; by owner and branch it does, and more than is meant: the same branch
    may have moved on, or a repository of the same owner may have one of that name.
    """
    if run.event != "pull_request":
        return [], f"the run before was made on {run.event or 'an unknown event'}, not on a pull request"
    if run.head_id is None or not run.head_owner or not run.head_branch:
        return [], "the repository the run's commits were in is gone"
    found = github.pulls_of_head(run.repository, run.head_owner, run.head_branch)
    mine = [ChangeRequest(run.repository, pull.number) for pull in found if _is_of(pull, run)]
    return mine, "" if mine else f"no open pull request has {run.head_sha[:10]} as its head any more"


def _is_of(pull: Pull, run: TriggeringRun) -> bool:
    return (
        pull.state == "open"
        and pull.head.sha == run.head_sha
        and pull.head.repo is not None
        and pull.head.repo.id == run.head_id
        and pull.base.repo is not None
        and pull.base.repo.id == run.repository_id
    )


def verified(result: RunResult, run: TriggeringRun) -> RunResult:
    """The results, as far as they can be held to anything. Raises ResultsError where they cannot stand.

    They must be of the run's commit, hold a verdict, and the verdict must follow from their own findings and
    numbers. What repeats the run is left out: it is a command line of a stranger's.
    """
    of = result.conditions.change or result.conditions.commit
    if of != run.head_sha:
        raise ResultsError(
            f"these results are of commit {str(of)[:40]!r}, the run before was of {run.head_sha}: nothing is posted"
        )
    decision = result.decision
    if decision is None:
        raise ResultsError("these results hold no decision: nothing is posted")
    if wrong := find_inconsistency(result, decision):
        raise ResultsError(f"these results contradict themselves, nothing is posted: {wrong}")
    return result.model_copy(update={"conditions": result.conditions.model_copy(update={"arguments": ()})})


def find_inconsistency(result: RunResult, decision: Decision) -> str:
    """Why the verdict does not follow from the findings and numbers beside it; "" when it does."""
    effects = {finding.effect for finding in decision.findings}
    allowed = {Verdict.PASS, Verdict.COLLECTING}
    if "blocks" in effects:
        allowed = {Verdict.FAIL}
    elif "inconclusive" in effects or result.status is not RunStatus.COMPLETE:
        allowed = {Verdict.INCONCLUSIVE}
    if decision.outcome not in allowed:
        return f"the verdict is {decision.outcome.value}, its findings say {' or '.join(sorted(allowed))}"
    measured = {(*pair.key, pair.info.name): pair for pair in measured_pairs(result)}
    for change in decision.pairs:
        if not _agrees(change, measured.get((change.agent, change.eval_set, change.case, change.criterion))):
            return "a score in the verdict is not the one that was measured"
    if any(change.blocking for change in decision.pairs) and "blocks" not in effects:
        return "a score blocks, and no finding says so"
    return ""


def _agrees(change: PairChange, pair: Measured | None) -> bool:
    if change.kind is ChangeKind.REMOVED:
        return change.current is None
    if pair is None:
        return False
    return _same(change.current, pair) and (change.errors == pair.errors)


def _same(stat: Stat | None, pair: Measured) -> bool:
    mean = pair.mean
    if stat is None or mean is None:
        return stat is None and mean is None
    return stat.n == len(pair.scores) and math.isclose(stat.mean, mean, rel_tol=1e-9, abs_tol=1e-9)


def _id(value: Any) -> int:
    """A number GitHub names things with; 0 for everything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MANY else 0
