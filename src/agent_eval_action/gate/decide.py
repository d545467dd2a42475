"""From a comparison and a policy to the verdict and its reasons. Pure.

Evidence of a failure outweighs what could not be measured; what could not be measured outweighs a pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from agent_eval_action.config.models import Policy
from agent_eval_action.gate.assess import Status, SuspectTest
from agent_eval_action.gate.broken_code import BrokenCode, broken_code
from agent_eval_action.gate.compare import ComparedPair, Comparison, criteria_of
from agent_eval_action.gate.evidence_index import Weighed, weigh
from agent_eval_action.gate.headline import headline
from agent_eval_action.gate.missing_scores import (
    baseline_findings,
    error_findings,
    nothing_measured,
    silence_findings,
    withheld_findings,
)
from agent_eval_action.gate.notes import pair_notes
from agent_eval_action.gate.rules import Rule, pair_findings, pair_reason, row, suite_findings
from agent_eval_action.gate.sentences import Writer
from agent_eval_action.gate.suspects import describe_rate
from agent_eval_action.gate.wording import BEGIN, clip, count, listed
from agent_eval_action.results.decision import (
    BaselineTrajectory,
    ChangeKind,
    Decision,
    Finding,
    PairChange,
    Stat,
    TurnBrief,
    Verdict,
)
from agent_eval_action.results.pair_scores import exact_mean, meets
from agent_eval_action.results.run_result import RunResult, collector_paused

_EFFECTS: Final = {"blocks": 0, "inconclusive": 1, "advisory": 2}
_MOVED: Final = frozenset(
    {ChangeKind.BETTER, ChangeKind.WORSE, ChangeKind.NEWLY_FAILING, ChangeKind.FIXED, ChangeKind.STILL_FAILING}
)
_TOLD: Final = frozenset(
    {
        ChangeKind.WORSE,
        ChangeKind.NEWLY_FAILING,
        ChangeKind.STILL_FAILING,
        ChangeKind.FAILING,
        ChangeKind.ERROR,
        ChangeKind.CHANGED,
        ChangeKind.REMOVED,
    }
)


@collector_paused()
def decide(comparison: Comparison, result: RunResult, policy: Policy, broken: BrokenCode | None = None) -> Decision:
    """The whole conclusion about ``result``, which ``comparison`` was made of.

    ``broken``: what the change's code breaks, where ``result`` does not hold all attempts of the base commit's agent.
    """
    weighed = weigh(comparison, result, policy)
    rules = _rules(comparison, policy, weighed)
    judged = [rule for rule in rules if rule.policy.mode != "off"]
    pairs = [pair for rule in judged for pair in rule.one.pairs]
    writer = Writer.of((pair.key for pair in (*pairs, *comparison.removed)), comparison.trajectories)
    silent = tuple(silence_findings(judged, writer))
    by_criterion = {
        rule.one.criterion: [*suite_findings(rule, writer, silent=bool(silent)), *pair_findings(rule, writer)]
        for rule in judged
    }
    findings = [finding for own in by_criterion.values() for finding in own]
    broken = broken_code(result) if broken is None else broken
    findings += error_findings(judged, result, writer, broken)
    findings += silent
    findings += baseline_findings(judged, comparison.unmeasured, writer)
    if not broken.confirmed and (nothing := nothing_measured(judged)) is not None:
        findings.append(nothing)
    withheld = withheld_findings(judged, result, policy.withheld)
    findings += withheld
    findings.sort(key=_order)
    outcome = _outcome(findings, any(rule.collecting for rule in judged))
    doubts = [finding for finding in findings if finding.effect == "inconclusive"]
    excused = outcome is Verdict.INCONCLUSIVE and bool(result.conditions.withheld) and doubts == list(withheld)
    return Decision(
        outcome=outcome,
        reason=headline(outcome, comparison, judged, findings, writer, left_out=withheld),
        excused=excused,
        findings=tuple(findings),
        criteria=tuple(row(rule, by_criterion[rule.one.criterion]) for rule in judged),
        pairs=tuple(_pairs(judged, comparison.removed, writer)),
        baseline=comparison.baseline,
        store=comparison.store,
        accept=policy.accept,
        on_weakened=policy.on_weakened,
        baseline_trajectories=tuple(_trajectories(comparison, judged)),
        notes=(
            *_report_only(result),
            *_policy_notes(comparison, rules),
            *comparison.notes,
            *pair_notes(comparison),
            *_flaky_notes(weighed),
            *_control_notes(result),
        ),
    )


def _rules(comparison: Comparison, policy: Policy, weighed: Weighed) -> list[Rule]:
    criteria = comparison.criteria
    if "off" in policy.sets.values():
        criteria = criteria_of(pair for pair in comparison.pairs if policy.sets.get(pair.key.eval_set) != "off")
    rules = [(one, policy.for_criterion(one.criterion, one.goal)) for one in criteria]
    # whoever asks for ADK's rule, or for the suite's mean, makes ADK's default thresholds their own
    own = any(
        rule.mode != "off"
        and (rule.threshold_on in {"case", "suite"} or one.criterion in comparison.own_thresholds)
        and rule.threshold_on != "off"
        for one, rule in rules
    )
    collecting = comparison.baseline is None and not own
    return [Rule(one, rule, collecting, weighed, policy.sets, policy.new_cases) for one, rule in rules]


def _outcome(findings: Iterable[Finding], collecting: bool) -> Verdict:
    effects = {finding.effect for finding in findings}
    if "blocks" in effects:
        return Verdict.FAIL
    if "inconclusive" in effects:
        return Verdict.INCONCLUSIVE
    return Verdict.COLLECTING if collecting else Verdict.PASS


def _order(finding: Finding) -> tuple[int, bool, str, str, str, str]:
    """What decides first; there, what is about the whole suite first."""
    return (
        _EFFECTS[finding.effect],
        finding.case is not None,
        finding.agent or "",
        finding.eval_set or "",
        finding.case or "",
        finding.criterion or "",
    )


def _pairs(rules: Iterable[Rule], removed: Iterable[ComparedPair], writer: Writer) -> list[PairChange]:
    found = [_pair(pair, rule, writer) for rule in rules for pair in rule.one.pairs]
    found += [_pair(pair, None, writer) for pair in removed]
    return sorted(found, key=lambda pair: (pair.agent, pair.eval_set, pair.case, pair.criterion))


def _pair(pair: ComparedPair, rule: Rule | None, writer: Writer) -> PairChange:
    test = rule.weighed.test(pair) if rule else None
    return PairChange(
        **pair.key._asdict(),
        criterion=pair.criterion,
        goal=pair.goal,
        unit=pair.unit,
        threshold=pair.threshold,
        kind=_kind(pair, test, improved=rule.weighed.improved(pair) if rule else False),
        baseline=pair.baseline,
        current=pair.current,
        errors=pair.measured.errors if pair.measured else 0,
        change=pair.change,
        interval=rule.weighed.interval(pair) if rule and pair.kind in _MOVED else None,
        fresh=_stat(test.fresh, pair) if test else None,
        control=_stat(test.pair.control, pair) if test else None,
        blocking=rule.blocks(pair) if rule else False,
        confirmed=test is not None and test.status in {Status.CONFIRMED, Status.WITH_SUITE},
        misses_threshold=rule.misses_threshold(pair) if rule else False,
        accepted=pair.accepted,
        reason=pair_reason(rule, pair, writer) if rule else writer.pair(pair),
    )


def _kind(pair: ComparedPair, test: SuspectTest | None, *, improved: bool) -> ChangeKind:
    """Cleared and as bad on main are no changes of the agent's; a confirmed one is, whatever its mean says."""
    if pair.kind in {ChangeKind.FIXED, ChangeKind.BETTER} and not improved:
        return ChangeKind.SAME  # what may be chance is no more called better than worse
    if test is None or pair.kind is ChangeKind.ERROR:
        return pair.kind
    if test.status is Status.CLEARED:
        return ChangeKind.FLAKY
    if test.status in {Status.ON_MAIN, Status.WITH_MAIN}:
        return ChangeKind.ON_MAIN
    fell = test.status in {Status.CONFIRMED, Status.WITH_SUITE}
    if fell and pair.kind not in {ChangeKind.NEWLY_FAILING, ChangeKind.STILL_FAILING}:
        return ChangeKind.WORSE
    return pair.kind


def _stat(scores: Sequence[float], pair: ComparedPair) -> Stat | None:
    if not scores:
        return None
    passed = None if pair.threshold is None else sum(meets(score, pair.threshold, pair.goal) for score in scores)
    return Stat(n=len(scores), mean=exact_mean(scores), passed=passed, low=min(scores), high=max(scores))


def _trajectories(comparison: Comparison, rules: Iterable[Rule]) -> Iterable[BaselineTrajectory]:
    """Of the cases a report goes into: 10,000 that are as they were need none."""
    told = {pair.key for rule in rules if rule.gating for pair in rule.one.pairs if pair.kind in _TOLD}
    told |= {pair.key for pair in comparison.removed}
    for key in sorted(told & comparison.trajectories.keys()):
        kept = comparison.trajectories[key]
        yield BaselineTrajectory(**key._asdict(), turns=tuple(TurnBrief(calls=calls) for calls in kept.turns))


def _report_only(result: RunResult) -> Iterable[str]:
    if result.conditions.fail_on == "never":
        yield "report only: with `fail_on: never` the step is green whatever the verdict is"


def _policy_notes(comparison: Comparison, rules: Sequence[Rule]) -> Iterable[str]:
    if comparison.baseline is None and any(not rule.collecting for rule in rules):
        yield f"there is no baseline, so only thresholds count; {BEGIN[comparison.store]}"
    off = [rule.one.criterion for rule in rules if rule.policy.mode == "off"]
    if off:
        yield f"not judged, its mode is off: {_names(off)}"
    limitless = [
        rule.one.criterion
        for rule in rules
        if rule.policy.mode == "blocking" and rule.one.goal == "maximize" and not rule.has_limit
    ]
    if limitless:
        yield f"nothing can block on {_names(limitless)}: no threshold counts and no max_drop is set"


def _flaky_notes(weighed: Weighed) -> Iterable[str]:
    """What was worse at first, and passed when it was run again: how often."""
    cleared = [(key, test) for key, test in weighed.tests.items() if test.status is Status.CLEARED]
    if cleared:
        names = listed(
            (
                f"`{clip(key.case, 60)} › {clip(name, 60)}` ({describe_rate(test)})"
                for (key, name), test in sorted(cleared, key=lambda item: item[0])
            ),
            5,
        )
        yield f"flaky: {count(len(cleared), 'score')} worse than on main at first, as on main when run again: {names}"


def _control_notes(result: RunResult) -> Iterable[str]:
    base = result.base
    if base is not None and base.unavailable:
        yield f"no control: {clip(base.unavailable, 300)}; the verdict stands on history"
    for agent, reason in sorted(base.unavailable_agents.items()) if base is not None else ():
        yield f"no control of `{clip(agent, 60)}`: {clip(reason, 300)}; its verdict stands on history"


def _names(criteria: Iterable[str]) -> str:
    return listed((f"`{clip(name, 60)}`" for name in criteria), 5)
