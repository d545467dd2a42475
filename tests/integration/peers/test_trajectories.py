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


class Work:
    """A workspace with the peers' agents, and the log that their tools keep."""

    def __init__(self, folder: Path, model: str) -> None:
        folder.chmod(0o777)
        self.log = folder / "calls.log"
        self.folder = folder / "work"
        self.spans = self.folder / "recorded" / "spans.jsonl"
        shutil.copytree(AGENTS, self.folder, ignore=shutil.ignore_patterns("__pycache__"))
        self.spans.parent.mkdir(mode=0o777)
        self.spans.parent.chmod(0o777)
        for file in (self.log, self.spans):
            file.touch()
            file.chmod(0o666)
        (self.folder / "peers.evalset.json").write_text(json.dumps(eval_set()))
        (self.folder / ".git").mkdir()
        variables = {"OPENAI_BASE_URL": model, "OPENAI_API_KEY": "none", "CALLS_LOG": str(self.log)}
        variables |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false"}
        self.agent = {
            "env": variables | {"SPANS_FILE": str(self.spans)},
            "evals": "peers.evalset.json",
            "criteria": {"tool_trajectory_avg_score": 1.0, "response_match_score": 1.0},
        }

    def run(self, repeats: int, **agent: Any) -> None:
        """Evaluate, and hold every call of every attempt against what the model asked for."""
        (self.folder / "agent-eval.yaml").write_text(json.dumps({"agent": self.agent | agent, "repeats": repeats}))
        done = agent_eval("run", cwd=self.folder)
        assert done.returncode == 0, done.stderr
        lines = (self.folder / ".agent-eval/out/attempts.jsonl").read_text().splitlines()
        attempts = [json.loads(line) for line in lines]
        assert len(attempts) == repeats * len(CASES), done.stderr
        self.found: Calls = []
        for attempt in attempts:
            assert attempt["turns"], attempt
            data = attempt["turns"][0].get("intermediate_data") or {"invocation_events": []}
            parts = [
                part for event in data["invocation_events"] for part in (event.get("content") or {}).get("parts") or ()
            ]
            calls = [
                (part["function_call"]["name"], part["function_call"]["args"])
                for part in parts
                if "function_call" in part
            ]
            assert calls == [call for step in CASES[attempt["case"]] for call in step], attempt["case"]
            answers = [part["function_response"] for part in parts if "function_response" in part]
            assert [answer["name"] for answer in answers] == [name for name, _ in calls], "each call has its result"
            assert all(answer["response"] for answer in answers)
            self.found += calls

    def logged(self) -> list[str]:
        calls = [json.loads(line) for line in self.log.read_text().splitlines()]
        return sorted(repr((call["name"], call["args"])) for call in calls)


@pytest.fixture
def work(tmp_path: Path, model: str) -> Work:
    return Work(tmp_path, model)


@pytest.mark.parametrize("peer", PEERS)
def test_calls_are_those_of_the_tools_own_log(peer: str, work: Work, peers_python: Path) -> None:
    work.run(3, driver="python", python=str(peers_python), function=f"{peer}:reply")
    assert sorted(map(repr, work.found)) == work.logged()


@pytest.mark.parametrize("export", ["protobuf", "json"])
@pytest.mark.parametrize("peer", [*PEERS, "langgraph_bare_agent"])
def test_calls_of_a_server_that_answers_with_text_are_those_that_it_exports(
    peer: str, export: str, work: Work, peers_python: Path
) -> None:
    command = [str(peers_python), "serve.py", peer, export, "{port}"]
    work.run(3, driver="openai", command=command)
    assert sorted(map(repr, work.found)) == work.logged()


@pytest.mark.parametrize("peer", [*PEERS[:3], "langgraph_bare_agent"])  # CrewAI wraps what the user says
def test_what_a_server_exported_to_a_file_is_scored_again(peer: str, work: Work, peers_python: Path) -> None:
    server = [str(peers_python), "serve.py", peer, "file", "{port}"]
    (work.folder / "agent-eval.yaml").write_text(
        json.dumps({"agent": {**work.agent, "driver": "openai", "command": server}, "repeats": 1})
    )
    agent_eval("run", cwd=work.folder)
    logged = work.logged()
    work.run(1, recording=str(work.spans.parent))
    assert sorted(map(repr, work.found)) == logged
