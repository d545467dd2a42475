"""Files that are not ADK eval files and look like some known thing: said by name, with what to do."""

from __future__ import annotations

from typing import Any

from agent_eval_action.source.foreign_criteria import recognise_foreign_criteria

AGENTS_CLI = "an agents-cli evaluation dataset"
TRPC_GO = "a trpc-agent-go eval set (chat messages, not parts)"


def recognise_foreign(value: Any) -> tuple[str, str] | None:
    """What the value is and what to do, or None. Claims nothing that google-adk loads."""
    if foreign := recognise_foreign_criteria(value):
        return foreign[0], "name an eval file; criteria are written in test_config.json"
    if not isinstance(value, dict):
        return None
    cases = value.get("eval_cases", value.get("evalCases"))
    first = next((case for case in cases if isinstance(case, dict)), {}) if isinstance(cases, list) else {}
    if first.keys() & {"eval_case_id", "prompt", "agent_data"} and not first.keys() & {"eval_id", "evalId"}:
        return AGENTS_CLI, "write it as an ADK eval set: `eval_id` and `conversation` in each case"
    if "evalCases" in value and _speaks_chat(first):
        return TRPC_GO, 'write it as an ADK eval set: snake_case at the top, `"parts": [{"text": ...}]` for messages'
    return None if cases is not None else _without_cases(value)


def _speaks_chat(case: dict[str, Any]) -> bool:
    turns = [*(case.get("conversation") or ()), *(case.get("actualConversation") or ())]
    for turn in turns:
        user = turn.get("userContent") if isinstance(turn, dict) else None
        if isinstance(user, dict) and "content" in user:
            return True
    return False


def _without_cases(value: dict[str, Any]) -> tuple[str, str] | None:
    keys = value.keys()
    wrap = 'wrap it: `{"eval_set_id": "...", "eval_cases": [ ... ]}`'
    known = (
        ({"eval_case_id"}, "one case of an agents-cli dataset", "write it as a case of an ADK eval set"),
        ({"eval_id"}, "one eval case without its set", wrap),
        ({"evalId"}, "one eval case without its set", wrap),
        ({"conversation"}, "a conversation without its case and set", wrap + ", and give the case an `eval_id`"),
        ({"query"}, "one turn of the older list schema", "put it into a list: `[ ... ]`"),
        ({"input", "expected"}, "an adk-rust prompt-optimizer case", "write it as a case of an ADK eval set"),
        ({"test_cases"}, "a list of test cases in no schema of ADK", "write it as an ADK eval set"),
        ({"criteria"}, "a criteria file, not an eval file", "name it test_config.json, beside the eval files"),
        ({"metrics"}, "a metrics file, not an eval file", "criteria are written in test_config.json"),
        ({"state"}, "an initial session, not an eval file", "it goes with a list of turns, as its session file"),
        ({"events"}, "a recorded run, not an eval file", "write its turns as an ADK eval set"),
    )
    return next(((name, hint) for needed, name, hint in known if needed <= keys), None)
