"""Agents of other frameworks that answer with text alone: their trajectories come from their own spans.

A local server plays the model, and the tools keep a log of how they were called.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.command import agent_eval
from support.openai_server.messages import ChatReply, ChatRequest
from support.openai_server.server import OpenAiServer
from support.serving import listening

pytestmark = pytest.mark.exhaustive

AGENTS = Path(__file__).parent / "agents"
PEERS = ("langgraph_agent", "openai_agents_agent", "pydantic_ai_agent", "crewai_agent")
Calls = list[tuple[str, dict[str, Any]]]
ROLLS: Calls = [("roll", {"sides": 6, "label": "first"}), ("roll", {"sides": 20, "label": "größer | <b>"})]
ORDER: Calls = [
    (
        "place_order",
        {"items": [{"name": "lamp", "number": 2}, {"name": "a", "of": None}], "urgent": True, "discount": 0.25},
    )
]
CASES: dict[str, list[Calls]] = {
    "rolls then order": [ROLLS, ORDER],
    "orders": [ORDER],
    "rolls": [ROLLS, ROLLS[:1]],
    "talks": [],
}
"""What the model asks for, answer by answer, by what the user says."""


def answer(request: ChatRequest) -> ChatReply:
    said = json.dumps(request.body["messages"])
    steps = next(steps for case, steps in CASES.items() if f"please {case}." in said)
    done = sum(message["role"] == "assistant" for message in request.body["messages"])
    return ChatReply(calls=tuple(steps[done])) if done < len(steps) else ChatReply(text="all is done")


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    with listening(OpenAiServer(answer).handle) as url:
        yield f"{url}/v1"


def eval_set() -> dict[str, Any]:
    cases = [
        {
            "eval_id": case,
            "conversation": [
                {
                    "user_content": {"role": "user", "parts": [{"text": f"please {case}."}]},
                    "final_response": {"role": "model", "parts": [{"text": "all is done"}]},
                    "intermediate_data": {
                        "tool_uses": [{"name": name, "args": args} for calls in steps for name, args in calls]
                    },
                }
            ],
        }
        for case, steps in CASES.items()
    ]
    return {"eval_set_id": "peers", "eval_cases": cases}


@pytest.mark.parametrize("peer", PEERS)
def test_calls_are_those_of_the_tools_own_log(peer: str, model: str, tmp_path: Path, peers_python: Path) -> None:
    tmp_path.chmod(0o777)
    log = tmp_path / "calls.log"
    log.touch()
    log.chmod(0o666)
    work = tmp_path / "work"
    shutil.copytree(AGENTS, work, ignore=shutil.ignore_patterns("__pycache__"))
    (work / "peers.evalset.json").write_text(json.dumps(eval_set()))
    variables = {"OPENAI_BASE_URL": model, "OPENAI_API_KEY": "none", "CALLS_LOG": str(log)}
    agent = {
        "driver": "python",
        "function": f"{peer}:reply",
        "python": str(peers_python),
        "env": variables | {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false"},
        "evals": "peers.evalset.json",
        "criteria": {"tool_trajectory_avg_score": 1.0, "response_match_score": 1.0},
    }
    (work / "agent-eval.yaml").write_text(json.dumps({"agent": agent, "repeats": 3}))
    (work / ".git").mkdir()
    done = agent_eval("run", cwd=work)
    attempts = [json.loads(line) for line in (work / ".agent-eval/out/attempts.jsonl").read_text().splitlines()]
    assert len(attempts) == 3 * len(CASES), done.stderr
    found = []
    for attempt in attempts:
        parts = [
            part
            for event in attempt["turns"][0]["intermediate_data"]["invocation_events"]
            for part in (event.get("content") or {}).get("parts") or ()
        ]
        calls = [
            (part["function_call"]["name"], part["function_call"]["args"]) for part in parts if "function_call" in part
        ]
        assert calls == [call for step in CASES[attempt["case"]] for call in step], attempt["case"]
        answered = [part["function_response"] for part in parts if "function_response" in part]
        assert [answer["name"] for answer in answered] == [name for name, _ in calls], "each call has its result"
        assert all(answer["response"] for answer in answered)
        found += calls
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    assert sorted(map(repr, found)) == sorted(repr((call["name"], call["args"])) for call in logged)
    assert done.returncode == 0, done.stderr
