"""Variables that an agent asks for and does not see are named, in the log and beside the error they cause."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from support.command import agent_eval
from support.gemini_server import client

AGENT = """\
import os
from google.adk.agents import LlmAgent

MODEL = os.environ.get("AGENT_MODEL", "gemini-2.5-flash")
TOKEN = os.getenv('GITHUB_TOKEN')
UNSET = os.environ.get("NOWHERE_SET")
{more}
root_agent = LlmAgent(name="shop", model=MODEL, instruction="Answer.")
"""


class Project:
    def __init__(self, root: Path, python: Path) -> None:
        self.root, self.python = root, python
        (root / "shop").mkdir()
        (root / "shop" / "__init__.py").write_text("")
        user = {"role": "user", "parts": [{"text": "hi"}]}
        cases = [{"eval_id": "a", "conversation": [{"user_content": user, "final_response": user}]}]
        (root / "a.evalset.json").write_text(json.dumps({"eval_set_id": "a", "eval_cases": cases}))

    def run(self, more: str = "", config: str = "", **environ: str) -> tuple[str, str]:
        """What the run printed, on one line, and the error of its one attempt."""
        (self.root / "shop" / "agent.py").write_text(AGENT.format(more=more))
        (self.root / "agent-eval.yaml").write_text(f"agent:\n  path: shop\n{config}")
        skipped = ("GITHUB_", "INPUT_", "GOOGLE_", "GEMINI_")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(skipped)}
        done = agent_eval("run", "--python", str(self.python), cwd=self.root, env=clean | environ)
        results = json.loads((self.root / ".agent-eval" / "out" / "results.json").read_text())
        error = results["sets"][0]["cases"][0]["attempts"][0].get("error") or {}
        return " ".join(done.stderr.split()), f"{error.get('kind')}: {error.get('message')}"


@pytest.fixture
def project(tmp_path: Path, adk213_python: Path) -> Project:
    return Project(tmp_path, adk213_python)


def test_what_the_code_asks_for_and_is_set_here_is_named_until_it_is_passed(project: Project) -> None:
    said, _ = project.run(AGENT_MODEL="gemini-3-pro", GITHUB_TOKEN="ghs_x")  # noqa: S106 - no token
    assert "shop: AGENT_MODEL is set here but not passed to the agent: add it to `env:` of the agent" in said
    assert "GITHUB_TOKEN is set" not in said, "a token of the job is never to be passed"
    assert "NOWHERE_SET" not in said
    said, _ = project.run(config="  env: [AGENT_MODEL]\n", AGENT_MODEL="gemini-3-pro")
    assert "not passed" not in said
    (project.root / ".env").write_text("AGENT_MODEL=gemini-2.5-pro\n")
    said, _ = project.run(AGENT_MODEL="gemini-3-pro")
    assert "not passed" not in said, "the agent has its own .env"


def test_the_error_names_the_variable_that_was_withheld(project: Project) -> None:
    _, error = project.run(more='name = "SHOP" + "_BACKEND"\nos.environ[name]\n', SHOP_BACKEND="here")
    assert "KeyError: 'SHOP_BACKEND'" in error
    assert error.endswith("SHOP_BACKEND is set here but not passed to the agent: add it to `env:` of the agent")


def test_a_missing_key_names_the_variable_to_set(project: Project) -> None:
    _, error = project.run()
    assert error.startswith("credentials: ")
    assert "— set GOOGLE_API_KEY (or GEMINI_API_KEY), or GOOGLE_GENAI_USE_VERTEXAI=true" in error


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize(
    "fault",
    [{"code": 400, "message": "API key not valid. Please pass a valid API key."}, {"code": 403, "message": "denied"}],
)
def test_a_key_that_gemini_refuses_is_a_matter_of_credentials(project: Project, tmp_path: Path, fault: dict) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps({"rules": [{"when": {}, "reply": {"text": "never"}}]}))
    with client.running(rules, faults=({**fault, "times": 1_000},)) as gemini:
        _, error = project.run(**gemini.environ)
    assert error.startswith("credentials: "), error
    assert "— check GOOGLE_API_KEY (or GEMINI_API_KEY): the key is not valid, or may not use this model" in error
