"""The judges' prompts. Every prompt is followed by the rule about fences, whose version is part of its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from agent_eval_action.llm.prompts import read_prompt

_FENCES = "fences"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a judge is asked to do. ``version`` changes whenever the words do, those every prompt shares included."""

    text: str
    version: str


@cache
def load(name: str) -> Prompt:
    """Return the prompt of ``<name>.md``."""
    (version, text), (shared_version, shared) = read_prompt(__name__, name), read_prompt(__name__, _FENCES)
    return Prompt(f"{text}\n\n{shared}", f"{name}-{version}.{shared_version}")
