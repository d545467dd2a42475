"""--resume with a real agent in a real repository: what it said stays only while it is the same agent."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.command import agent_eval
from support.repositories import run_git

pytestmark = pytest.mark.timeout(300)

AGENT = """
import os
from pathlib import Path
from google.adk.agents import Agent
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types

from .words import ANSWER

Path(__file__).with_name("made.log").open("a").write("made\\n")


class Scripted(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        said = os.environ.get("ANSWER", ANSWER)
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=said)]))


root_agent = Agent(name="bot", model=Scripted(model="m"))
"""
TURN = {
    "user_content": {"parts": [{"text": "Which number?"}]},
    "final_response": {"role": "model", "parts": [{"text": "seventeen"}]},
}
CASES = [{"eval_id": name, "conversation": [TURN]} for name in ("a", "b")]


class Repo:
    def __init__(self, root: Path, python: Path) -> None:
        self.root, self.python = root, python
        root.mkdir()
        self.write(".gitignore", "*.log\n.agent-eval/\n__pycache__/\n")
        self.write("bot/__init__.py", "from . import agent\n")
        self.write("bot/agent.py", AGENT)
        self.write("bot/words.py", 'ANSWER = "seventeen"\n')
        self.write("evals/s.evalset.json", json.dumps({"eval_set_id": "s", "eval_cases": CASES}))
        self.configure()
        run_git(root, "init", "--quiet", "--initial-branch=main")
        run_git(root, "add", "--all")
        run_git(root, "commit", "--quiet", "-m", "main")

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def configure(self, threshold: float = 0.8, **agent: Any) -> None:
        config = {"agent": {"path": "bot", "evals": "evals", "python": str(self.python), **agent}}
        self.write("agent-eval.yaml", json.dumps({**config, "criteria": {"response_match_score": threshold}}))

    def run(self, *words: str) -> tuple[list[str], str]:
        """What the agent said in each case, and the log."""
        environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        done = agent_eval("run", *words, cwd=self.root, env=environ)
        results = json.loads((self.root / ".agent-eval" / "out" / "results.json").read_text())
        (found,) = results["sets"]
        return [case["attempts"][0]["turns"][0]["response"] for case in found["cases"]], done.stdout + done.stderr


@pytest.fixture
def repo(tmp_path: Path, adk213_python: Path) -> Repo:
    return Repo(tmp_path / "repo", adk213_python)


NOTHING, ELSEWHERE = "seventeen", "eighteen"


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("change", "said", "why"),
    [
        (
            lambda repo: repo.write("bot/words.py", f'ANSWER = "{ELSEWHERE}"\n'),
            ELSEWHERE,
            "files of the checkout changed",
        ),
        (lambda _: None, NOTHING, ""),
        # what is no part of the agent: a threshold, and what git ignores
        (lambda repo: (repo.configure(0.5), repo.write("bot/more.log", "x")), NOTHING, ""),
        (lambda repo: repo.configure(env={"ANSWER": ELSEWHERE}), ELSEWHERE, "the agent's settings changed"),
    ],
    ids=["code", "nothing", "no part of the agent", "settings"],
)
def test_what_is_kept_is_of_the_same_agent(repo: Repo, change: Callable[[Repo], Any], said: str, why: str) -> None:
    assert repo.run()[0] == [NOTHING] * 2
    change(repo)
    answers, log = repo.run("--resume", ".agent-eval/out")
    assert answers == [said] * 2, log
    assert (f"attempts of the earlier run are not kept, because {why}" in " ".join(log.split())) is bool(why), log
