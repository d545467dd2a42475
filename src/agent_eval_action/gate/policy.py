"""What the policy makes of one criterion: which of its pairs may block, and whether its mean is within limits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from agent_eval_action.config.models import CriterionPolicy, Mode, NewCases
from agent_eval_action.gate.assess import Status
from agent_eval_action.gate.pairs import NEW_CASE, TOLERANCE, ComparedCriterion, ComparedPair, mean_of
from agent_eval_action.gate.statistics import EvidenceIndex, smallest_drop, suite_interval
from agent_eval_action.results.decision import CriterionChange
from agent_eval_action.results.findings import Finding, Severity
from agent_eval_action.results.pair_scores import meets

RowStatus = Literal["pass", "fail", "error", "advisory", "not_applicable"]


@dataclass(frozen=True, slots=True)
class CriterionJudgement:
    """A compared criterion and its policy. ``collecting``: nobody configured its threshold, so it blocks nothing."""

    compared: ComparedCriterion
    policy: CriterionPolicy
    collecting: bool = False
    weighed: EvidenceIndex = field(default_factory=EvidenceIndex)
    sets: Mapping[str, Mode] = field(default_factory=dict)
    new_cases: NewCases = "advise"

    @property
    def name(self) -> str:
        return self.compared.criterion

    @property
    def pairs(self) -> tuple[ComparedPair, ...]:
        return self.compared.pairs

    @property
    def gating(self) -> bool:
        """Whether this criterion can decide anything: lower-is-better needs a limit somebody set."""
        return self.policy.mode == "blocking" and (self.compared.goal == "maximize" or self.has_limit)

    @property
    def has_limit(self) -> bool:
        """Whether there is anything to miss."""
        thresholds = self.policy.threshold_on != "off" and any(pair.threshold is not None for pair in self.pairs)
        compared = self.compared.goal == "maximize" and self.compared.compared > 0
        return thresholds or compared or self.policy.max_drop is not None or self.policy.max_rise is not None

    @property
    def severity(self) -> Literal["blocks", "advisory"]:
        """What missing a limit does."""
        return "blocks" if self.gating and not self.collecting else "advisory"

    def severity_of(self, pair: ComparedPair) -> Literal["blocks", "advisory"]:
        """The same for one pair: added and advisory ones never block, new cases only if the policy says so."""
        advised = pair.incomparable == NEW_CASE and self.new_cases == "advise"
        if pair.added or advised or self.sets.get(pair.key.eval_set) == "advisory":
            return "advisory"
        return self.severity

    def threshold_counts(self, pair: ComparedPair) -> bool:
        """Whether missing its threshold counts against this pair whatever main does."""
        if self.policy.threshold_on == "case":
            return True
        return self.policy.threshold_on == "regression" and pair.incomparable is not None and not pair.accepted

    def misses_threshold(self, pair: ComparedPair) -> bool:
        """Whether its threshold alone makes the run fail: accepting the change does not help then."""
        return pair.below and self.threshold_counts(pair) and self.severity_of(pair) == "blocks"

    def blocks(self, pair: ComparedPair) -> bool:
        """Whether this pair alone makes the run fail."""
        if self.weighed.status(pair) is Status.CONFIRMED:
            return self.severity == "blocks"
        return self.misses_threshold(pair)

    def missed_suite_thresholds(self) -> Iterator[tuple[float, float, int]]:
        """Mean, threshold and number of cases per distinct threshold that the mean of its cases misses."""
        groups: dict[float, list[float]] = {}
        for pair in self.pairs:
            if pair.current is not None and pair.threshold is not None:
                groups.setdefault(pair.threshold, []).append(pair.current.mean)
        for threshold, scores in sorted(groups.items()):
            mean = mean_of(scores)
            # a mean of means is no score: its last binary digit must not decide
            if mean is None or math.isclose(mean, threshold, rel_tol=TOLERANCE):
                continue
            if not meets(mean, threshold, self.compared.goal):
                yield mean, threshold, len(scores)

    @property
    def limit_exceeded(self) -> float | None:
        """The policy's limit of the mean's change where the change is beyond it; None where it is not."""
        before, change = self.compared.baseline, self.compared.change
        if before is None or change is None:
            return None
        slack = TOLERANCE * max(1.0, abs(before))
        drop, rise = self.policy.max_drop, self.policy.max_rise
        if drop is not None and -change > drop + slack:
            return drop
        return rise if rise is not None and change > rise * abs(before) + slack else None

    def row(self, findings: list[Finding]) -> CriterionChange:
        """The criterion's line in the table. ``findings`` are those of this criterion."""
        compared, policy = self.compared, self.policy
        evidence = self.weighed.criteria.get(self.name)
        scored = [pair for pair in self.pairs if pair.current is not None]
        with_threshold = [pair for pair in scored if pair.threshold is not None]
        thresholds = {pair.threshold for pair in self.pairs}
        errors = sum(1 for pair in self.pairs if pair.measured and pair.measured.errors)
        misses = self.severity == "blocks" and policy.threshold_on == "suite" and any(self.missed_suite_thresholds())
        return CriterionChange(
            criterion=self.name,
            goal=compared.goal,
            unit=self.pairs[0].unit,
            threshold=next(iter(thresholds)) if len(thresholds) == 1 else None,
            current=compared.current,
            baseline=compared.baseline,
            paired=compared.paired,
            change=compared.change,
            interval=suite_interval(compared),
            detectable=smallest_drop(evidence) if evidence else None,
            flaky=sum(self.weighed.status(pair) is Status.CLEARED for pair in self.pairs),
            pairs=len(self.pairs),
            compared=compared.compared,
            passing=sum(not pair.below for pair in with_threshold),
            failing=sum(pair.below for pair in with_threshold),
            errors=errors,
            misses_suite_threshold=misses,
            max_drop=policy.max_drop,
            max_rise=policy.max_rise,
            status=self._status({found.severity for found in findings}, scored=bool(scored), errors=errors),
            blocks_nothing=self._blocks_nothing(),
        )

    def _status(self, severities: set[Severity], *, scored: bool, errors: int) -> RowStatus:
        if not scored and not errors:
            return "not_applicable"
        if "blocks" in severities:
            return "fail"
        if not self.gating:
            return "advisory"
        if errors:
            return "error"
        return "advisory" if "advisory" in severities else "pass"

    def _blocks_nothing(self) -> Literal["", "advisory", "no_limit", "collecting"]:
        if self.policy.mode == "advisory":
            return "advisory"
        if not self.has_limit:
            return "no_limit"
        return "collecting" if self.collecting else ""
