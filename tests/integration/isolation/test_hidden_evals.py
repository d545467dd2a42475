"""An agent that reads the answers out of its eval file: where it works on a copy of the checkout there is none."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from support.repositories import run_git

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CHEAT = '''
import json, os
from pathlib import Path
from google.adk.agents import Agent
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types


def answer():
    """The expected answer out of whatever file of the checkout has one."""
    for folder, _, names in os.walk(Path(__file__).resolve().parents[1]):
        for name in names:
            if name.endswith(".json"):
                text = Path(folder, name).read_text()
                if "final_response" in text:
                    return json.loads(text)["eval_cases"][0]["conversation"][0]["final_response"]["parts"][0]["text"]
    return "I looked everywhere"


class Cheating(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=answer())]))


root_agent = Agent(name="bot", model=Cheating(model="m"))
'''
TURN = {
    "user_content": {"parts": [{"text": "Which number am I thinking of?"}]},
    "final_response": {"role": "model", "parts": [{"text": "seventeen"}]},
}


@pytest.fixture
def workspace(tmp_path: Path, pythons) -> Path:
    root = tmp_path / "ws"
    files = {
        ".gitignore": ".agent-eval/\n__pycache__/\n",
        "bot/__init__.py": "from . import agent\n",
        "bot/agent.py": CHEAT,
        "evals/s.evalset.json": json.dumps(
            {"eval_set_id": "s", "eval_cases": [{"eval_id": "a", "conversation": [TURN]}]}
        ),
        "evals/test_config.json": json.dumps({"criteria": {"response_match_score": 0.8}}),
        "agent-eval.yaml": (
            f"agent: {{path: bot, evals: evals, python: {pythons.agent}}}\ngate: {{threshold_on: case}}\n"
        ),
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def answers(workspace: Path, tool: Path, *more: str) -> tuple[str, str]:
    """What the agent said, and on the base commit if it was asked there."""
    program = tool.parents[2] / "agent-eval.py"
    done = subprocess.run(
        [str(tool), "-I", "-u", str(program), "run", *more],
        cwd=workspace,
        env={"PATH": os.environ["PATH"], "HOME": str(workspace.parent), "AGENT_EVAL_ISOLATION": "on"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    results = workspace / ".agent-eval" / "out" / "results.json"
    assert results.is_file(), done.stderr
    case = json.loads(results.read_text())["sets"][0]["cases"][0]
    said = [made["turns"][0]["response"] for made in (*case["attempts"][:1], *case.get("control", ())[:1])]
    return said[0], "".join(said[1:])


def test_it_finds_nothing_in_its_copy_nor_does_the_base_commit_s_in_its_own(workspace: Path, pythons) -> None:
    run_git(workspace, "init", "--quiet", "--initial-branch=main")
    run_git(workspace, "add", "--all")
    run_git(workspace, "commit", "--quiet", "-m", "main")
    run_git(workspace, "checkout", "--quiet", "-b", "change")
    (workspace / "evals").rename(workspace / "renamed")
    config = workspace / "agent-eval.yaml"
    config.write_text(config.read_text().replace("evals: evals", "evals: renamed"))
    run_git(workspace, "add", "--all")
    run_git(workspace, "commit", "--quiet", "-m", "change")
    said = answers(workspace, pythons.tool, "--baseline-store", "rerun")
    assert said == ("I looked everywhere", "I looked everywhere")


@pytest.mark.exhaustive
def test_it_finds_them_where_the_rules_let_it(workspace: Path, pythons) -> None:
    config = workspace / "agent-eval.yaml"
    config.write_text(config.read_text().replace("gate: {", "gate: {agents_see_evals: true, "))
    assert answers(workspace, pythons.tool)[0] == "seventeen"
