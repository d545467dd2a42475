"""The findings of a decision about pairs, criteria, and missing measurements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, Final

from agent_eval_action.config.models import Withheld
from agent_eval_action.criteria import expected_calls
from agent_eval_action.gate.assess import IN_DOUBT, CriterionEvidence, Status, SuspectTest
from agent_eval_action.gate.judgement import CriterionJudgement, interval_of, pairs_of
from agent_eval_action.gate.next_step import BrokenCase
from agent_eval_action.gate.pairs import TOLERANCE, Incomparable, Pair
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.decision import ChangeKind
from agent_eval_action.results.findings import (
    NAMED,
    Finding,
    FindingCode,
    Reason,
    Severity,
    Subject,
    case_reference,
    excerpt,
    finding,
    named_cases,
)
from agent_eval_action.results.history import ScoreCount, Trajectory, TrajectoryRecord, short_call, trajectory_digest
from agent_eval_action.results.pair_scores import PairScores, modal_trajectory
from agent_eval_action.results.run_result import (
    AttemptSummary,
    CaseResult,
    ErrorKind,
    RunResult,
    RunStatus,
    ShardProblem,
)
from agent_eval_action.results.trajectory import CallDifference, call_key, diff_calls, explain, format_call

_UNDECIDED: Final = frozenset({Status.OPEN, Status.UNCONTROLLED})
_BELOW: Final = frozenset({ChangeKind.NEWLY_FAILING, ChangeKind.STILL_FAILING, ChangeKind.FAILING})
_CODES: Final = {
    Status.CONFIRMED: FindingCode.WORSE,
    Status.WITH_SUITE: FindingCode.WORSE_WITH_CRITERION,
    Status.WITH_MAIN: FindingCode.WORSE_WITH_MAIN,
    Status.CLEARED: FindingCode.FLAKY,
    Status.OPEN: FindingCode.WORSE_UNDECIDED,
    Status.UNCONTROLLED: FindingCode.WORSE_UNCONTROLLED,
    Status.ON_MAIN: FindingCode.BROKEN_ON_MAIN,
}
_WORST_NAMED: Final = 3

Trajectories = Mapping[CaseKey, TrajectoryRecord]
"""The baseline agent's calls, by case."""


# --- a case on a criterion -------------------------------------------------------------------------


def pair_findings(criterion: CriterionJudgement, trajectories: Trajectories) -> Iterator[Finding]:
    """A finding for each pair that is confirmed worse, undecided, broken on main, or below a threshold that counts."""
    for pair in criterion.pairs:
        test = criterion.test(pair)
        if test and test.status is not Status.CLEARED:
            severity, reason = _severity_of(criterion, pair, test), pair_reason(criterion, pair, trajectories)
        elif pair.below and criterion.threshold_counts(pair):
            severity, reason = criterion.severity_of(pair), _untested_reason(pair, trajectories)
        elif (pair.below and pair.accepted) or (test is None and pair.kind is ChangeKind.NEWLY_FAILING):
            severity, reason = "advisory", _untested_reason(pair, trajectories)
        else:
            continue
        if reason is not None:
            limit = excerpt(criterion.cut_short, 200) if severity == "inconclusive" else ""
            data = reason.data | ({"limit": limit} if limit else {})
            yield finding(severity, reason.code, pair.subject, **data)


def _severity_of(criterion: CriterionJudgement, pair: Pair, test: SuspectTest) -> Severity:
    if test.status is Status.CONFIRMED or (pair.below and criterion.policy.threshold_on == "case"):
        return criterion.severity
    missed = pair.below and criterion.policy.threshold_on == "regression"
    if test.status in _UNDECIDED and criterion.severity == "blocks" and (missed or criterion.cut_short):
        # below a threshold that main met, but not run again or not controlled: neither a regression nor a pass
        return "inconclusive"
    return "advisory"


def pair_reason(criterion: CriterionJudgement | None, pair: Pair, trajectories: Trajectories) -> Reason | None:
    """The outcome of a pair, by its test if it has one; None if there is nothing to report."""
    test = criterion.test(pair) if criterion else None
    by_threshold = criterion is not None and pair.below and criterion.policy.threshold_on == "case"
    if test is None or (test.status is Status.OPEN and by_threshold):
        return _untested_reason(pair, trajectories)
    # the first pass selected the suspect: its scores are shown only if there are no fresh ones
    scores = test.fresh or pair.attempts
    interval = interval_of(pair, scores) if test.fresh else None
    data = {
        "main": score_counts(pair.history, pair.past.mean),
        "here": count_scores(scores),
        "rerun": bool(test.fresh),
        "control": count_scores(pair.control) if pair.control else None,
        "interval": list(interval) if interval else None,
        "binary": pair.binary,
    }
    if test.status is not Status.CLEARED:
        data |= _explanation(pair, trajectories)
    return Reason(code=_CODES[test.status], data=data)


def score_counts(counts: Sequence[ScoreCount], average: float) -> dict[str, Any]:
    """Scores as findings store them: their number, their mean, and how many are 1."""
    passed = sum(times for score, times in counts if score == 1.0)
    return {"n": sum(times for _, times in counts), "mean": average, "passed": passed}


def count_scores(scores: Sequence[float]) -> dict[str, Any]:
    """The counts of the scores of single attempts."""
    return score_counts([(score, 1) for score in scores], fmean(scores))


def _untested_reason(pair: Pair, trajectories: Trajectories) -> Reason | None:
    if pair.kind in {ChangeKind.SAME, ChangeKind.PASSING}:
        return None
    measured, current = pair.measured, pair.current
    baseline = pair.baseline.mean if pair.baseline else None
    if current is None:
        return _without_score(pair, baseline)
    data: dict[str, Any] = {
        "score": current.mean,
        "n": current.n,
        "passed": current.passed,
        "errors": pair.errors,
        "attempts": len(measured.case.attempts) - measured.not_applicable if measured else 0,
    }
    if pair.kind in {ChangeKind.NEW, ChangeKind.CHANGED}:
        return Reason(code=FindingCode.NOT_COMPARED, data={**data, **why_data(pair.incomparable)})
    data |= {"baseline": baseline, **_explanation(pair, trajectories)}
    if pair.kind not in _BELOW:
        return Reason(code=FindingCode.SCORE_CHANGED, data={**data, "fixed": pair.kind is ChangeKind.FIXED})
    data |= {"threshold": pair.threshold, "goal": pair.goal, **why_data(pair.incomparable)}
    return Reason(code=FindingCode.BELOW_THRESHOLD, data=data)


def _without_score(pair: Pair, baseline: float | None) -> Reason:
    if pair.kind is ChangeKind.ERROR and pair.measured:
        return Reason(code=FindingCode.NO_SCORE, data=_missing_data(pair.measured))
    if pair.kind is ChangeKind.REMOVED:
        data = {"baseline": baseline, "below": pair.below, **why_data(pair.incomparable)}
        return Reason(code=FindingCode.PAIR_REMOVED, data=data)
    if pair.left_out:
        return Reason(code=FindingCode.LEFT_OUT, data={"text": excerpt(pair.left_out)})
    judgement = excerpt(pair.measured.reason) if pair.measured else ""
    return Reason(code=FindingCode.NOT_APPLICABLE, data={"judgement": judgement})


def why_data(incomparable: Incomparable | None) -> dict[str, Any]:
    """Why there is nothing to compare with, as data of a finding."""
    if incomparable is None:
        return {"why": ""}
    text = {"text": excerpt(incomparable.text)} if incomparable.text else {}
    return {"why": incomparable.why, **text}


def _explanation(pair: Pair, trajectories: Trajectories) -> dict[str, Any]:
    """The criterion's reason and the first tool call that differs from the baseline's.

    Both come from the worst attempts, whose score needs explaining.
    """
    if pair.kind not in _BELOW | {ChangeKind.WORSE} or pair.measured is None:
        return {}
    judgement = pair.measured.reason
    modal = modal_trajectory(pair.measured.worst)
    calls: dict[str, Any] | None = None
    if modal is not None:
        expected = tuple(turn.calls for turn in pair.measured.case.expected)
        of_calls = expected_calls(pair.measured.info) != "ignored"
        if not judgement and of_calls and expected:
            judgement = difference_from_expected(expected, modal[0])
        then = trajectories.get(pair.key)
        # if the baseline made the expected calls, this would only repeat the difference from those
        if then is not None and not (of_calls and then.digest == trajectory_digest(expected)):
            calls = difference_from_baseline(then, modal[0])
    found = {"judgement": excerpt(judgement), "calls": calls}
    return {name: value for name, value in found.items() if value}


def difference_from_expected(expected: Trajectory, actual: Trajectory) -> str:
    """The first difference from the expected calls; "" if there is none."""
    for turn, (want, got) in enumerate(zip(expected, actual, strict=False), 1):
        if found := diff_calls(want, got):
            return f"turn {turn} {explain(found[0])}"
    return ""


def difference_from_baseline(then: TrajectoryRecord, now: Trajectory) -> dict[str, Any] | None:
    """The first difference from the baseline's calls; None if there is none."""
    if then.digest == trajectory_digest(now):
        return None
    for turn, (old, new) in enumerate(zip(then.turns, now, strict=False), 1):
        known_calls = {call_key(call) for call in old}
        # compare calls in short form where the baseline kept only that
        same_form = tuple(call if call_key(call) in known_calls else short_call(call) for call in new)
        if found := diff_calls(old, same_form):
            return {"turn": turn, **_changed_call(found[0])}
    turns = len(then.turns) + then.cut
    if turns != len(now):
        return {"change": "turns", "old": turns, "new": len(now)}
    return {"change": "unknown", "old": len(then.turns)}


def _changed_call(found: CallDifference) -> dict[str, Any]:
    before, after = (format_call(call) if call else "" for call in (found.expected, found.actual))
    if found.expected is None:
        return {"change": "added", "new": after}
    if found.actual is None or found.kind == "moved":
        return {"change": "removed" if found.actual is None else "moved", "old": before}
    return {"change": "replaced" if before != after else "arguments", "old": before, "new": after}


# --- a criterion over its cases --------------------------------------------------------------------


def criterion_findings(criterion: CriterionJudgement, *, silent: bool = False) -> Iterator[Finding]:
    """Findings about the criterion's means: a significant drop blocks, others are advisory.

    ``silent``: the model returns empty answers, which already explains why main fell as well.
    """
    subject = Subject(criterion=criterion.name)
    for score, threshold, cases in criterion.missed_suite_thresholds():
        data = {"score": score, "threshold": threshold, "goal": criterion.goal, "cases": cases}
        yield finding(criterion.severity, FindingCode.MEAN_MISSES_THRESHOLD, subject, **data)
    lost = [pair for pair in criterion.pairs if _applies_no_longer(pair)]
    if lost:
        judgement = excerpt(lost[0].measured.reason) if lost[0].measured else ""
        named = named_cases([pair.key for pair in lost])
        yield finding("advisory", FindingCode.NO_LONGER_APPLICABLE, subject, **named, judgement=judgement)
    found = criterion.evidence
    if (fall := found.main_collapse) is not None:
        severity: Severity = "inconclusive" if criterion.severity == "blocks" else "advisory"
        data = {"baseline": fall.before, "control": fall.main, "score": fall.now, "cases": fall.cases}
        if not silent:
            yield finding(severity, FindingCode.MAIN_COLLAPSED, subject, **data)
        return
    suite = found.suite_test
    sure = suite is not None and suite.confirmed
    if criterion.limit_exceeded is not None:
        # next to a case that blocks for being worse, doubt about the mean would contradict it
        data = _mean_data(criterion) | ({} if sure or _has_worse_cases(criterion) else _doubt_data(found))
        yield finding(criterion.severity if sure else "advisory", FindingCode.MEAN_BEYOND_LIMIT, subject, **data)
    elif suite and sure:
        yield finding(criterion.severity, FindingCode.MEAN_WORSE, subject, drop=suite.drop, cases=len(found.complete))
    if found.together_confirmed and Status.CONFIRMED not in found.statuses:
        yield finding(criterion.severity, FindingCode.SUSPECTS_WORSE, subject, **_together_data(found))
    if criterion.severity == "blocks" and criterion.cut_short and (unconfirmed := _uncontrolled(found)):
        code, data = unconfirmed
        limit = excerpt(criterion.cut_short, 200)
        yield finding("inconclusive", code, subject, **data, doubt="not_confirmed", limit_met=limit)


def _has_worse_cases(criterion: CriterionJudgement) -> bool:
    """Whether single cases are confirmed worse, or newly miss a threshold that counts."""
    found = criterion.evidence
    confirmed = found.together_confirmed or Status.CONFIRMED in found.statuses
    newly = (pair for pair in criterion.pairs if pair.kind is ChangeKind.NEWLY_FAILING)
    return confirmed or any(map(criterion.threshold_counts, newly))


def _applies_no_longer(pair: Pair) -> bool:
    """Whether the criterion no longer applies to the answers although main has scores, which could hide a drop."""
    comparable = pair.baseline is not None and pair.incomparable is None
    return pair.kind is ChangeKind.NOT_APPLICABLE and comparable and not pair.left_out


def _uncontrolled(found: CriterionEvidence) -> tuple[FindingCode, dict[str, Any]] | None:
    """The drop that would block if a limit had not prevented the control."""
    suite = found.suite_test
    if found.control and suite and suite.sure and not found.suite_controlled:
        return FindingCode.MEAN_WORSE, {"drop": suite.drop, "cases": len(found.complete)}
    single = found.statuses & {Status.CONFIRMED, Status.UNCONTROLLED}
    if not single and not found.controlled and found.together(control=True).confirmed:
        return FindingCode.SUSPECTS_WORSE, _together_data(found)
    return None


def _mean_data(criterion: CriterionJudgement) -> dict[str, Any]:
    fell = [pair for pair in criterion.compared if pair.fall > TOLERANCE]
    worst = sorted(fell, key=lambda pair: (-pair.fall, pair.key))
    return {
        "goal": criterion.goal,
        "baseline": criterion.baseline,
        "score": criterion.paired,
        "cases": len(criterion.compared),
        "limit": criterion.limit_exceeded,
        "worse": len(worst),
        "worst": [
            case_reference(*pair.key, baseline=pair.baseline.mean, score=pair.current.mean)
            for pair in worst[:_WORST_NAMED]
            if pair.baseline and pair.current
        ],
    }


def _together_data(found: CriterionEvidence) -> dict[str, Any]:
    test, cases = found.together(control=True), len(found.suspects)
    return {"cases": cases, "runs": found.common_runs * cases, "drop": test.drop, "p": test.p}


def _doubt_data(found: CriterionEvidence) -> dict[str, Any]:
    """Why a mean beyond its limit does not block. "chance" requires a p above ``IN_DOUBT``."""
    suite = found.suite_test
    if suite is None:
        return {"doubt": "too_few_runs"}
    if suite.p > IN_DOUBT:
        return {"doubt": "chance", "p": suite.p}
    if suite.p > suite.level:
        return {"doubt": "above_level", "p": suite.p, "level": suite.level}
    if found.control and not found.suite_controlled:
        return {"doubt": "not_controlled"}
    return {"doubt": "control_as_low"}


# --- what could not be measured --------------------------------------------------------------------


def unmeasured_findings(
    criteria: Sequence[CriterionJudgement],
    result: RunResult,
    broken: Sequence[BrokenCase],
    unmeasured: Mapping[CaseKey, str],
) -> Iterator[Finding]:
    """Scores that are missing, with the reason. Cases broken by the change's code are grouped and block if they count.

    ``unmeasured``: cases whose scores on main this run should have measured but could not, with the reason.
    """
    gating = {pair.key for pair in pairs_of(criteria, gating=True)}
    blocking = gating & {case.key for case in broken}
    yield from _broken_code([case for case in broken if case.key in blocking], result)
    cut_short = result.status is not RunStatus.COMPLETE
    if result.status is RunStatus.INCOMPLETE and result.merge is not None:
        yield from (shard_finding(problem) for problem in result.merge.problems if problem.undecided)
    elif cut_short:
        yield _ended_early(criteria, result)
    unanswered: dict[CaseKey, tuple[PairScores, Severity]] = {}
    for criterion in criteria:
        for pair in criterion.pairs:
            severity: Severity = "inconclusive" if criterion.gating and not pair.added else "advisory"
            measured = pair.measured
            if pair.key in blocking or not measured or not pair.errors or (cut_short and _only_stopped(measured)):
                continue
            if measured.answered:
                yield finding(severity, FindingCode.NO_SCORE, pair.subject, **_missing_data(measured))
            elif severity == "inconclusive" or pair.key not in unanswered:
                unanswered[pair.key] = (measured, severity)
    for key, (measured, severity) in sorted(unanswered.items(), key=lambda item: item[0]):
        errors = sum(attempt.error is not None for attempt in measured.case.attempts)
        yield finding(
            severity, FindingCode.NO_ANSWER, Subject(**key._asdict()), **_missing_data(measured) | {"errors": errors}
        )
    yield from _unanswered_on_base(criteria, unmeasured)
    # without a score of anything that could block, the run says nothing
    deciding = [criterion for criterion in criteria if criterion.gating] or list(criteria)
    if not broken and not any(pair.current is not None or pair.left_out for pair in pairs_of(deciding)):
        yield finding(
            "inconclusive", FindingCode.NOTHING_MEASURED, criteria=[criterion.name for criterion in deciding[:NAMED]]
        )


def _unanswered_on_base(criteria: Sequence[CriterionJudgement], unmeasured: Mapping[CaseKey, str]) -> Iterator[Finding]:
    """One finding per reason why main's scores, which this run should have measured, are missing."""
    counted = {pair.key for pair in pairs_of(criteria, gating=True) if not pair.added}
    groups: dict[tuple[str, str], list[CaseKey]] = {}
    for key, why in sorted(unmeasured.items()):
        if key in counted:
            groups.setdefault((key.agent, why), []).append(key)
    for (agent, why), keys in groups.items():
        data = {**named_cases(keys), "error": excerpt(why)}
        yield finding("inconclusive", FindingCode.BASE_NO_ANSWER, Subject(agent=agent), **data)


def _missing_data(measured: PairScores) -> dict[str, Any]:
    return {"errors": measured.errors, "attempts": len(measured.case.attempts), "error": excerpt(measured.error)}


def _broken_code(broken: Iterable[BrokenCase], result: RunResult) -> Iterator[Finding]:
    """One finding per agent that does not start and per error that cases raise, naming the cases."""
    base = result.base.commit[:10] if result.base and result.base.commit else ""
    groups: dict[tuple[str, bool, str], list[BrokenCase]] = {}
    for case in broken:
        message = "" if not case.starts else case.error.message
        groups.setdefault((case.key.agent, case.starts, message), []).append(case)
    for (agent, starts, _), cases in sorted(groups.items(), key=lambda item: item[0]):
        data: dict[str, Any] = {"error": excerpt(cases[0].error.message), "base": base}
        code = FindingCode.CODE_DOES_NOT_START
        if starts:
            code = FindingCode.CODE_RAISES
            data |= named_cases([case.key for case in cases])
            data |= {
                "again": _count_failures([case.fresh for case in cases]),
                "control": _count_failures([case.base for case in cases]),
            }
        yield finding("blocks", code, Subject(agent=agent), **data)


def _count_failures(attempts: Iterable[Sequence[bool]]) -> list[int]:
    """The number of failed attempts, and of all attempts."""
    every = [answered for of_case in attempts for answered in of_case]
    return [sum(not answered for answered in every), len(every)]


def _ended_early(criteria: Sequence[CriterionJudgement], result: RunResult) -> Finding:
    pairs = pairs_of(criteria)
    data: dict[str, Any] = {
        "status": result.status.value,
        "limit": excerpt(result.cut_short),
        "missing": len({pair.key for pair in pairs if pair.errors}),
        "cases": len({pair.key for pair in pairs}),
    }
    return finding("inconclusive", FindingCode.RUN_ENDED_EARLY, **data)


def shard_finding(problem: ShardProblem) -> Finding:
    """The problem of a shard: a note, or the reason why the run is incomplete."""
    code = FindingCode.SHARD_NOT_MEASURED if problem.undecided else FindingCode.SHARD_SET_ASIDE
    data = problem.model_dump(mode="json", exclude={"named"}) | {
        "source": excerpt(problem.source, 120),
        "detail": excerpt(problem.detail, 200),
        "named": [case_reference(*key) for key in problem.named],
    }
    return finding("inconclusive" if problem.undecided else "note", code, **data)


def _only_stopped(measured: PairScores) -> bool:
    errors = {attempt.error.kind for attempt in measured.case.attempts if attempt.error is not None}
    return errors == {ErrorKind.STOPPED}


def silent_models(criteria: Sequence[CriterionJudgement]) -> Iterator[Finding]:
    """One finding per case that the model leaves unanswered here and on main, although main's history has answers.

    An empty answer (no candidate, a safety block) is scored, equally low on both sides. That looks like a defect that
    main already has, but the model or its service is the cause.
    """
    worse: dict[CaseKey, CaseResult] = {}
    for pair in pairs_of(criteria, gating=True):
        if pair.fall > TOLERANCE and pair.measured is not None and pair.measured.case.control:
            worse.setdefault(pair.key, pair.measured.case)
    for key, case in sorted(worse.items(), key=lambda item: item[0]):
        if _mostly_silent(case, case.attempts) and _mostly_silent(case, case.control):
            data = {"attempts": len(case.attempts), "control": len(case.control)}
            yield finding("inconclusive", FindingCode.MODEL_SILENT, Subject(**key._asdict()), **data)


def _mostly_silent(case: CaseResult, attempts: Sequence[AttemptSummary]) -> bool:
    answered = [attempt for attempt in attempts if attempt.error is None]
    return bool(answered) and 2 * sum(_is_silent(case, attempt) for attempt in answered) > len(answered)


def _is_silent(case: CaseResult, attempt: AttemptSummary) -> bool:
    """Whether the model was called but returned nothing in some turn, or no text where text is expected.

    ADK records no event without content, so that the model's duration may be the only sign of the call.
    """
    due = [bool(turn.response) for turn in case.expected] + [False] * len(attempt.turns)
    empty = (not turn.response and (text or not turn.calls) for turn, text in zip(attempt.turns, due, strict=False))
    asked = attempt.usage.model_calls > 0 or (attempt.durations.model or 0.0) > 0
    return asked and any(empty)


def credentials_findings(
    criteria: Sequence[CriterionJudgement], result: RunResult, withheld: Withheld
) -> tuple[Finding, ...]:
    """One finding for everything left out for lack of credentials.

    ``withheld``: the effect if GitHub withheld the secrets from the run. Even "pass" needs at least one score of a
    criterion that counts.
    """
    left = [
        (criterion, reasons)
        for criterion in criteria
        if (reasons := [pair.left_out for pair in criterion.pairs if pair.left_out])
    ]
    if not left:
        return ()
    gating = [(criterion, reasons) for criterion, reasons in left if criterion.gating]
    severity: Severity = "inconclusive" if gating else "advisory"
    if gating and result.conditions.withheld:
        measured = any(pair.current is not None for pair in pairs_of(criteria, gating=True))
        if withheld == "fail":
            severity = "blocks"
        elif withheld == "pass" and measured:
            severity = "advisory"
    shown = gating or left
    data: dict[str, Any] = {
        "text": excerpt(shown[0][1][0]),
        "why": excerpt(result.conditions.withheld or "; ".join(result.conditions.lacking)),
        "criteria": [
            {"criterion": criterion.name, "cases": len(reasons), "of": len(criterion.pairs)}
            for criterion, reasons in shown[:NAMED]
        ],
        "total": len(shown),
    }
    return (finding(severity, FindingCode.CREDENTIALS_MISSING, **data),)
