"""Turns, cases and samples in one line each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from agent_eval_action.config.criteria import CriterionSpec
from agent_eval_action.criteria import build
from agent_eval_action.criteria.base import Criterion, Sample
from agent_eval_action.results.evalset import EvalCase, Invocation
from agent_eval_action.results.run_result import CriterionScore


def call(name: str | None, **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args}


def turn(text: str | None = None, *calls: dict[str, Any], **fields: Any) -> Invocation:
    """A turn with this answer and these calls, written as a hand-made eval file does."""
    data: dict[str, Any] = {"user_content": {"role": "user", "parts": [{"text": "hi"}]}, **fields}
    if text is not None:
        data["final_response"] = {"role": "model", "parts": [{"text": text}]}
    if calls:
        data["intermediate_data"] = {"tool_uses": list(calls)}
    return Invocation.model_validate(data)


def recorded(*events: dict[str, Any], **fields: Any) -> Invocation:
    """A turn with these events, as an agent driver records it."""
    said = [{"author": "agent", **event} for event in events]
    return turn("done", intermediate_data={"invocation_events": said}, **fields)


def sample(expected: Sequence[Invocation], actual: Sequence[Invocation]) -> Sample:
    return Sample(EvalCase(eval_id="case", conversation=tuple(expected)), tuple(actual))


def criterion(name: str, **options: Any) -> Criterion:
    (made,) = build([CriterionSpec(name, options)])
    return made


def score(made: Criterion, expected: Sequence[Invocation], actual: Sequence[Invocation]) -> CriterionScore:
    return asyncio.run(made.score(sample(expected, actual)))
