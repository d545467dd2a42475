"""Excerpts of turns for results.json and reports: bounded whatever the agent said.

What is cut ends in its own digest, so that two different huge values never look equal.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from agent_eval_action.model.evalset import FunctionCall, Invocation
from agent_eval_action.model.result import CallBrief, TurnBrief

TEXT_LIMIT = 600
CALLS_LIMIT = 60
_VALUE_LIMIT = 300
_ITEMS_LIMIT = 20
_ARGS_LIMIT = 2_000
_DEPTH_LIMIT = 5


def turn_brief(turn: Invocation) -> TurnBrief:
    """The excerpt of one turn, expected or actual."""
    calls = turn.tool_calls()
    briefs = [call_brief(call) for call in calls[:CALLS_LIMIT]]
    if len(calls) > CALLS_LIMIT:
        rest = [call.model_dump(mode="json") for call in calls[CALLS_LIMIT:]]
        briefs.append(CallBrief(name="…", args={"more": len(rest), "sha256": _digest(rest)}))
    return TurnBrief(
        user=excerpt(turn.user_content.text, TEXT_LIMIT),
        calls=tuple(briefs),
        response=excerpt(turn.response_text, TEXT_LIMIT),
    )


def call_brief(call: FunctionCall) -> CallBrief:
    """The excerpt of one call."""
    args = {str(key): _shorten(value, _DEPTH_LIMIT) for key, value in list((call.args or {}).items())[:_ITEMS_LIMIT]}
    if len(call.args or {}) > _ITEMS_LIMIT or len(json.dumps(args, default=str)) > _ARGS_LIMIT:
        return CallBrief(name=call.name or "", args={"…": f"sha256:{_digest(call.args)}"})
    return CallBrief(name=call.name or "", args=args)


def excerpt(text: str, limit: int) -> str:
    """``text`` itself, or its beginning and how much there was."""
    if len(text) <= limit:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{text[:limit]}… ({len(text):,} characters, sha256:{digest})"


def _shorten(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return excerpt(value, _VALUE_LIMIT)
    if not isinstance(value, dict | list):
        return value
    if depth == 0 or len(value) > _ITEMS_LIMIT:
        return f"… (sha256:{_digest(value)})"
    if isinstance(value, dict):
        return {str(key): _shorten(item, depth - 1) for key, item in value.items()}
    return [_shorten(item, depth - 1) for item in value]


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
