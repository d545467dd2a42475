"""What the policy makes of one criterion: which of its pairs block, whether its means may be what they are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from agent_eval_action.config.models import CriterionPolicy, Mode, NewCases
from agent_eval_action.gate.assess import IN_DOUBT, Collapse, CriterionEvidence, Status, SuspectTest
from agent_eval_action.gate.compare import NEW_CASE, TOLERANCE, ComparedCriterion, ComparedPair, mean_of
from agent_eval_action.gate.evidence_index import Weighed, smallest_drop, suite_interval
from agent_eval_action.gate.sentences import Writer
from agent_eval_action.gate.wording import clip, count, listed, number, numbers
from agent_eval_action.results.decision import ChangeKind, CriterionChange, Finding
from agent_eval_action.results.pair_scores import meets

RowStatus = Literal["pass", "fail", "error", "advisory", "not_applicable"]
MOST: Final = "; most of it: "
_WORST_SHOWN: Final = 3
_NOTHING: Final = Weighed()
_UNDECIDED: Final = frozenset({Status.OPEN, Status.UNCONTROLLED})


@dataclass(frozen=True, slots=True)
class Rule:
    """A criterion and what it is held to. ``collecting``: its threshold is nobody's, so nothing of it blocks."""

    one: ComparedCriterion
    policy: CriterionPolicy
    collecting: bool = False
    weighed: Weighed = _NOTHING
    sets: Mapping[str, Mode] = field(default_factory=dict)
    new_cases: NewCases = "advise"

    @property
    def gating(self) -> bool:
        """Whether anything about this criterion can decide: lower-is-better needs a limit somebody set."""
        return self.policy.mode == "blocking" and (self.one.goal == "maximize" or self.has_limit)

    @property
    def has_limit(self) -> bool:
        """Whether there is anything to miss."""
        thresholds = self.policy.threshold_on != "off" and any(p.threshold is not None for p in self.one.pairs)
        compared = self.one.goal == "maximize" and self.one.compared > 0
        return thresholds or compared or self.policy.max_drop is not None or self.policy.max_rise is not None

    @property
    def effect(self) -> Literal["blocks", "advisory"]:
        """What missing a limit does."""
        return "blocks" if self.gating and not self.collecting else "advisory"

    def effect_of(self, pair: ComparedPair) -> Literal["blocks", "advisory"]:
        """The same for one pair: what is added or of an advisory set blocks nothing, nor a new case unless it must."""
        advised = pair.incomparable == NEW_CASE and self.new_cases == "advise"
        if pair.added or advised or self.sets.get(pair.key.eval_set) == "advisory":
            return "advisory"
        return self.effect

    def held(self, pair: ComparedPair) -> bool:
        """Whether missing its threshold is held against this pair whatever main does."""
        if self.policy.threshold_on == "case":
            return True
        return self.policy.threshold_on == "regression" and bool(pair.incomparable) and not pair.accepted

    def misses_threshold(self, pair: ComparedPair) -> bool:
        """Whether its threshold alone makes the run fail: accepting the change does not help then."""
        return pair.below and self.held(pair) and self.effect_of(pair) == "blocks"

    def blocks(self, pair: ComparedPair) -> bool:
        """Whether this pair alone makes the run fail."""
        if self.weighed.status(pair) is Status.CONFIRMED:
            return self.effect == "blocks"
        return self.misses_threshold(pair)


def pair_findings(rule: Rule, writer: Writer) -> Iterable[Finding]:
    """A finding per pair that is confirmed worse, undecided, as bad on main, or below a threshold that counts."""
    if rule.policy.mode == "off":
        return
    for pair in rule.one.pairs:
        test = rule.weighed.test(pair)
        if test and test.status is not Status.CLEARED:
            yield _tested(rule, pair, test, writer)
        elif pair.below and rule.held(pair):
            yield _finding(pair, rule.effect_of(pair), writer.pair(pair))
        elif (pair.below and pair.accepted) or (test is None and pair.kind is ChangeKind.NEWLY_FAILING):
            yield _finding(pair, "advisory", writer.pair(pair))


def _tested(rule: Rule, pair: ComparedPair, test: SuspectTest, writer: Writer) -> Finding:
    reason = pair_reason(rule, pair, writer)
    if test.status is Status.CONFIRMED or (pair.below and rule.policy.threshold_on == "case"):
        return _finding(pair, rule.effect, reason)
    missed = pair.below and rule.policy.threshold_on == "regression"
    if test.status in _UNDECIDED and rule.effect == "blocks" and (missed or rule.weighed.cut_short):
        # below a threshold main met, and not run again or not controlled: neither a regression nor a pass
        why = f"; {clip(rule.weighed.cut_short, 200)}" if rule.weighed.cut_short else ""
        return _finding(pair, "inconclusive", f"{reason}{why}")
    return _finding(pair, "advisory", reason)


def pair_reason(rule: Rule, pair: ComparedPair, writer: Writer) -> str:
    """The sentence of a pair: of its evidence where there is any."""
    test = rule.weighed.test(pair)
    if test is None:
        return writer.pair(pair)
    if test.status is Status.OPEN and pair.below and rule.policy.threshold_on == "case":
        return writer.pair(pair)
    return writer.evidence(pair, test)


def suite_findings(rule: Rule, writer: Writer, *, silent: bool = False) -> Iterable[Finding]:
    """Findings about the criterion's means. ``silent``: the model answers nothing, which says why main fell as well."""
    reasons = []
    if rule.policy.threshold_on == "suite":
        reasons += list(_suite_thresholds(rule.one))
    for reason in reasons:
        yield Finding(effect=rule.effect, reason=reason, criterion=rule.one.criterion)
    yield from _evidence_findings(rule, writer, silent=silent)


def _evidence_findings(rule: Rule, writer: Writer, *, silent: bool) -> Iterable[Finding]:
    """The suite's mean and all suspects together: what is more than chance blocks, what may be chance advises."""
    name, found = rule.one.criterion, rule.weighed.criteria.get(rule.one.criterion)
    suite = found.suite_test if found else None
    if found and found.main_collapse is not None:
        effect: Literal["inconclusive", "advisory"] = "inconclusive" if rule.effect == "blocks" else "advisory"
        if not silent:
            yield Finding(effect=effect, reason=_collapsed(name, found.main_collapse), criterion=name)
        return
    sure = suite is not None and suite.confirmed
    if (moved := _moved_too_far(rule, writer)) is not None or (sure and suite):
        chance = "" if sure else _why_not_blocking(found)
        yield Finding(
            effect=rule.effect if sure else "advisory", reason=f"{moved or _fell(rule)}{chance}", criterion=name
        )
    if found and found.together_confirmed and not any(test.status is Status.CONFIRMED for test in found.tests):
        yield Finding(effect=rule.effect, reason=_together(found), criterion=name)
    if found and rule.effect == "blocks" and rule.weighed.cut_short and (why := _uncontrolled(rule, found)):
        yield Finding(effect="inconclusive", reason=f"{why}; {clip(rule.weighed.cut_short, 200)}", criterion=name)


def _collapsed(name: str, fall: Collapse) -> str:
    """What main could and neither arm can now is trouble of the model, of a service, or of main itself."""
    before, main = numbers(fall.before, fall.main)
    return (
        f"`{clip(name, 80)}`: main's agent lost it as well: {before} in its history, {main} just now over "
        f"{count(fall.cases, 'case')}, and {number(fall.now)} here: the model, a service or main itself is in trouble, "
        "and what this change does cannot be seen; run it again when that is over"
    )


def _uncontrolled(rule: Rule, found: CriterionEvidence) -> str:
    """What would block, had the base commit's agent been asked as well: a limit came before it."""
    suite, then = found.suite_test, "not confirmed, the base commit's agent was not run for comparison"
    if found.control and suite and suite.beyond and suite.p <= suite.level and not found.suite_controlled:
        return f"{_fell(rule)}: {then}"
    single = any(test.status in {Status.CONFIRMED, Status.UNCONTROLLED} for test in found.tests)
    if not single and not found.controlled and found.together(control=True).confirmed:
        return f"{_together(found)}: {then}"
    return ""


def _why_not_blocking(found: CriterionEvidence | None) -> str:
    """Why a mean that moved too far does not block: only what is likely enough by chance may be called so."""
    suite = found.suite_test if found else None
    if found is None or suite is None:
        return "; too few runs to tell it from chance"
    if suite.p > IN_DOUBT:
        return f"; this may be chance (p = {suite.p:.2g})"
    if suite.p > suite.level:
        return f"; p = {suite.p:.2g}, and blocking takes p ≤ {suite.level:.2g}"
    if found.control and not found.suite_controlled:
        return "; the base commit's agent was not run for comparison"
    return "; beside the base commit's agent, run just now, it is not worse than allowed"


def _fell(rule: Rule) -> str:
    found = rule.weighed.criteria[rule.one.criterion]
    drop = found.suite_test.drop if found.suite_test else 0.0
    return f"`{clip(rule.one.criterion, 80)}` got worse by {number(drop)} over {count(len(found.whole), 'case')}"


def _together(found: CriterionEvidence) -> str:
    test = found.together(control=True)
    runs = found.common * len(found.suspects)
    return (
        f"`{clip(found.criterion, 80)}`: {count(len(found.suspects), 'case')} did worse than on main in the first pass "
        f"and again in {count(runs, 'fresh run')}, by {number(test.drop)} on average (p = {test.p:.2g})"
    )


def row(rule: Rule, findings: Iterable[Finding]) -> CriterionChange:
    """The criterion's line in the table. ``findings`` are those of this criterion."""
    one = rule.one
    own = list(findings)
    found = rule.weighed.criteria.get(one.criterion)
    scored = [pair for pair in one.pairs if pair.current is not None]
    held = [pair for pair in scored if pair.threshold is not None]
    thresholds = {pair.threshold for pair in one.pairs}
    errors = sum(1 for pair in one.pairs if pair.measured and pair.measured.errors)
    return CriterionChange(
        criterion=one.criterion,
        goal=one.goal,
        unit=one.pairs[0].unit,
        threshold=next(iter(thresholds)) if len(thresholds) == 1 else None,
        current=one.current,
        baseline=one.baseline,
        paired=one.paired,
        change=one.change,
        interval=suite_interval(one),
        detectable=smallest_drop(found) if found else None,
        flaky=sum(rule.weighed.status(pair) is Status.CLEARED for pair in one.pairs),
        pairs=len(one.pairs),
        compared=one.compared,
        passing=sum(not pair.below for pair in held),
        failing=sum(pair.below for pair in held),
        errors=errors,
        misses_suite_threshold=rule.effect == "blocks"
        and rule.policy.threshold_on == "suite"
        and any(_suite_thresholds(one)),
        limit=limit_words(rule.policy),
        status=_status(rule, own, scored, errors),
        reason=_row_reason(rule, own, errors),
    )


def limit_words(policy: CriterionPolicy) -> str:
    """The allowed change: ``max drop 0.05``, ``max rise 10 %``."""
    if policy.max_drop is not None:
        return f"max drop {policy.max_drop:g}"
    return f"max rise {policy.max_rise * 100:g} %" if policy.max_rise is not None else ""


def _status(rule: Rule, own: list[Finding], scored: list[ComparedPair], errors: int) -> RowStatus:
    if not scored and not errors:
        return "not_applicable"
    if any(finding.effect == "blocks" for finding in own):
        return "fail"
    if not rule.gating:
        return "advisory"
    if errors:
        return "error"
    return "advisory" if any(finding.effect == "advisory" for finding in own) else "pass"


def _row_reason(rule: Rule, own: list[Finding], errors: int) -> str:
    parts = [finding.reason for finding in own if finding.case is None]
    below = sum(1 for pair in rule.one.pairs if pair.below)
    if below:
        parts.append(f"{count(below, 'case')} {'misses' if below == 1 else 'miss'} the threshold")
    if errors:
        parts.append(f"{count(errors, 'case')} not fully measured")
    if rule.policy.mode == "advisory":
        parts.append("advisory")
    elif not rule.has_limit:
        parts.append("no limit is set")
    elif rule.collecting and below:
        parts.append("ADK's default threshold, nobody's own: shown, not held against the run")
    return "; ".join(parts)


def _suite_thresholds(one: ComparedCriterion) -> Iterable[str]:
    """One mean per distinct threshold: sets with thresholds of their own are suites of their own."""
    groups: dict[float, list[float]] = {}
    for pair in one.pairs:
        if pair.current is not None and pair.threshold is not None:
            groups.setdefault(pair.threshold, []).append(pair.current.mean)
    for threshold, scores in sorted(groups.items()):
        mean = mean_of(scores)
        # a mean of means is no score: its last binary digit must not decide
        if mean is None or meets(mean, threshold, one.goal) or math.isclose(mean, threshold, rel_tol=TOLERANCE):
            continue
        side = "above" if one.goal == "minimize" else "below"
        shown, limit = numbers(mean, threshold)
        name = f"`{clip(one.criterion, 80)}`"
        yield f"{name} is {shown} on average over {count(len(scores), 'case')}, {side} its suite threshold {limit}"


def _moved_too_far(rule: Rule, writer: Writer) -> str | None:
    one, policy = rule.one, rule.policy
    before, after, change = one.baseline, one.paired, one.change
    if before is None or after is None or change is None:
        return None
    then, now = numbers(before, after)
    over = f"over the {count(one.compared, 'case')} both runs have ({then} → {now})"
    name = f"`{clip(one.criterion, 80)}`"
    if policy.max_drop is not None and -change > policy.max_drop + _slack(before):
        allowed, fell = numbers(policy.max_drop, -change)
        return f"{name} fell by {fell} {over}, more than the allowed {allowed}{_most(one, writer)}"
    if policy.max_rise is not None and change > policy.max_rise * abs(before) + _slack(before):
        rise = f"by {number(change / abs(before) * 100)} %" if before else "from nothing"
        return f"{name} rose {rise} {over}, more than the allowed {policy.max_rise * 100:g} %{_most(one, writer)}"
    return None


def _slack(before: float) -> float:
    return TOLERANCE * max(1.0, abs(before))


def _most(one: ComparedCriterion, writer: Writer) -> str:
    """The pairs that moved most in the bad direction."""
    sign = -1 if one.goal == "maximize" else 1
    bad = [
        (sign * pair.change, pair) for pair in one.pairs if pair.change is not None and sign * pair.change > TOLERANCE
    ]
    bad.sort(key=lambda item: (-item[0], item[1].key))
    names = listed((f"`{writer.case(pair.key)}`{_from_to(pair)}" for _, pair in bad), _WORST_SHOWN)
    return f"{MOST}{names}" if names else ""


def _from_to(pair: ComparedPair) -> str:
    if pair.baseline is None or pair.current is None:
        return ""
    then, now = numbers(pair.baseline.mean, pair.current.mean)
    return f" ({then} → {now})"


def _finding(pair: ComparedPair, effect: Literal["blocks", "inconclusive", "advisory"], reason: str) -> Finding:
    return Finding(
        effect=effect,
        reason=reason,
        agent=pair.key.agent,
        eval_set=pair.key.eval_set,
        case=pair.key.case,
        criterion=pair.criterion,
    )
