"""A judge's answer from its text: JSON under the schema that was asked for, or in words what is wrong with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from agent_eval_action.criteria.fence import printable
from agent_eval_action.source import shorten

_CODE_BLOCK = re.compile(r"\s*```(?:json)?[ \t]*\r?\n(.*?)\r?\n?[ \t]*```\s*", re.DOTALL | re.IGNORECASE)
_KINDS: Final[dict[str, Any]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}
_KNOWN = frozenset({"type", "properties", "required", "additionalProperties", "items", "enum", "description"})


def parsed(text: str, schema: Mapping[str, Any]) -> Any:
    """The value. Raises ValueError with one sentence for the model when the text is not JSON of this schema.

    A code block around the JSON is allowed, for models without structured output; nothing else beside it is:
    an answer found by searching could be one that the text under judgement planted.
    """
    block = _CODE_BLOCK.fullmatch(text)
    inner = block[1] if block else text
    try:
        value = json.loads(inner, parse_constant=_refused, object_pairs_hook=_without_repetition)
        if "\\u" in inner:  # an escape can smuggle in a lone surrogate, which no report could write
            value = json.loads(printable(json.dumps(value, ensure_ascii=False)))
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ValueError("it is not the JSON that was asked for: it is nested too deeply") from None
    if wrong := next(_violations(value, schema, "the answer"), ""):
        raise ValueError(wrong)
    return value


def _refused(constant: str) -> Any:
    raise ValueError(f"it is not JSON: {constant} is no JSON number")


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Two verdicts under one key: which one is meant is anybody's guess."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it is not JSON that has one meaning: a key is there twice")
    return found


def _violations(value: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    """What of a value is not as the schema says; the part of JSON Schema that Gemini and OpenAI both take."""
    if unknown := schema.keys() - _KNOWN:
        raise TypeError(f"a judge's schema cannot say {sorted(unknown)}")
    kind = schema["type"]
    if not isinstance(value, _KINDS[kind]) or (isinstance(value, bool) and kind != "boolean"):
        yield f"{place} must be of type {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place} is {shorten(value)} and must be one of {', '.join(map(str, schema['enum']))}"
    if kind == "object":
        yield from _of_object(value, schema, place)
    for index, item in enumerate(value if kind == "array" else ()):
        yield from _violations(item, schema["items"], f"item {index + 1} of {place}")


def _of_object(value: dict[str, Any], schema: Mapping[str, Any], place: str) -> Iterator[str]:
    properties = schema.get("properties", {})
    for key in schema.get("required", ()):
        if key not in value:
            yield f"`{key}` of {place} is missing"
    for key, item in value.items():
        if key in properties:
            yield from _violations(item, properties[key], f"`{key}` of {place}")
        elif schema.get("additionalProperties") is False:
            yield f"{place} must not have {shorten(key)}"
