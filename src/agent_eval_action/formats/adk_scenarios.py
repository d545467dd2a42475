"""A list of conversation scenarios, ``{"scenarios": [{starting_prompt, conversation_plan, user_persona}]}``.

google-adk makes eval cases of it with ``adk eval_set add_eval_case``, and a session file; so does reading it here.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from agent_eval_action.formats.adk import check_persona
from agent_eval_action.formats.base import Format, Reading
from agent_eval_action.formats.validation import validate
from agent_eval_action.results.base import AdkModel
from agent_eval_action.results.evalset import ConversationScenario, EvalCase, EvalSet, SessionInput


class _Scenarios(AdkModel):
    scenarios: tuple[ConversationScenario, ...]


def _recognises(value: Any) -> bool:
    """An object whose list of scenarios is all there is to run."""
    return isinstance(value, dict) and "scenarios" in value and not value.keys() & {"eval_cases", "evalCases"}


def _read(reading: Reading) -> EvalSet | None:
    """A set whose id is the file's path in the workspace, with one case per scenario."""
    session, items = reading.session, reading.value["scenarios"]
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict):
            check_persona(item, ("scenarios", index), reading)
    if session is not None and not (session["app_name"] and session["user_id"]):
        reading.error((), "the session file that goes with it needs `app_name` and `user_id`")
    found = validate(_Scenarios, reading.value, reading.source.json, reading)
    if found is None or reading.errors:
        return None
    session_input = SessionInput(**session) if session else None
    cases: dict[str, EvalCase] = {}
    for index, scenario in enumerate(found.scenarios):
        name = _scenario_id(scenario)
        if name in cases:
            hint = f"repeats run a scenario more often; the first is case {name}"
            reading.warn(("scenarios", index), "this scenario is in the list already, and is left out", hint=hint)
            continue
        case = EvalCase(eval_id=name, conversation_scenario=scenario, session_input=session_input)
        cases[name] = case.at_line(reading.source.line(("scenarios", index)))
    return EvalSet(eval_set_id=reading.name, eval_cases=tuple(cases.values()))


ADK_SCENARIOS: Final = Format("adk_scenarios", _recognises, _read)


def _scenario_id(scenario: ConversationScenario) -> str:
    """8 hex digits of what the scenario says, so that reading it again names the same case.

    google-adk's own id (2.13, ``adk eval_set add_eval_case``), but for scenarios with a built-in persona: it puts the
    persona's words into the id, we its name.
    """
    text = json.dumps(scenario.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
