"""The judges' prompts. Every prompt is followed by the rule about fences, whose version is part of its own."""

from __future__ import annotations

from functools import cache

from agent_eval_action.llm.prompts import read_prompt


@cache
def load(name: str) -> tuple[str, str]:
    """Return the version and the text of ``<name>.md``. The version changes whenever the words do."""
    (version, text), (shared_version, shared) = read_prompt(__name__, name), read_prompt(__name__, "fences")
    return f"{name}-{version}.{shared_version}", f"{text}\n\n{shared}"
