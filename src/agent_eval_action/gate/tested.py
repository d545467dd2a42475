"""What the tests of one criterion found. Values only; ``assess`` makes them."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from agent_eval_action.gate.evidence import PairEvidence


class Status(enum.StrEnum):
    """What became of a suspect."""

    CONFIRMED = "confirmed"
    CLEARED = "cleared"  # worse in the first pass only as chance allows
    ON_MAIN = "on_main"  # as bad on the base commit's agent
    OPEN = "open"  # not run again often enough to tell
    UNCONTROLLED = "uncontrolled"  # surely worse than its history, but the base commit's agent was not asked


@dataclass(frozen=True, slots=True)
class SuspectTest:
    """One suspect. ``p`` is adjusted over the criterion's suspects; ``drop`` is reference minus fresh mean."""

    pair: PairEvidence
    fresh: tuple[float, ...]
    p: float
    drop: float
    status: Status


@dataclass(frozen=True, slots=True)
class SuiteTest:
    """A criterion over its pairs. ``drop`` is on the criterion's scale, in the bad direction positive."""

    passes: int
    p: float
    drop: float
    level: float
    beyond: bool
    confirmed: bool = False


@dataclass(frozen=True, slots=True)
class TogetherTest:
    """All suspects of a criterion at once."""

    p: float
    drop: float
    level: float
    confirmed: bool = False
