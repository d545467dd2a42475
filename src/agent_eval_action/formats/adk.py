"""What a current-schema eval file must satisfy beyond its models: google-genai's names, ids, personas, spellings."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic.alias_generators import to_camel

from agent_eval_action.diagnostics.reader import JsonPath, closest, did_you_mean, shorten
from agent_eval_action.formats.base import Findings, Format, Reading
from agent_eval_action.formats.validation import check_genai, validate
from agent_eval_action.results.evalset import BUILT_IN_PERSONAS, EvalCase, EvalSet, JsonObject, SessionInput

_SET_FIELDS = tuple(EvalSet.model_fields)
_camel = cache(to_camel)  # asked several times per turn
_LONGEST_LIST = 10_000
_FREE = frozenset({"args", "response", "state", "final_session_state", "finalSessionState"})
"""Objects of the agent's own, whatever they hold."""
_MISSPELT = 0.85  # nearer than this a key nobody reads is taken for a slip, and warned about


def check_set(value: JsonObject, findings: Findings) -> bool:
    """Report into ``findings``; spell google-genai values one way. Returns whether ``value`` was changed."""
    warn_misspelt(value, _SET_FIELDS, (), findings)
    changed = False
    for index, case in enumerate(_list(value.get("eval_cases"))):
        if isinstance(case, dict):
            changed |= _check_case(case, ("eval_cases", index), findings)
    return changed


def refuse_long_lists(value: JsonObject, findings: Findings) -> bool:
    """Report lists inside cases that nobody wrote: each of a million wrong items would be an error of its own."""
    before = len(findings.errors)
    for index, case in enumerate(_list(value.get("eval_cases"))):
        for at, size in _long_lists(case, ("eval_cases", index)):
            message = f"is a list of {size:,} items; at most {_LONGEST_LIST:,} are read"
            findings.error(at, message, hint="make several cases of it")
    return len(findings.errors) > before


def _long_lists(value: Any, at: JsonPath) -> Iterator[tuple[JsonPath, int]]:
    if isinstance(value, list):
        if len(value) > _LONGEST_LIST:
            yield at, len(value)
            return
        for index, item in enumerate(value):
            if isinstance(item, dict | list):
                yield from _long_lists(item, (*at, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, dict | list) and key not in _FREE:
                yield from _long_lists(item, (*at, key))


def check_ids(places: Iterator[tuple[JsonPath, Any]], findings: Findings) -> None:
    """Case ids: each once in a file; without characters that reports cannot show."""
    first: dict[str, JsonPath] = {}
    for at, case_id in places:
        if not isinstance(case_id, str):
            continue
        if case_id in first:
            line = findings.source.nearest_line(first[case_id])
            message = "this eval_id is already used in this file"
            findings.error(
                at, message, value=shorten(case_id), hint=f"it is first used in line {line}; ids name results"
            )
        first.setdefault(case_id, at)
        if not case_id.strip():
            findings.warn(at, "this eval_id is blank", value=shorten(case_id), hint="reports name cases by it")
        elif any(unicodedata.category(char) in {"Cc", "Cf", "Zl", "Zp"} for char in case_id):
            findings.warn(
                at,
                "this eval_id holds invisible or control characters",
                value=ascii(case_id)[:80],
                hint="reports escape them",
            )


def warn_misspelt(value: JsonObject, known: tuple[str, ...], at: JsonPath, findings: Findings) -> None:
    """Where unknown keys are allowed, one that nearly is a known key is probably a slip."""
    for key in value:
        if key not in known and (meant := closest(key, known, _MISSPELT)) and meant not in value:
            findings.warn((*at, key), f"unknown key `{key}` is ignored", hint=f"did you mean `{meant}`?")


def _check_case(case: JsonObject, at: JsonPath, findings: Findings) -> bool:
    changed = _drop_second_spellings(case, EvalCase, at, findings)
    conversation, _ = _get(case, "conversation")
    scenario, scenario_key = _get(case, "conversation_scenario")
    if (conversation is None) == (scenario is None):
        both = "both" if scenario is not None else "neither"
        findings.error(at, f"needs exactly one of `conversation` and `conversation_scenario`; it has {both}")
    _warn_extras(case, EvalCase, at, findings)
    session, session_key = _get(case, "session_input")
    if isinstance(session, dict):
        changed |= _drop_second_spellings(session, SessionInput, (*at, session_key), findings)
        _warn_extras(session, SessionInput, (*at, session_key), findings)
    if isinstance(scenario, dict):
        check_persona(scenario, (*at, scenario_key), findings)
    for index, turn in enumerate(_list(conversation)):
        if isinstance(turn, dict):
            changed |= _check_turn(turn, (*at, "conversation", index), findings)
    return changed


def _check_turn(turn: JsonObject, at: JsonPath, findings: Findings) -> bool:
    changed = False
    for name in ("user_content", "final_response"):
        content, key = _get(turn, name)
        changed |= check_genai(content, "Content", (*at, key), findings)
    data, data_key = _get(turn, "intermediate_data")
    if isinstance(data, dict):
        for kind, value, below in _genai_values(data):
            changed |= check_genai(value, kind, (*at, data_key, *below), findings)
    return changed


def _genai_values(data: JsonObject) -> Iterator[tuple[str, Any, JsonPath]]:
    for name, kind in (("tool_uses", "FunctionCall"), ("tool_responses", "FunctionResponse")):
        items, key = _get(data, name)
        for index, item in enumerate(_list(items)):
            yield kind, item, (key, index)
    pairs, key = _get(data, "intermediate_responses")
    for index, pair in enumerate(_list(pairs)):
        for number, part in enumerate(_list(pair[1]) if isinstance(pair, list) and len(pair) > 1 else []):
            yield "Part", part, (key, index, 1, number)
    events, key = _get(data, "invocation_events")
    for index, event in enumerate(_list(events)):
        if isinstance(event, dict):
            for name, kind in _EVENT_VALUES:
                value, spelled = _get(event, name)
                yield kind, value, (key, index, spelled)


_EVENT_VALUES = (
    ("content", "Content"),
    ("grounding_metadata", "GroundingMetadata"),
    ("usage_metadata", "GenerateContentResponseUsageMetadata"),
)


def check_persona(scenario: JsonObject, at: JsonPath, findings: Findings) -> None:
    """A persona named by its id is one there is."""
    persona, key = _get(scenario, "user_persona")
    if isinstance(persona, str) and persona not in BUILT_IN_PERSONAS:
        hint = did_you_mean(persona, BUILT_IN_PERSONAS) or f"the built-in ones are {', '.join(BUILT_IN_PERSONAS)}"
        findings.error((*at, key), "no persona has this id", value=shorten(persona), hint=hint)


def _drop_second_spellings(
    value: JsonObject, model: type[EvalCase | SessionInput], at: JsonPath, findings: Findings
) -> bool:
    """ADK reads the camelCase one and keeps the other as an unknown key, which would be read when written back."""
    found = False
    for name in model.model_fields:
        camel = _camel(name)
        if camel != name and camel in value and name in value:
            findings.warn((*at, name), f"is given twice; `{camel}` counts", hint=f"remove `{name}`")
            del value[name]
            found = True
    return found


def _warn_extras(value: JsonObject, model: type[EvalCase | SessionInput], at: JsonPath, findings: Findings) -> None:
    known = model.model_fields.keys()
    if not value.keys() <= known:
        warn_misspelt(value, (*known, *(_camel(name) for name in known)), at, findings)


def _get(value: JsonObject, name: str) -> tuple[Any, str]:
    """A value by either spelling and the spelling found; camelCase counts where there are both, as in ADK."""
    camel = _camel(name)
    return (value[camel], camel) if camel in value else (value.get(name), name)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


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
