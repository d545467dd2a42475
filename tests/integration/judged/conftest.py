"""The command over a judged repository: one server is the model of its ADK agent, of the judges and of the user."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.command import COMMAND, agent_eval
from support.gemini_server.faults import Fault
from support.gemini_server.messages import ModelRequest, Reply
from support.gemini_server.server import GeminiServer
from support.judge_model import JudgeModel
from support.serving import Address

CLERK = Path(__file__).parents[1] / "scenarios" / "folders" / "clerk"
OURS = ("INPUT_", "GITHUB_", "GOOGLE_", "GEMINI_", "OPENAI_")
MATCH = {"final_response_match_v2": {"threshold": 0.8}}


def clerk(request: ModelRequest) -> Reply:
    """Looks the city up, then says how hot it is."""
    city = request.user_text.rstrip("?").rsplit(" ", 1)[-1]
    if not request.tool_responses:
        return Reply(calls=[{"name": "look_up", "args": {"city": city}}])
    return Reply(text=f"{city} has 31 degrees. Enjoy it.")


def case(name: str, *cities: str, **fields: Any) -> dict[str, Any]:
    """A case with one turn per city, and references that the clerk meets."""
    turns = [
        {
            "user_content": {"role": "user", "parts": [{"text": f"How hot is {city}?"}]},
            "final_response": {"role": "model", "parts": [{"text": f"It is 31 degrees in {city}."}]},
        }
        for city in cities or ("Rome",)
    ]
    return {"eval_id": name, "conversation": turns, **fields}


@dataclass
class Ended:
    """A run of the command that is over."""

    code: int
    said: str
    out: Path

    @property
    def results(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.out / "results.json").read_text())
        return found

    @property
    def comment(self) -> str:
        return (self.out / "comment.md").read_text()

    @property
    def junit(self) -> str:
        return (self.out / "junit.xml").read_text()

    def score(self, name: str, criterion: str) -> dict[str, Any]:
        """The score of a case's first attempt."""
        cases = (one for each in self.results["sets"] for one in each["cases"])
        (attempt, *_) = next(one for one in cases if one["case"] == name)["attempts"]
        found: dict[str, Any] = next(one for one in attempt["scores"] if one["criterion"] == criterion)
        return found

    def statuses(self, criterion: str) -> dict[str, str]:
        """By case."""
        names = [one["case"] for each in self.results["sets"] for one in each["cases"]]
        return {name: self.score(name, criterion)["status"] for name in names}

    def uses(self) -> dict[str, dict[str, Any]]:
        """What models were asked, by purpose."""
        return {use["purpose"]: use for use in self.results["totals"]["uses"]}


@dataclass
class Judged:
    """The repository, and the server that everything in it asks."""

    root: Path
    python: Path
    server: GeminiServer
    model: JudgeModel
    environ: dict[str, str] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)

    def configure(self, **more: Any) -> None:
        self.config |= more
        (self.root / "agent-eval.yaml").write_text(json.dumps(self.config))

    def criteria(self, criteria: dict[str, Any], **beside: Any) -> None:
        (self.root / "evals" / "test_config.json").write_text(json.dumps({"criteria": criteria, **beside}))

    def cases(self, *cases: dict[str, Any]) -> None:
        text = json.dumps({"eval_set_id": "s", "eval_cases": cases})
        (self.root / "evals" / "s.evalset.json").write_text(text)

    def fault(self, **fields: Any) -> None:
        self.server.faults.append(Fault(**fields))

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [COMMAND, *(words or ("run",))],
            cwd=self.root,
            env=self.process_environ(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def process_environ(self) -> dict[str, str]:
        return {**{k: v for k, v in os.environ.items() if not k.startswith(OURS)}, **self.environ}

    def run(self, *words: str) -> Ended:
        """``agent-eval run WORDS``."""
        return self.command("run", *words)

    def command(self, *words: str) -> Ended:
        done = agent_eval(*words, cwd=self.root, env=self.process_environ())
        return Ended(done.returncode, " ".join(done.stderr.split()), self.root / ".agent-eval" / "out")

    def forget(self) -> None:
        """Forget what was asked so far, and every fault."""
        self.server.faults.clear()
        self.model.asked.clear()
        self.model.order.clear()
        self.model.calls.clear()
        self.server.seen = type(self.server.seen)()


@pytest.fixture(scope="session")
def address() -> Iterator[Address]:
    with Address.open() as opened:
        yield opened


@pytest.fixture
def judged(tmp_path: Path, adk213_python: Path, address: Address) -> Judged:
    model = JudgeModel(agent=clerk)
    server = GeminiServer(model.gemini)
    root = tmp_path / "repo"
    (root / "clerk").mkdir(parents=True)
    (root / "evals").mkdir()
    for file in CLERK.glob("*.py"):
        (root / "clerk" / file.name).write_text(file.read_text())
    address.handler, server.url = server.handle, address.url
    environ = {
        "GOOGLE_GEMINI_BASE_URL": server.url,
        "GOOGLE_API_KEY": "local-key",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
    made = Judged(root, adk213_python, server, model, environ)
    made.configure(agent="clerk", python=str(adk213_python), evals="evals", reruns="off")
    made.criteria(MATCH)
    made.cases(case("rome"))
    return made
