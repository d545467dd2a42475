"""The price agent's eval set through ADK's Runner alone: no scoring, no reports, 64 sessions at once.

Runs in the agent's interpreter: ``python bare_runner.py AGENTS_FOLDER AGENT EVALSET SESSIONS``. Prints the number of
answered turns.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types


async def _converse(agent: Any, case: dict[str, Any], gate: asyncio.Semaphore) -> int:
    async with gate:
        sessions = InMemorySessionService()
        runner = Runner(agent=agent, app_name=agent.name, session_service=sessions)
        session = await sessions.create_session(app_name=agent.name, user_id="customer")
        answered = 0
        for turn in case["conversation"]:
            message = types.Content.model_validate(turn["user_content"])
            events = runner.run_async(user_id="customer", session_id=session.id, new_message=message)
            answered += any([event.is_final_response() async for event in events])
        return answered


async def _converse_all(agents: str, agent: str, cases: list[dict[str, Any]], sessions: int) -> int:
    sys.path.insert(0, agents)
    root_agent = importlib.import_module(agent).agent.root_agent
    gate = asyncio.Semaphore(sessions)
    return sum(await asyncio.gather(*(_converse(root_agent, case, gate) for case in cases)))


if __name__ == "__main__":
    folder, name, evalset, at_once = sys.argv[1:]
    print(asyncio.run(_converse_all(folder, name, json.loads(Path(evalset).read_text())["eval_cases"], int(at_once))))
