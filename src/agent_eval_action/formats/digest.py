"""A case's digest: equal as long as what is asked and what is expected are."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from agent_eval_action.results.evalset import EvalCase

# Names and traces of a recording. Calls are compared without their ids, and who said what is in the structure.
_LEFT_OUT = frozenset(
    {
        *("eval_id", "invocation_id", "creation_timestamp", "id", "role"),
        *("duration", "model_duration", "tool_duration", "app_details"),
        *("usage_metadata", "grounding_metadata", "model_version", "thought_signature"),
    }
)
_FREE = frozenset({"args", "response", "state", "final_session_state", "part_metadata"})
_LENGTH = 16


def case_digest(case: EvalCase) -> str:
    """16 hex digits. Key order, spelling, ids, times and unknown keys do not count; null and empty are absent."""
    fields = {name: getattr(case, name) for name in EvalCase.model_fields}
    if case.session_input is not None:  # a renamed agent is asked the same
        fields["session_input"] = case.session_input.model_dump(exclude={"app_name"})
    plain = {
        name: value.model_dump() if hasattr(value, "model_dump") else _dumped(value) for name, value in fields.items()
    }
    text = json.dumps(_canonical(plain), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_LENGTH]


def _dumped(value: Any) -> Any:
    return [item.model_dump() for item in value] if isinstance(value, tuple) else value


def _canonical(value: Any) -> Any:
    """Without what is left out and what is empty, all the way down to free objects, which are kept whole."""
    if isinstance(value, dict):
        pruned = {
            key: _number(item) if key in _FREE else _canonical(item)
            for key, item in value.items()
            if key not in _LEFT_OUT
        }
        return {key: item for key, item in pruned.items() if item not in (None, "", [], {})}
    if isinstance(value, list | tuple):
        return [item for one in value if (item := _canonical(one)) not in (None, "", [], {})]
    return _number(value)


def _number(value: Any) -> Any:
    """1.0 and 1 are one number to JSON's other readers and writers."""
    if isinstance(value, dict):
        return {key: _number(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_number(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
