"""Text under judgement, between tags that the text itself cannot hold: made of its own digest.

Stable (the same texts give the same request, so that answers can be cached) and out of reach: to close its
fence a text would have to contain a digest of itself. No text is cut: a verdict on a text that was not read
whole is no verdict. What is beyond the model's limit, the provider refuses, and that is an error.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from agent_eval_action.llm.text import sendable

printable = sendable
"""What is fenced is what is sent: its digest has to be of the same characters."""

_DIGITS = 24
_LABEL = re.compile(r"[a-z][a-z0-9_]*")


def fenced(label: str, text: str) -> str:
    """One text between its tags. ``label`` (snake_case) says what it is, and is what the prompt calls it."""
    return fences({label: text})[label]


def fences(texts: Mapping[str, str]) -> dict[str, str]:
    """The texts of one prompt, each between tags made of the digest of all of them, by label.

    Of all, so that no text can hold a tag of another either, not even one whose author knows every other text.
    """
    said = {label: printable(text) for label, text in texts.items()}
    digest = hashlib.sha256(json.dumps(said, ensure_ascii=False).encode()).hexdigest()[:_DIGITS]
    return {label: _between(f"{_checked(label)}-{digest}", text) for label, text in said.items()}


def message(texts: Mapping[str, str]) -> str:
    """A prompt's whole message: its fenced texts one after the other, in their order."""
    return "\n\n".join(fences(texts).values())


def as_json(value: Any) -> str:
    """A value as JSON for a judge to read. Raises RecursionError when it is nested beyond what Python can walk."""
    return json.dumps(value, ensure_ascii=False, indent=1, default=str)


def _between(tag: str, text: str) -> str:
    return f"<{tag}>\n{text}\n</{tag}>"


def _checked(label: str) -> str:
    if not _LABEL.fullmatch(label):
        raise ValueError(f"no label of a fence: {label!r}")
    return label
