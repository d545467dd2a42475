"""The current schema: one object with ``eval_set_id`` and ``eval_cases`` (google-adk 2.13 ``EvalSet``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agent_eval_action.formats.adk_structure import check_ids, check_set, refuse_long_lists
from agent_eval_action.formats.base import Findings, Format, Reading
from agent_eval_action.formats.validation import validate
from agent_eval_action.model.evalset import EvalCase, EvalSet, JsonObject
from agent_eval_action.source import JsonPath

_CASES_AT_ONCE = 1_000
_ROOT_KEYS = {"evalSetId": "eval_set_id", "evalCases": "eval_cases"}


def recognises(value: Any) -> bool:
    """An object with cases under either spelling (ADK: snake_case only), or one that says it is a set."""
    return isinstance(value, dict) and bool(value.keys() & {"eval_cases", "evalCases", "eval_set_id"})


def read(reading: Reading) -> EvalSet | None:
    """The set with the lines of its cases."""
    value, findings = reading.value, reading.findings
    if reading.session is not None:
        hint = "write it as `session_input` of the cases"
        findings.error((), "an initial-session file goes with the older list schema only", hint=hint)
    changed = _root_in_snake_case(value, reading)
    changed |= check_set(value, findings)
    check_ids(_ids(value), findings)
    if refuse_long_lists(value, findings):
        return None
    eval_set = _validated(value, None if changed else findings.source.json, findings)
    if eval_set is None or findings.errors:
        return None
    for index, case in enumerate(eval_set.eval_cases):
        case.at_line(findings.source.line(("eval_cases", index)) or findings.source.line(("evalCases", index)))
        if case.conversation == ():
            findings.warn(("eval_cases", index), "this conversation has no turns: nothing to measure")
    return eval_set


def _validated(value: JsonObject, text: str | None, findings: Findings) -> EvalSet | None:
    """The whole set; a large one in parts, so that neither its values nor the errors of all cases are there at once."""
    cases = value.get("eval_cases")
    if not isinstance(cases, list) or len(cases) <= _CASES_AT_ONCE:
        return validate(EvalSet, value, text, findings)
    whole: EvalSet | None = None
    found: list[EvalCase] = []
    for start in range(0, len(cases), _CASES_AT_ONCE):
        some = cases[start : start + _CASES_AT_ONCE]
        findings.first_case = start
        part = validate(EvalSet, {**value, "eval_cases": some}, None, findings)
        cases[start : start + _CASES_AT_ONCE] = [None] * len(some)
        if part is None:  # the problems of the first part that has any: the root's would be said once for each part
            break
        whole = whole or part
        found += part.eval_cases
    findings.first_case = 0
    return whole.model_copy(update={"eval_cases": tuple(found)}) if whole and not findings.errors else None


def _root_in_snake_case(value: JsonObject, reading: Reading) -> bool:
    """CamelCase at the root is refused by ADK, and plain enough to be read."""
    changed = False
    for camel, name in _ROOT_KEYS.items():
        if camel in value and name not in value:
            reading.findings.warn((camel,), f"google-adk reads `{name}` only", hint=f"rename it to `{name}`")
            value[name] = value.pop(camel)
            changed = True
    return changed


def _ids(value: JsonObject) -> Iterator[tuple[JsonPath, Any]]:
    cases = value.get("eval_cases")
    for index, case in enumerate(cases if isinstance(cases, list) else []):
        if isinstance(case, dict):
            key = "evalId" if "evalId" in case else "eval_id"
            yield ("eval_cases", index, key), case.get(key)


ADK = Format("adk", recognises, read)
