"""Fabricates a recording: attempts.jsonl with what the price agent would have answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agent_eval_action.results.run_result import Attempt
from benchmarks.workload import AGENT

EVERY_WRONG = 10
"""Every tenth case looks up the wrong item, so that scores and reasons vary."""

DETAILS = {
    "agent_details": {
        AGENT: {
            "name": AGENT,
            "instructions": "You work in a shop. Look up prices with look_up_price; never guess one.",
            "tool_declarations": [
                {
                    "function_declarations": [
                        {
                            "name": "look_up_price",
                            "description": "Look up what an item of the shop costs.",
                            "parameters": {"type": "OBJECT", "properties": {"item": {"type": "STRING"}}},
                        }
                    ]
                }
            ],
        }
    }
}


def write(folder: Path, eval_set: str, cases: list[dict[str, Any]]) -> None:
    """Append one attempt for each case; ``eval_set`` is the set's key in the results."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "attempts.jsonl").open("a") as file:
        for number, case in enumerate(cases):
            attempt = _attempt(number, case, eval_set)
            Attempt.model_validate(attempt)
            file.write(json.dumps(attempt, separators=(",", ":")) + "\n")


def _attempt(number: int, case: dict[str, Any], eval_set: str) -> dict[str, Any]:
    wrong = number % EVERY_WRONG == 0
    turns = [_turn(turn, wrong and index == 0) for index, turn in enumerate(case["conversation"])]
    return {
        "agent": AGENT,
        "eval_set": eval_set,
        "case": case["eval_id"],
        "repeat": 0,
        "case_digest": "of-the-recording",
        "turns": turns,
        "final_session_state": {"last_item": f"I{number}"},
        "usage": {
            "model_calls": 3,
            "tool_calls": 1,
            "input_tokens": 800,
            "output_tokens": 60,
            "total_tokens": 860,
        },
        "durations": {"total": 0.65, "model": 0.6, "tool": 0.001},
    }


def _turn(expected: dict[str, Any], wrong: bool) -> dict[str, Any]:
    events = [event for call in expected["intermediate_data"]["tool_uses"] for event in _tool_events(call, wrong)]
    events.append({"author": AGENT, "usage_metadata": _usage(), "model_version": "gemini-2.5-flash"})
    return {
        "invocation_id": f"e-{expected['invocation_id']}",
        "user_content": expected["user_content"],
        "final_response": expected["final_response"],
        "intermediate_data": {"invocation_events": events},
        "app_details": DETAILS,
        "duration": 0.32,
        "model_duration": 0.3,
        "tool_duration": 0.001 if len(events) > 1 else None,
    }


def _tool_events(call: dict[str, Any], wrong: bool) -> list[dict[str, Any]]:
    args = {"item": "I-other"} if wrong else call["args"]
    called = {"function_call": {"id": "adk-1", "name": call["name"], "args": args}}
    answered = {"function_response": {"id": "adk-1", "name": call["name"], "response": {**args, "price": 1}}}
    return [
        {"author": AGENT, "content": {"role": "model", "parts": [called]}, "usage_metadata": _usage()},
        {"author": AGENT, "content": {"role": "user", "parts": [answered]}},
    ]


def _usage() -> dict[str, int]:
    return {"prompt_token_count": 270, "candidates_token_count": 20, "total_token_count": 290}
