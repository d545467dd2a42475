"""What to do about a key nobody reads: the name it was meant to be, or where its content belongs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from agent_eval_action.source import closest, did_you_mean

_PARTS = 'write `"parts": [{"text": "..."}]`'

KNOWN_CONFUSIONS: Final[dict[str, str]] = {
    "expected_tool_use": 'write `"intermediate_data": {"tool_uses": [{"name": ..., "args": ...}]}`',
    "expected_intermediate_agent_responses": 'write `"intermediate_data": {"intermediate_responses": [...]}`',
    "query": 'write `"user_content": {"parts": [{"text": "..."}]}`',
    "reference": 'write `"final_response": {"parts": [{"text": "..."}]}`',
    "tool_name": "the key is `name`",
    "tool_input": "the key is `args`",
    "arguments": "the key is `args`",
    "parameters": "the key is `args`",
    "content": _PARTS,
    "text": _PARTS,
    "tools": 'write `"intermediate_data": {"tool_uses": [{"name": ..., "args": ...}]}`',
}


def missing_key_hint(key: str, present: Iterable[str]) -> str | None:
    """For a missing key: the one beside it that looks like it."""
    found = closest(key, present)
    return f"is it meant by `{found}`?" if found else None


def unknown_key_hint(key: str, known: Iterable[str]) -> str | None:
    """A near name wins; else a name other schemas use for the same thing."""
    return did_you_mean(key, known) or KNOWN_CONFUSIONS.get(key)
