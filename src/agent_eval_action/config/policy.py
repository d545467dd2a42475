"""What the gate holds a run to: thresholds, allowed changes, and what may block. Values only."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from agent_eval_action.results.base import Frozen
from agent_eval_action.results.run_result import Goal

Mode = Literal["blocking", "advisory", "off"]
ThresholdOn = Literal["regression", "case", "suite", "off"]
FailOn = Literal["fail", "inconclusive", "never"]
OnWeakened = Literal["warn", "fail"]
Acceptance = Literal["honour", "ignore"]
NewCases = Literal["advise", "block"]
Withheld = Literal["pass", "neutral", "fail"]

MAX_DROP: Final = 0.05
"""Allowed drop of a criterion's suite mean when nothing else is configured."""

CONFIDENCE: Final = 0.99
"""One minus the chance that a harmless change is blocked, over everything a run tests."""

MIN_EFFECT: Final = 0.1
"""A pair's mean that fell by less blocks nothing, however sure the fall is."""


class CriterionPolicy(Frozen):
    """What one criterion is held to.

    ``mode``: *advisory* findings are shown and never block; *off* is not judged at all.
    ``threshold_on``: with *regression* a case below its threshold blocks when it is confirmed worse than
    main, and without comparable history always; with *case* always (ADK's rule); or only the *suite*'s
    mean counts, or neither. ``max_drop``: allowed drop of the suite mean on the criterion's own scale;
    ``max_rise``: allowed rise of a lower-is-better suite mean as a fraction of the baseline (0.1 = a tenth
    more). None = no limit. A change is held against either only where it is more than chance.
    """

    mode: Mode = "blocking"
    threshold_on: ThresholdOn = "regression"
    max_drop: float | None = Field(default=MAX_DROP, ge=0, allow_inf_nan=False)
    max_rise: float | None = Field(default=None, ge=0, allow_inf_nan=False)


_WEAKNESS: Final[tuple[Mode, ...]] = ("blocking", "advisory", "off")

ADVISORY: Final = frozenset({"invocation_duration_v1"})
"""Seconds vary with the machine and the model's load, so they advise unless told to block."""


class Policy(Frozen):
    """The rules for every criterion, and whole rules for those that have their own.

    ``confidence``: one minus the chance that a harmless change is blocked, over everything a run tests.
    ``min_effect``: the least drop of a pair's mean that blocks. ``sets``: modes of eval sets by name.
    ``on_weakened``: whether a change that loosens what agents are measured by is shown only, or blocked.
    ``accept``: whether entries of accept.yaml let a history start anew.
    ``new_cases``: whether a case that main does not have yet blocks when it misses a threshold.
    ``withheld``: what a pull request is of which only a part was measured, because GitHub gave it no secrets.
    ``agents_see_evals``: whether the agent's copy of the checkout has the eval files in it.
    """

    threshold_on: ThresholdOn = "regression"
    max_drop: float | None = Field(default=MAX_DROP, ge=0, allow_inf_nan=False)
    max_rise: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    confidence: float = Field(default=CONFIDENCE, ge=0.5, le=0.9999)
    min_effect: float = Field(default=MIN_EFFECT, ge=0, le=1)
    criteria: dict[str, CriterionPolicy] = Field(default_factory=dict)
    sets: dict[str, Mode] = Field(default_factory=dict)
    on_weakened: OnWeakened = "warn"
    accept: Acceptance = "honour"
    new_cases: NewCases = "advise"
    withheld: Withheld = "neutral"
    agents_see_evals: bool = False

    def mode_of(self, name: str, goal: Goal, eval_set: str) -> Mode:
        """The weaker of what a criterion and an eval set are held to."""
        modes = (self.for_criterion(name, goal).mode, self.sets.get(eval_set, "blocking"))
        return max(modes, key=_WEAKNESS.index)

    def for_criterion(self, name: str, goal: Goal) -> CriterionPolicy:
        """The rules of one criterion; the limit of the other direction is None."""
        own = self.criteria.get(name) or self.inherited(name)
        return own.model_copy(update={"max_drop" if goal == "minimize" else "max_rise": None})

    def inherited(self, name: str) -> CriterionPolicy:
        """What a criterion has before its own entry in ``gate.criteria`` changes it."""
        return CriterionPolicy(
            mode="advisory" if name in ADVISORY else "blocking",
            threshold_on=self.threshold_on,
            max_drop=self.max_drop,
            max_rise=self.max_rise,
        )
