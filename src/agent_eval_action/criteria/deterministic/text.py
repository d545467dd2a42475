"""response_match_score: ROUGE-1 F-measure of the final response against the reference."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import cache
from typing import ClassVar

from agent_eval_action.criteria.deterministic.paired import PairedCriterion
from agent_eval_action.criteria.deterministic.tokens import Tokenizer
from agent_eval_action.model.evalset import Invocation
from agent_eval_action.model.result import TurnScore

_EXCERPT = 160
_LARGE = 200_000


_MAKING = threading.Lock()


@cache
def _made() -> Tokenizer:
    return Tokenizer()


def tokenizer() -> Tokenizer:
    """The one tokenizer of the process; threads that come first together wait for one import."""
    with _MAKING:
        return _made()


class ResponseMatchScore(PairedCriterion):
    """ADK's response_match_score, with ADK's scores."""

    name: ClassVar[str] = "response_match_score"

    async def turns(self, expected: Sequence[Invocation], actual: Sequence[Invocation]) -> tuple[TurnScore, ...]:
        size = sum(len(turn.response_text) for turn in (*expected, *actual))
        if _made.cache_info().currsize and size < _LARGE:
            return await super().turns(expected, actual)
        # Seconds of work (an import, or megabytes): the sessions that run meanwhile must not wait for it.
        pairs = enumerate(zip(expected, actual, strict=True))
        return await asyncio.to_thread(lambda: tuple(self.score_turn(turn, *pair) for turn, pair in pairs))

    def score_turn(self, turn: int, expected: Invocation, actual: Invocation) -> TurnScore:
        reference, response = expected.response_text, actual.response_text
        precision, recall = rouge_1(reference, response)
        score = f_measure(precision, recall)
        return TurnScore(
            turn=turn,
            score=score,
            reason=_reason(score, reference, response),
            details={"precision": precision, "recall": recall},
        )


def rouge_1(reference: str, response: str) -> tuple[float, float]:
    """Precision and recall of the response's words; 0 where either side has none."""
    want, got = tokenizer().count(reference), tokenizer().count(response)
    common = (want & got).total()
    return common / max(got.total(), 1), common / max(want.total(), 1)


def f_measure(precision: float, recall: float) -> float:
    """The harmonic mean, in rouge-score's order of operations."""
    total = precision + recall
    return 2 * precision * recall / total if total > 0 else 0.0


def _reason(score: float, reference: str, response: str) -> str:
    if not reference:
        return "the case has no reference answer for this turn"
    if not response:
        return f"no answer; expected {_excerpt(reference)}"
    if score >= 1:
        return "the words of the reference"
    return f"{score:.2f} of the words shared: expected {_excerpt(reference)}, got {_excerpt(response)}"


def _excerpt(text: str) -> str:
    flat = " ".join(text[: 2 * _EXCERPT].split())
    cut = flat if len(flat) <= _EXCERPT and len(text) <= 2 * _EXCERPT else flat[: _EXCERPT - 1] + "…"
    return f"“{cut}”"
