"""google-genai values in eval files: the names and kinds it accepts, and one spelling for all of them."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from agent_eval_action.formats.base import Findings
from agent_eval_action.formats.genai_fields import FIELDS, SPELLINGS
from agent_eval_action.formats.hints import unknown_key_hint
from agent_eval_action.model.evalset import Content, FunctionCall, FunctionResponse, Part
from agent_eval_action.source import JsonPath, shorten

# What our own models check already; google-genai's rarer fields are extras there.
_OURS = {
    "Content": frozenset(Content.model_fields),
    "Part": frozenset(Part.model_fields),
    "FunctionCall": frozenset(FunctionCall.model_fields),
    "FunctionResponse": frozenset(FunctionResponse.model_fields),
}
_NONE: frozenset[str] = frozenset()
_PLAIN_PART = {"text"}
_SCALARS: dict[str, type] = {"str": str, "bool": bool, "int": int, "float": float, "bytes": bytes, "enum": str}
_WORDS = {
    "str": "a string",
    "enum": "a string",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "bytes": "base64",
}


def check_genai(value: Any, kind: str, at: JsonPath, findings: Findings) -> bool:
    """Report what google-genai refuses below ``value`` and our models would not.

    In place, null becomes absent and camelCase snake_case; returns whether ``value`` was changed.
    """
    if not isinstance(value, dict) or (value.keys() <= _PLAIN_PART and kind == "Part"):
        return False
    known = SPELLINGS[kind]
    ours = _OURS.get(kind, _NONE)
    changed = False
    for key in list(value):
        field = known.get(key)
        if field is None:
            _unknown(value, key, kind, at, findings)
            continue
        item = value[key]
        if item is None and (field not in ours or key != field):
            del value[key]  # ADK writes every absent field as null
            changed = True
            continue
        if key != field and value.get(field) is not None:
            findings.error((*at, key), f"is given twice, as `{key}` and `{field}`")
            continue
        if key != field:
            del value[key]
            value[field] = item
            changed = True
        if item is not None:
            changed |= _check(item, FIELDS[kind][field], (*at, field), findings, checked=field in ours)
    return changed


def _unknown(value: dict[str, Any], key: str, kind: str, at: JsonPath, findings: Findings) -> None:
    if kind == "Content":
        return  # the model refuses it
    hint = unknown_key_hint(key, FIELDS[kind])
    findings.error((*at, key), f"unknown key `{key}`", value=shorten(value[key]), hint=hint)


def _check(item: Any, kind: str, at: JsonPath, findings: Findings, *, checked: bool) -> bool:
    if kind.startswith("["):
        if not isinstance(item, list):
            return False if checked else _wrong(item, "a list", at, findings)
        found = [_check_item(one, kind[1:-1], (*at, index), findings, checked) for index, one in enumerate(item)]
        return any(found)
    if kind == "object" or kind in FIELDS:
        if not isinstance(item, dict):
            return False if checked else _wrong(item, "an object", at, findings)
        return kind != "object" and check_genai(item, kind, at, findings)
    if not checked:
        _check_scalar(item, kind, at, findings)
    return False


def _check_item(item: Any, kind: str, at: JsonPath, findings: Findings, checked: bool) -> bool:
    return _check(item, kind, at, findings, checked=checked)


def _check_scalar(item: Any, kind: str, at: JsonPath, findings: Findings) -> None:
    if kind.startswith("'"):
        if item != kind[1:]:
            _wrong(item, shorten(kind[1:]), at, findings)
        return
    if kind == "bytes" and isinstance(item, str):
        # Standard and URL-safe letters may be mixed, which google-genai refuses: the meaning is plain.
        item = item.replace("-", "+").replace("_", "/")
    try:
        _adapter(kind).validate_json(json.dumps(item))
    except ValidationError:
        _wrong(item, _WORDS[kind], at, findings)


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(_SCALARS[kind], config=ConfigDict(val_json_bytes="base64"))


def _wrong(item: Any, wanted: str, at: JsonPath, findings: Findings) -> bool:
    findings.error(at, f"must be {wanted}", value=shorten(item))
    return False
