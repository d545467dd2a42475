"""ADK's ``judge_model_options``: which model judges, how it is set up, and how often it is asked."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic.alias_generators import to_snake

from agent_eval_action.model.base import AdkModel

_OURS = {
    "system_instruction": "the criterion's own prompt",
    "response_schema": "the schema of the criterion's answer",
    "response_json_schema": "the schema of the criterion's answer",
    "response_mime_type": "JSON",
    "candidate_count": "one answer per sample (ask for more with `num_samples`)",
    "tools": "nothing: a judge has no tools",
    "tool_config": "nothing: a judge has no tools",
    "automatic_function_calling": "off: a judge has no tools",
    # Its base_url and headers would send the judge's key wherever a pull request's criteria file says.
    "http_options": "the run's own (`llm`)",
}


def _in_snake_case(config: dict[str, Any] | None) -> dict[str, Any] | None:
    """The names of GenerateContentConfig in one spelling: the other is no other judge."""
    snake: dict[str, Any] = {}
    for key, value in (config or {}).items():
        name = to_snake(key)
        if name in snake:
            raise ValueError(f"`{key}` is given in two spellings")
        if name in _OURS:
            raise ValueError(f"`{key}` cannot be set: it is {_OURS[name]}")
        snake[name] = value
    return snake or None


class JudgeModelOptions(AdkModel):
    """Which model judges, and how often it is asked.

    ``judge_model_config`` goes to the model as it is, in snake_case. ``parallelism_limit`` bounds the samples of
    one question that are asked at once; ADK's is per metric and 1, which would make every case wait for itself,
    so that here None (the rate limits alone) is the default. It changes no score and is in no digest.
    """

    judge_model: str = Field(default="gemini-2.5-flash", min_length=1)
    judge_model_config: Annotated[dict[str, Any] | None, AfterValidator(_in_snake_case)] = None
    num_samples: int = Field(default=5, ge=1)
    parallelism_limit: int | None = Field(default=None, ge=1, exclude=True)
