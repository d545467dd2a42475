"""ADK's current schema and lists of scenarios, with the checks that models do not make: ids, personas, spelling."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from typing import Any, Final

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from agent_eval_action.diagnostics.reader import JsonPath, did_you_mean, shorten, skip_space
from agent_eval_action.diagnostics.suggestions import closest
from agent_eval_action.formats.base import Format, Reading, check_genai, list_of, objects_of, spelled, validate
from agent_eval_action.results.base import AdkModel
from agent_eval_action.results.evalset import (
    BUILT_IN_PERSONAS,
    ConversationScenario,
    EvalCase,
    EvalSet,
    JsonObject,
    SessionInput,
)

_LONGEST_LIST: Final = 10_000
_CASES_AT_ONCE: Final = 1_000
_FREE: Final = frozenset({"args", "response", "state", "final_session_state", "finalSessionState"})
"""Objects that belong to the agent and may contain anything."""
_MISSPELT: Final = 0.85  # unknown keys at least this similar to a known one get a warning
_ROOT_KEYS: Final = {"evalSetId": "eval_set_id", "evalCases": "eval_cases"}
_GENAI: Final = {
    "conversation": [
        {
            "user_content": "Content",
            "final_response": "Content",
            "intermediate_data": {
                "tool_uses": ["FunctionCall"],
                "tool_responses": ["FunctionResponse"],
                "intermediate_responses": [[["Part"]]],
                "invocation_events": [
                    {
                        "content": "Content",
                        "grounding_metadata": "GroundingMetadata",
                        "usage_metadata": "GenerateContentResponseUsageMetadata",
                    }
                ],
            },
        }
    ]
}
"""google-genai's types in a case."""
_CASES: Final = re.compile(r'"eval_cases"\s*:\s*\[\s*')
_LOOKED_INTO: Final = ("inline", "file", "grounding", "usage")
"""Prefixes of objects that ``check_genai`` checks and our models do not: ``inline_data``, ``usageMetadata``."""
_ESCAPED_ASCII: Final = re.compile(r"\\u00[2-7]")  # keys may contain such escapes


def read_plain(text: str) -> EvalSet | None:
    """Fast path: the set of a JSON text in this schema without problems or warnings; None for any other text.

    Validates each case by itself with pydantic's parser and never builds the value of the whole file or its line
    positions. The result is the same as that of ``read_eval_set``.
    """
    start = _CASES.search(text)
    spellings = (f'"{name}{rest}' for name in _LOOKED_INTO for rest in ("_data", "Data", "_metadata", "Metadata"))
    if start is None or any(map(text.__contains__, spellings)) or _ESCAPED_ASCII.search(text):
        return None
    objects: list[list[tuple[str, Any]]] = []
    decode = json.JSONDecoder(object_pairs_hook=objects.append).raw_decode
    cases: dict[str, EvalCase] = {}
    at, line, counted, more = start.end(), 1, 0, True
    try:
        while more:
            end = decode(text, at)[1]
            if end - at > 2 * _LONGEST_LIST or sum(map(len, objects)) != sum(map(len, map(dict, objects))):
                return None
            case = EvalCase.model_validate_json(text[at:end], extra="forbid")
            if case.eval_id in cases or not _is_plain(case):
                return None
            objects.clear()
            line, counted = line + text.count("\n", counted, at), at
            cases[case.eval_id] = case.at_line(line)
            end = skip_space(text, end)
            at, more = skip_space(text, end + 1), text.startswith(",", end)
        root = f"{text[: start.end()]}{text[end:]}"
        decode(root, skip_space(root, 0))
        eval_set = EvalSet.model_validate_json(root, extra="forbid")
    except (ValueError, RecursionError, ValidationError):
        return None
    twice = len(objects) != 1 or len(dict(objects[0])) != len(objects[0])
    return None if twice else eval_set.model_copy(update={"eval_cases": tuple(cases.values())})


def _is_plain(case: EvalCase) -> bool:
    """Whether a valid case causes no error or warning."""
    persona = case.conversation_scenario.user_persona if case.conversation_scenario else None
    return (
        case.eval_id.isprintable()
        and bool(case.eval_id.strip())
        and case.conversation != ()
        and (case.conversation is None) != (case.conversation_scenario is None)
        and (not isinstance(persona, str) or persona in BUILT_IN_PERSONAS)
    )


def _recognises(value: Any) -> bool:
    """An object with cases (in camelCase too, unlike ADK) or with the id of a set."""
    return isinstance(value, dict) and bool(value.keys() & {"eval_cases", "evalCases", "eval_set_id"})


def _read(reading: Reading) -> EvalSet | None:
    value = reading.value
    if reading.session is not None:
        hint = "write it as `session_input` of the cases"
        reading.error((), "an initial-session file goes with the older list schema only", hint=hint)
    renamed = [(camel, name) for camel, name in _ROOT_KEYS.items() if camel in value and name not in value]
    for camel, name in renamed:
        reading.warn((camel,), f"google-adk reads `{name}` only", hint=f"rename it to `{name}`")
        value[name] = value.pop(camel)
    return read_eval_set(reading, EvalSet, None if renamed else reading.source.json)


def read_eval_set(reading: Reading, model: type[EvalSet], text: str | None = None) -> EvalSet | None:
    """Read a set in ADK's schema, with the lines of its cases; ``text``: its JSON if the value is unchanged."""
    value, source = reading.value, reading.source
    changed = False
    warn_misspelt(value, tuple(EvalSet.model_fields), (), reading)
    ids = []
    for index, case in objects_of(value.get("eval_cases")):
        at: JsonPath = ("eval_cases", index)
        changed |= _check_case(case, at, reading)
        key = spelled(case, "eval_id")
        ids.append(((*at, key), case.get(key)))
    check_ids(ids, reading)
    before = len(reading.errors)
    _report_long_lists(list_of(value.get("eval_cases")), ("eval_cases",), reading)
    if len(reading.errors) > before:
        return None
    eval_set = _validate(value, None if changed else text, model, reading)
    if eval_set is None or reading.errors:
        return None
    for index, read in enumerate(eval_set.eval_cases):
        read.at_line(source.line(("eval_cases", index)) or source.line(("evalCases", index)))
        if read.conversation == ():
            reading.warn(("eval_cases", index), "this conversation has no turns: nothing to measure")
    return eval_set


ADK: Final = Format("adk", _recognises, _read)


def _validate(value: JsonObject, text: str | None, model: type[EvalSet], reading: Reading) -> EvalSet | None:
    """Validate the set; a large one in parts, so that values and errors of all cases are never in memory at once."""
    cases = value.get("eval_cases")
    if not isinstance(cases, list) or len(cases) <= _CASES_AT_ONCE:
        return validate(model, value, text, reading)
    found: list[EvalCase] = []
    for start in range(0, len(cases), _CASES_AT_ONCE):
        some = cases[start : start + _CASES_AT_ONCE]
        reading.first_case = start
        part = validate(model, {**value, "eval_cases": some}, None, reading)
        if part is None:  # report only the first part with problems: those of the root are in every part
            break
        cases[start : start + _CASES_AT_ONCE] = [None] * len(some)
        found += part.eval_cases
    reading.first_case = 0
    return part.model_copy(update={"eval_cases": tuple(found)}) if part and not reading.errors else None


def _report_long_lists(value: Any, at: JsonPath, reading: Reading) -> None:
    """Report overlong lists inside cases: each of a million wrong items would be an error."""
    if len(at) > 1 and isinstance(value, list) and len(value) > _LONGEST_LIST:
        message = f"is a list of {len(value):,} items; at most {_LONGEST_LIST:,} are read"
        reading.error(at, message, hint="make several cases of it")
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(item, dict | list) and key not in _FREE:
            _report_long_lists(item, (*at, key), reading)


def check_ids(places: list[tuple[JsonPath, Any]], reading: Reading) -> None:
    """Report repeated case ids, and warn about ids that reports cannot show."""
    first: dict[str, JsonPath] = {}
    for at, case_id in places:
        if not isinstance(case_id, str):
            continue
        if case_id in first:
            hint = f"it is first used in line {reading.source.nearest_line(first[case_id])}; ids name results"
            reading.error(at, "this eval_id is already used in this file", value=shorten(case_id), hint=hint)
        first.setdefault(case_id, at)
        if not case_id.strip():
            reading.warn(at, "this eval_id is blank", value=shorten(case_id), hint="reports name cases by it")
        elif any(unicodedata.category(char) in {"Cc", "Cf", "Zl", "Zp"} for char in case_id):
            message = "this eval_id holds invisible or control characters"
            reading.warn(at, message, value=ascii(case_id)[:80], hint="reports escape them")


def warn_misspelt(value: JsonObject, known: tuple[str, ...], at: JsonPath, reading: Reading) -> None:
    """Warn about unknown keys that are probably misspellings of known ones."""
    for key in value:
        if key not in known and (meant := closest(key, known, _MISSPELT)) and meant not in value:
            reading.warn((*at, key), f"unknown key `{key}` is ignored", hint=f"did you mean `{meant}`?")


def _check_persona(scenario: JsonObject, at: JsonPath, reading: Reading) -> None:
    key = spelled(scenario, "user_persona")
    persona = scenario.get(key)
    if isinstance(persona, str) and persona not in BUILT_IN_PERSONAS:
        hint = did_you_mean(persona, BUILT_IN_PERSONAS) or f"the built-in ones are {', '.join(BUILT_IN_PERSONAS)}"
        reading.error((*at, key), "no persona has this id", value=shorten(persona), hint=hint)


def _check_case(case: JsonObject, at: JsonPath, reading: Reading) -> bool:
    """Report problems, and convert google-genai's values to snake_case. Returns whether ``case`` was changed."""
    changed = _check_keys(case, EvalCase, at, reading)
    session_key, scenario_key = spelled(case, "session_input"), spelled(case, "conversation_scenario")
    session, scenario = case.get(session_key), case.get(scenario_key)
    if (case.get("conversation") is None) == (scenario is None):
        both = "both" if scenario is not None else "neither"
        reading.error(at, f"needs exactly one of `conversation` and `conversation_scenario`; it has {both}")
    if isinstance(session, dict):
        changed |= _check_keys(session, SessionInput, (*at, session_key), reading)
    if isinstance(scenario, dict):
        _check_persona(scenario, (*at, scenario_key), reading)
    return check_genai(case, _GENAI, at, reading) or changed


def _check_keys(value: JsonObject, model: type[EvalCase | SessionInput], at: JsonPath, reading: Reading) -> bool:
    """Drop snake_case keys that also exist in camelCase, and warn about them and about misspelt keys.

    ADK would keep them as unknown keys and read them once the file is written back. Returns whether any was dropped.
    """
    twice = [name for name in model.model_fields if name in value and spelled(value, name) != name]
    for name in twice:
        camel = spelled(value, name)
        reading.warn((*at, name), f"is given twice; `{camel}` counts", hint=f"remove `{name}`")
        del value[name]
    if not value.keys() <= model.model_fields.keys():
        warn_misspelt(value, (*model.model_fields, *map(to_camel, model.model_fields)), at, reading)
    return bool(twice)


class _Scenarios(AdkModel):
    """A list from which ``adk eval_set add_eval_case`` makes eval cases, as reading it does here."""

    scenarios: tuple[ConversationScenario, ...]


def _read_scenarios(reading: Reading) -> EvalSet | None:
    """A set whose id is the file's path in the workspace, with one case per scenario."""
    session = reading.session
    for index, item in objects_of(reading.value["scenarios"]):
        _check_persona(item, ("scenarios", index), reading)
    if session is not None and not (session["app_name"] and session["user_id"]):
        reading.error((), "the session file that goes with it needs `app_name` and `user_id`")
    found = validate(_Scenarios, reading.value, reading.source.json, reading)
    if found is None or reading.errors:
        return None
    session_input = SessionInput(**session) if session else None
    cases: dict[str, EvalCase] = {}
    for index, scenario in enumerate(found.scenarios):
        # Reading it again gives the same id. It is google-adk's (2.13, ``adk eval_set add_eval_case``), except for a
        # built-in persona, of which google-adk hashes the text and we the name.
        text = json.dumps(scenario.model_dump(mode="json"), sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()[:8]
        if name in cases:
            hint = f"repeats run a scenario more often; the first is case {name}"
            reading.warn(("scenarios", index), "this scenario is in the list already, and is left out", hint=hint)
            continue
        case = EvalCase(eval_id=name, conversation_scenario=scenario, session_input=session_input)
        cases[name] = case.at_line(reading.source.line(("scenarios", index)))
    return EvalSet(eval_set_id=reading.name, eval_cases=tuple(cases.values()))


ADK_SCENARIOS: Final = Format(
    "adk_scenarios",
    lambda value: isinstance(value, dict) and "scenarios" in value and not value.keys() & {"eval_cases", "evalCases"},
    _read_scenarios,
)
