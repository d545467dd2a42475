"""A change that makes the agent worse and renames a case, an eval file or the agent is blocked as without."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.command import agent_eval
from support.messages import headline, notes, sentence
from support.repositories import run_git

pytestmark = pytest.mark.timeout(300)

AGENT = """
from google.adk.agents import Agent
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types


class Scripted(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        said = "seventeen" if GOOD or "first" in str(llm_request.contents) else "no idea"
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=said)]))


root_agent = Agent(name="bot", model=Scripted(model="m"))
"""


def case(name: str, asked: str, app: str) -> dict[str, Any]:
    turn = {
        "user_content": {"parts": [{"text": asked}]},
        "final_response": {"role": "model", "parts": [{"text": "seventeen"}]},
    }
    session = {"app_name": app, "user_id": "u"}
    return {"eval_id": name, "conversation": [turn], "session_input": session}


class Repo:
    """main with a good agent and its stored scores; a change is checked out as GitHub merges it."""

    def __init__(self, root: Path, python: Path) -> None:
        self.root, self.python = root / "repo", python
        self.event = root / "event.json"
        self.root.mkdir()
        self.write(".gitignore", ".agent-eval/out\n.agent-eval/cache\n__pycache__/\n")
        self.names("bot", "evals/s", "a", "b")
        self.agent("bot", good=True)
        run_git(self.root, "init", "--quiet", "--initial-branch=main")
        self.commit()
        done = self.command("baseline", "update", "--repeats", "3")
        assert done.returncode == 0, done.stderr
        self.base = self.commit()

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def names(self, agent: str, eval_set: str, *cases: str) -> None:
        """The eval file and the configuration with these names in them, and no other eval file."""
        for old in self.root.rglob("*.evalset.json"):
            old.unlink()
        asked = [case(name, text, agent) for name, text in zip(cases, ("the first", "the second"), strict=True)]
        self.write(f"{eval_set}.evalset.json", json.dumps({"eval_set_id": "s", "eval_cases": asked}))
        config = {"agent": {"path": agent, "evals": f"{eval_set}.evalset.json", "python": str(self.python)}}
        criteria = {"response_match_score": 0.2}
        self.write("agent-eval.yaml", json.dumps({**config, "criteria": criteria}))

    def agent(self, folder: str, *, good: bool) -> None:
        for old in self.root.glob("*/agent.py"):
            old.unlink()
        self.write(f"{folder}/__init__.py", "from . import agent\n")
        self.write(f"{folder}/agent.py", f"GOOD = {good}\n{AGENT}")

    def commit(self) -> str:
        run_git(self.root, "add", "--all")
        run_git(self.root, "commit", "--quiet", "-m", "x")
        return run_git(self.root, "rev-parse", "HEAD")

    def command(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        return agent_eval(*words, cwd=self.root, env={**kept, **environ})

    def merged(self, change: Callable[[], None], **more: str) -> tuple[int, dict[str, Any], str]:
        """The exit code, the decision and the log of the pull request with this change."""
        run_git(self.root, "checkout", "--quiet", "-b", "change")
        change()
        head = self.commit()
        run_git(self.root, "checkout", "--quiet", "--detach", self.base)
        run_git(self.root, "merge", "--quiet", "--no-ff", "-m", "merge", head)
        sides = {"base": {"sha": self.base, "ref": "main", "repo": {"id": 1}}, "head": {"sha": head, "repo": {"id": 1}}}
        payload = {"repository": {"default_branch": "main", "id": 1}, "pull_request": {"number": 2, **sides}}
        self.event.write_text(json.dumps(payload))
        job = {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": "pull_request", "GITHUB_EVENT_PATH": str(self.event)}
        job |= {
            "GITHUB_WORKSPACE": str(self.root),
            "GITHUB_REPOSITORY": "octo-org/Hello-World",
            "GITHUB_BASE_REF": "main",
        }
        done = self.command("run", **job, INPUT_COMMENT="off", **more)
        return done.returncode, self.results()["decision"], done.stdout + done.stderr

    def results(self) -> dict[str, Any]:
        """results.json of the last run."""
        found: dict[str, Any] = json.loads((self.root / ".agent-eval" / "out" / "results.json").read_text())
        return found


@pytest.fixture
def repo(tmp_path: Path, adk213_python: Path) -> Repo:
    return Repo(tmp_path, adk213_python)


RENAMES: dict[str, tuple[str, str, str, str]] = {
    "everything": ("assistant", "tests/other", "x", "y"),
    "nothing": ("bot", "evals/s", "a", "b"),
    "a case": ("bot", "evals/s", "a", "something else"),
    "the cases change their names": ("bot", "evals/s", "b", "a"),
    "the eval file": ("bot", "tests/other", "a", "b"),
    "the agent": ("assistant", "evals/s", "a", "b"),
}


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize("renamed", RENAMES.values(), ids=RENAMES)
def test_a_regression_is_blocked_whatever_is_renamed_with_it(repo: Repo, renamed: tuple[str, str, str, str]) -> None:
    def change() -> None:
        repo.names(*renamed)
        repo.agent(renamed[0], good=False)

    code, decision, log = repo.merged(change)
    assert (code, decision["outcome"]) == (1, "fail"), log
    assert f"1 of 2 cases got worse: `{renamed[3]}`" in headline(decision)
    kinds = {pair["case"]: pair["kind"] for pair in decision["pairs"]}
    assert kinds == {renamed[2]: "same", renamed[3]: "newly_failing"}
    assert not [one for one in decision["weakenings"] if "no longer run" in sentence(one) or "removed" in sentence(one)]


def test_an_agent_that_is_only_renamed_passes(repo: Repo) -> None:
    def change() -> None:
        repo.names(*RENAMES["everything"])
        repo.agent("assistant", good=True)

    code, decision, log = repo.merged(change)
    assert (code, decision["outcome"]) == (0, "pass"), log
    assert {pair["kind"] for pair in decision["pairs"]} == {"same"}
    assert any("2 cases were renamed" in note for note in notes(decision))


RERUN = {"INPUT_BASELINE-STORE": "rerun"}


def controls(results: dict[str, Any]) -> dict[str, int]:
    """How many answers the base commit's agents gave, by agent."""
    found: dict[str, int] = {}
    for measured in results["sets"]:
        answers = [one for case in measured["cases"] for one in case["control"] if one["error"] is None]
        found[measured["agent"]] = found.get(measured["agent"], 0) + len(answers)
    return found


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("renamed", "store"),
    [("everything", {}), ("everything", RERUN), ("nothing", RERUN)],
    ids=["stored scores", "rerun", "rerun without renames"],
)
def test_the_base_commits_agent_is_run_from_the_folder_it_had(repo: Repo, renamed: str, store: dict[str, str]) -> None:
    names = RENAMES[renamed]

    def change() -> None:
        repo.names(*names)
        repo.agent(names[0], good=False)

    if store:  # the base commit's agent, run beside, is all there is to compare with
        (repo.root / ".agent-eval" / "baseline.json").unlink()
        repo.base = repo.commit()
    code, decision, log = repo.merged(change, **store)
    base = repo.results()["base"]
    assert (base["unavailable"], base["unavailable_agents"]) == ("", {}), log
    assert controls(repo.results())[names[0]] > 0
    assert (code, decision["outcome"]) == (1, "fail"), log
    assert f"1 of 2 cases got worse: `{names[3]}`" in headline(decision)


class TwoAgents(Repo):
    """As before, with a second agent: ``helper``, of main or new in the change."""

    def add_helper(self, *, good: bool) -> None:
        """A second agent with a case of its own, beside the first."""
        self.write("helper/__init__.py", "from . import agent\n")
        self.write("helper/agent.py", f"GOOD = {good}\n{AGENT}")
        asked = [case("h", "another question", "helper")]
        self.write("evals/helper.evalset.json", json.dumps({"eval_set_id": "h", "eval_cases": asked}))
        agents = [
            {"path": name, "evals": f"evals/{file}.evalset.json", "python": str(self.python)}
            for name, file in (("bot", "s"), ("helper", "helper"))
        ]
        self.write("agent-eval.yaml", json.dumps({"agents": agents, "criteria": {"response_match_score": 0.2}}))

    def agent(self, folder: str, *, good: bool) -> None:
        """The first agent; the other stays."""
        self.write(f"{folder}/__init__.py", "from . import agent\n")
        self.write(f"{folder}/agent.py", f"GOOD = {good}\n{AGENT}")


@pytest.mark.exhaustive
@pytest.mark.parametrize("store", [{}, RERUN], ids=["stored scores", "rerun"])
def test_an_agent_that_the_base_lacks_leaves_the_others_their_control(
    tmp_path: Path, adk213_python: Path, store: dict[str, str]
) -> None:
    repo = TwoAgents(tmp_path, adk213_python)

    def change() -> None:
        repo.add_helper(good=True)
        repo.agent("bot", good=False)

    code, decision, log = repo.merged(change, **store)
    results = repo.results()
    assert (code, decision["outcome"]) == (1, "fail"), log
    assert "got worse: `b`" in headline(decision), log
    assert controls(results)["bot"] > 0
    assert controls(results)["helper"] == 0
    assert results["base"]["unavailable"] == ""
    if store:  # everything of the base is run: that it has no such agent is said
        lacks = f"the base commit {repo.base[:10]} has no agent in helper"
        assert results["base"]["unavailable_agents"] == {"helper": lacks}
        assert f"no control of helper: {lacks}; it has no baseline" in log
