"""What the policy makes of one criterion: which of its pairs block, whether its means may be what they are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from agent_eval_action.config.policy import CriterionPolicy
from agent_eval_action.gate.compare import TOLERANCE, ComparedCriterion, ComparedPair, mean_of
from agent_eval_action.gate.sentences import Writer
from agent_eval_action.gate.wording import clip, count, listed, number, numbers
from agent_eval_action.model.decision import ChangeKind, CriterionChange, Finding
from agent_eval_action.model.measured import meets

Status = Literal["pass", "fail", "error", "advisory", "not_applicable"]
MOST: Final = "; most of it: "
_WORST_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Rule:
    """A criterion and what it is held to. ``collecting``: its threshold is nobody's, so nothing of it blocks."""

    one: ComparedCriterion
    policy: CriterionPolicy
    collecting: bool = False

    @property
    def gating(self) -> bool:
        """Whether anything about this criterion can decide: lower-is-better needs a limit somebody set."""
        return self.policy.mode == "blocking" and (self.one.goal == "maximize" or self.has_limit)

    @property
    def has_limit(self) -> bool:
        """Whether there is anything to miss."""
        thresholds = self.policy.threshold_on != "off" and any(p.threshold is not None for p in self.one.pairs)
        return thresholds or self.policy.max_drop is not None or self.policy.max_rise is not None

    @property
    def effect(self) -> Literal["blocks", "advisory"]:
        """What missing a limit does."""
        return "blocks" if self.gating and not self.collecting else "advisory"

    def blocks(self, pair: ComparedPair) -> bool:
        """Whether this pair alone makes the run fail."""
        return pair.below and self.policy.threshold_on == "case" and self.effect == "blocks"


def pair_findings(rule: Rule, writer: Writer) -> Iterable[Finding]:
    """A finding per pair below its threshold, where thresholds are held per case or the pair was better before."""
    if rule.policy.mode == "off":
        return
    for pair in rule.one.pairs:
        if not pair.below:
            continue
        if rule.policy.threshold_on == "case":
            yield _finding(pair, rule.effect, writer.pair(pair))
        elif pair.kind is ChangeKind.NEWLY_FAILING:
            yield _finding(pair, "advisory", writer.pair(pair))


def suite_findings(rule: Rule, writer: Writer) -> Iterable[Finding]:
    """Findings about the criterion's means."""
    reasons = []
    if rule.policy.threshold_on == "suite":
        reasons += list(_suite_thresholds(rule.one))
    if (moved := _moved_too_far(rule, writer)) is not None:
        reasons.append(moved)
    for reason in reasons:
        yield Finding(effect=rule.effect, reason=reason, criterion=rule.one.criterion)


def row(rule: Rule, findings: Iterable[Finding]) -> CriterionChange:
    """The criterion's line in the table. ``findings`` are those of this criterion."""
    one = rule.one
    own = list(findings)
    scored = [pair for pair in one.pairs if pair.current is not None]
    held = [pair for pair in scored if pair.threshold is not None]
    thresholds = {pair.threshold for pair in one.pairs}
    errors = sum(1 for pair in one.pairs if pair.measured and pair.measured.errors)
    return CriterionChange(
        criterion=one.criterion,
        goal=one.goal,
        threshold=next(iter(thresholds)) if len(thresholds) == 1 else None,
        current=one.current,
        baseline=one.baseline,
        paired=one.paired,
        change=one.change,
        pairs=len(one.pairs),
        compared=one.compared,
        passing=sum(not pair.below for pair in held),
        failing=sum(pair.below for pair in held),
        errors=errors,
        limit=limit_words(rule.policy),
        status=_status(rule, own, scored, errors),
        reason=_row_reason(rule, own, errors),
    )


def limit_words(policy: CriterionPolicy) -> str:
    """The allowed change: ``max drop 0.05``, ``max rise 10 %``."""
    if policy.max_drop is not None:
        return f"max drop {policy.max_drop:g}"
    return f"max rise {policy.max_rise * 100:g} %" if policy.max_rise is not None else ""


def _status(rule: Rule, own: list[Finding], scored: list[ComparedPair], errors: int) -> Status:
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


def _finding(pair: ComparedPair, effect: Literal["blocks", "advisory"], reason: str) -> Finding:
    return Finding(
        effect=effect,
        reason=reason,
        agent=pair.key.agent,
        eval_set=pair.key.eval_set,
        case=pair.key.case,
        criterion=pair.criterion,
    )
