"""What the gate decides from, as plain numbers, and what it can ask for. Values only.

The contract of the loop: build a ``GateState`` of everything measured so far, ask
``next_step.next_step(state, rules)``, make what it asks for, add it to the state, ask again until it
answers ``Enough``; then ``assess.assess(state, rules)`` is the evidence ``decide`` turns into a verdict.
Both are pure: the same state gives the same answer, whatever the order of pairs in it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final

from agent_eval_action.config.policy import CONFIDENCE, MAX_DROP, MIN_EFFECT
from agent_eval_action.model.baseline import ScoreCount
from agent_eval_action.model.result import Goal

Key = Hashable
"""A case: a ``CaseKey`` of a real run, a number in a simulation. Cases of one state are of one sortable type."""


@dataclass(frozen=True, slots=True)
class PairEvidence:
    """One pair. Scores are on the criterion's own scale.

    ``history``: comparable scores of main, pooled, with how often each was seen; () where there are none.
    ``attempts``: this run's scores in the order of their repeats; the leading ``first`` of them are the
    first pass, the rest are *fresh* (a re-run of a case scores all its criteria: every pair of the case
    gets the score, whichever asked for it). ``control``: scores of the base commit's agent in this job, which
    was asked ``tried`` times. ``beside``: those of the fresh scores that were made in turn with the control.
    ``controllable``: whether the base commit has an agent that can be run for this pair. ``blocking``: whether this
    pair may block (mode, eval set); others are not tested. ``errors``: attempts without a score.
    """

    case: Key
    criterion: str
    history: tuple[ScoreCount, ...] = ()
    attempts: tuple[float, ...] = ()
    first: int = 1
    control: tuple[float, ...] = ()
    beside: tuple[float, ...] = ()
    tried: int = 0
    controllable: bool = True
    goal: Goal = "maximize"
    threshold: float | None = None
    blocking: bool = True
    errors: int = 0


@dataclass(frozen=True, slots=True)
class GateState:
    """Everything measured so far.

    ``control``: whether the base commit's agent can be run. ``extra``: attempts made beyond the first
    pass, the control's included. ``closed``: nothing more can be run (compare, fixed repeats, stopped).
    """

    pairs: tuple[PairEvidence, ...]
    control: bool = False
    extra: int = 0
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """``extra_runs``: attempts beyond the first pass, over the whole run; None: ten suites' worth and 100."""

    extra_runs: int | None = None

    def of(self, cases: int) -> int:
        """The limit for a run of so many cases."""
        return 10 * cases + 100 if self.extra_runs is None else self.extra_runs


@dataclass(frozen=True, slots=True)
class CriterionRule:
    """Allowed change of one criterion's suite mean, as in ``CriterionPolicy``."""

    max_drop: float | None = MAX_DROP
    max_rise: float | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """What the evidence is held to.

    ``confidence``: one minus the chance that a harmless change is blocked, over everything tested.
    ``min_effect``: the least drop of a pair's mean that may block it. ``adaptive``: suspects are run
    again; without it every attempt is evidence and every pair is tested.
    """

    confidence: float = CONFIDENCE
    min_effect: float = MIN_EFFECT
    criteria: Mapping[str, CriterionRule] = field(default_factory=dict)
    limits: Limits = Limits()
    adaptive: bool = True

    def of(self, criterion: str) -> CriterionRule:
        """The rule of one criterion."""
        return self.criteria.get(criterion, _PLAIN)


_PLAIN: Final = CriterionRule()

Attempts = tuple[tuple[Key, int], ...]
"""Cases in order with how many *more* attempts of each."""


@dataclass(frozen=True, slots=True)
class RerunSuspects:
    """Run these cases again: they did worse than on main. ``why`` is for the progress display."""

    attempts: Attempts
    why: str


@dataclass(frozen=True, slots=True)
class RerunSuite:
    """Pass the suite again: its drop is in doubt. Cases that were run again for another reason need less."""

    attempts: Attempts
    why: str


@dataclass(frozen=True, slots=True)
class RunControl:
    """Run these cases on the base commit's agent, and in turn with it ``beside`` on this change's.

    What drifts, a model or a service, then meets both arms alike. ``errors_answer``: it is asked whether the base's
    agent answers at all, so that an error of it is an answer and no reason to ask it nothing more.
    """

    attempts: Attempts
    why: str
    beside: Attempts = ()
    errors_answer: bool = False


@dataclass(frozen=True, slots=True)
class Enough:
    """Nothing more would change the verdict, or (``limited``) a limit forbids what would."""

    reason: str
    limited: bool = False


Step = RerunSuspects | RerunSuite | RunControl | Enough
