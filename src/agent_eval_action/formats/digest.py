"""A case's digest: equal as long as what is asked and what is expected are."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from agent_eval_action.results.evalset import EvalCase

# Names and traces of a recording. Calls are compared without their ids, and who said what is in the structure.
_LEFT_OUT: Final = frozenset(
    {
        *("eval_id", "invocation_id", "creation_timestamp", "id", "role"),
        *("duration", "model_duration", "tool_duration", "app_details"),
        *("usage_metadata", "grounding_metadata", "model_version", "thought_signature"),
    }
)
_FREE: Final = frozenset({"args", "response", "state", "final_session_state", "part_metadata"})
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})


def case_digest(case: EvalCase) -> str:
    """16 hex digits. Key order, spelling, ids, times and unknown keys do not count; null and empty are absent."""
    fields = {name: getattr(case, name) for name in EvalCase.model_fields}
    if case.session_input is not None:  # a renamed agent is asked the same
        fields["session_input"] = case.session_input.model_dump(exclude={"app_name"})
    text = json.dumps(_canonical(fields), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _canonical(value: Any) -> Any:
    """Without what is left out and what is empty, all the way down to free objects, which are kept whole."""
    if hasattr(value, "model_dump"):
        value = value.model_dump()
    if isinstance(value, dict):
        pruned = {
            key: _with_plain_numbers(item) if key in _FREE else _canonical(item)
            for key, item in value.items()
            if key not in _LEFT_OUT
        }
        return {key: item for key, item in pruned.items() if item not in _EMPTY}
    if isinstance(value, list | tuple):
        return [canonical for item in value if (canonical := _canonical(item)) not in _EMPTY]
    return _with_plain_numbers(value)


def _with_plain_numbers(value: Any) -> Any:
    """1.0 and 1 are one number to JSON's other readers and writers."""
    if isinstance(value, dict):
        return {key: _with_plain_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_plain_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
