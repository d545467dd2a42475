"""Posting the results of an earlier run: what of them holds. Its code made them, so they are only data here. Pure."""

from __future__ import annotations

import math
from typing import Final

from agent_eval_action.errors import ResultsError
from agent_eval_action.results.decision import ChangeKind, Decision, PairChange, Stat, Verdict
from agent_eval_action.results.pair_scores import PairScores, measured_pairs
from agent_eval_action.results.run_result import RunResult, RunStatus

UNVERIFIED: Final = (
    "> [!WARNING]\n"
    "> **These numbers are not verified.** They come from a run of a fork, which can change the workflow that makes "
    "them. Do not merge on them alone.\n"
)


def verify(result: RunResult, head_sha: str) -> RunResult:
    """The results, as far as they can be held to anything. Raises ResultsError where they cannot stand.

    They must be of the run's commit ``head_sha`` and hold a verdict that follows from their own findings and numbers.
    What repeats the run is left out: it is a command line of a stranger's.
    """
    commit = result.conditions.change or result.conditions.commit
    if commit != head_sha:
        raise ResultsError(
            f"these results are of commit {str(commit)[:40]!r}, the run before was of {head_sha}: nothing is posted"
        )
    decision = result.decision
    if decision is None:
        raise ResultsError("these results hold no decision: nothing is posted")
    if wrong := find_inconsistency(result, decision):
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
    if change.kind is ChangeKind.REMOVED:
        return change.current is None
    if pair is None:
        return False
    return _same(change.current, pair) and (change.errors == pair.errors)


def _same(stat: Stat | None, pair: PairScores) -> bool:
    mean = pair.mean
    if stat is None or mean is None:
        return stat is None and mean is None
    return stat.n == len(pair.scores) and math.isclose(stat.mean, mean, rel_tol=1e-9, abs_tol=1e-9)
