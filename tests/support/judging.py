"""Judges of the tests' own: verdicts by sample, as replies in the schema that was asked for."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_eval_action.criteria.base import Criterion, Sample, ScoringContext
from agent_eval_action.llm.client import Llm, LlmError, LlmErrorKind, LlmReply, LlmRequest
from agent_eval_action.results.evalset import EvalCase, Invocation
from agent_eval_action.results.run_result import CriterionScore

AWAY = LlmError(LlmErrorKind.UNAVAILABLE, "the model answered 503: overloaded")


def said(verdict: str, rationale: str = "because") -> str:
    """A reply to a yes/no question."""
    return json.dumps({"rationale": rationale, "verdict": verdict})


def verdicts(*given: str | None, rationale: str = "because") -> str:
    """A reply on rubrics R1, R2, …; None leaves one out."""
    entries = [
        {"rubric": f"R{number}", "rationale": rationale, "verdict": verdict}
        for number, verdict in enumerate(given, 1)
        if verdict is not None
    ]
    return json.dumps({"verdicts": entries})


@dataclass
class Shuffled:
    """An ``Llm`` whose replies come back in any order: each waits a random number of rounds of the loop."""

    answer: Callable[[LlmRequest], LlmReply | LlmError | str]
    seed: int = 0
    asked: list[LlmRequest] = field(default_factory=list)

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        self.asked.append(request)
        dice = random.Random(f"{self.seed} {request.sample} {len(request.messages)}")  # noqa: S311 - a test's dice
        for _ in range(dice.randrange(6)):
            await asyncio.sleep(0)
        answered = self.answer(request)
        return LlmReply(answered) if isinstance(answered, str) else answered


def scored(
    criterion: Criterion,
    llm: Llm | None,
    actual: Sequence[Invocation],
    *,
    case: EvalCase | None = None,
    repeat: int = 0,
) -> CriterionScore:
    """The score of an attempt; without ``case`` the turns are their own references."""
    of = case or EvalCase(eval_id="case", conversation=tuple(actual))
    return asyncio.run(criterion.score(Sample(of, tuple(actual), None, repeat, ScoringContext(llm))))


def rubric(rubric_id: str, text: str = "", **fields: Any) -> dict[str, Any]:
    return {"rubric_id": rubric_id, "rubric_content": {"text_property": text or f"It is {rubric_id}."}, **fields}
