"""What judges said, as results keep it: votes, verdicts per rubric, labelled sentences, and what asking cost."""

from __future__ import annotations

from typing import Literal

from agent_eval_action.model.base import Frozen

SentenceKind = Literal["supported", "unsupported", "contradictory", "disputed", "not_applicable"]


class Votes(Frozen):
    """How a judge's samples fell; ``left_out`` gave no usable answer. What could change nothing was not asked."""

    yes: int = 0
    no: int = 0
    left_out: int = 0

    @property
    def verdict(self) -> bool | None:
        """The majority; a tie is negative, None without a vote."""
        return self.yes > self.no if self.yes + self.no else None


class RubricScore(Frozen):
    """One rubric: 1 or 0 in a turn, the mean over its turns in a case. ``rationale`` is a judge's of the majority."""

    rubric_id: str
    text: str
    score: float | None
    rationale: str = ""
    votes: Votes = Votes()
    weight: float = 1.0


class SentenceLabel(Frozen):
    """One sentence of an answer held against its context."""

    sentence: str
    label: SentenceKind
    rationale: str = ""


class ModelUse(Frozen):
    """What one purpose (a criterion, ``agent``, ``user_simulator``) asked of one model over the whole run.

    ``cached`` answers cost nothing and are not among ``calls``. ``usd`` is of the calls that have a price and
    reported their tokens; ``unpriced`` counts the others: their cost is unknown, not zero.
    """

    purpose: str
    provider: str
    model: str
    calls: int = 0
    cached: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    calls_without_usage: int = 0
    usd: float | None = None
    unpriced: int = 0
