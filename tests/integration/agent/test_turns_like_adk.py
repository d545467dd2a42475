"""What we record of a turn equals what google-adk 2.13's own evaluation records, but for the differences we mean."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

from agent_eval_action.agents.base import TurnDone
from agent_eval_action.results.evalset import Invocation

ORACLE = Path(__file__).with_name("oracle.py")
SCRIPTS = 60


def adks(python: Path, jobs: list[tuple[Path, list[str]]]) -> list[list[dict[str, Any]]]:
    """ADK's own record of each conversation; one process, since its evaluation takes seconds to import."""
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    said = json.dumps([(str(folder), messages) for folder, messages in jobs])
    done = subprocess.run([python, ORACLE], input=said, capture_output=True, text=True, check=True, env=env)
    found: list[list[dict[str, Any]]] = json.loads(done.stdout)
    return found


def comparable(turn: dict[str, Any]) -> dict[str, Any]:
    """Without what differs from run to run: ids, times."""
    turn = Invocation.model_validate(turn).model_dump(mode="json", exclude_none=True)
    if not turn.get("app_details", {}).get("agent_details"):
        turn.pop("app_details", None)
    for key in ("invocation_id", "creation_timestamp", "duration", "model_duration", "tool_duration", "spans"):
        turn.pop(key, None)
    for event in turn["intermediate_data"]["invocation_events"]:
        for part in (event.get("content") or {}).get("parts", ()):
            for kind in ("function_call", "function_response"):
                if str((part.get(kind) or {}).get("id", "")).startswith("adk-"):
                    part[kind]["id"] = "made by ADK"
            if (part.get("function_response") or {}).get("name") == "order":
                part["function_response"].pop("response")  # it tells of the process it ran in
    return turn


def script(rng: random.Random) -> list[dict[str, Any]]:
    """Events of any shape, in any order; no thoughts and no partial ones, which are ours to differ in."""
    return [event(rng, number) for number in range(rng.randint(1, 6))]


def event(rng: random.Random, number: int) -> dict[str, Any]:
    call = {"id": f"c{number}", "name": "look", "args": {"n": number, "x": [1.5, None, "é"]}}
    parts: list[dict[str, Any]] = [
        {"text": f"text {number}"},
        {"text": ""},
        {"function_call": call},
        {"function_response": {"id": f"c{number}", "name": "look", "response": {"found": [number]}}},
        {"inline_data": {"mime_type": "image/png", "data": "aGk_aGk-"}},
        {"executable_code": {"code": "1+1", "language": "PYTHON"}},
        {"code_execution_result": {"outcome": "OUTCOME_OK", "output": "2"}},
    ]
    made: dict[str, Any] = {"author": rng.choice(["player", "player", "helper", "User"])}
    if rng.random() < 0.9:
        made["parts"] = rng.sample(parts, rng.randint(0, 3))
    if rng.random() < 0.2:
        made["skip"] = True
    if rng.random() < 0.2:
        made["long_running"] = [f"c{number}"]
    if rng.random() < 0.2:
        made["error_code"] = "MALFORMED_FUNCTION_CALL"
    if rng.random() < 0.2:
        made["grounding"] = {"web_search_queries": ["q"]}
    if rng.random() < 0.4:
        made["usage"] = {"prompt_token_count": number, "total_token_count": number + 1}
    return made


async def test_turns_are_recorded_as_adk_records_them(drive, adk213_python: Path, folders: Path, say) -> None:
    rng = random.Random(2013)  # noqa: S311 - a repeatable choice, not a secret
    jobs = [
        (folders / "player", [json.dumps(script(rng)) for _ in range(SCRIPTS)]),
        (folders / "shop" / "shop", ["buy", "buy from the clerk", "again"]),
        (folders / "wild", ['add {"a": 1, "b": 2}', "say hi", "recall"]),
    ]
    for (folder, messages), theirs in zip(jobs, adks(adk213_python, jobs), strict=True):
        async with drive(folder) as agent:
            session = await agent.open()
            for message, expected in zip(messages, theirs, strict=True):
                done = await session.turn(say(message))
                assert isinstance(done, TurnDone), (message, done)
                ours = comparable(done.invocation.model_dump(mode="json"))
                assert ours == comparable(expected), message
            await session.close()
