"""Inputs as the runner hands them over: credentials reach the agent as their variables, and no text shows them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from support.command import agent_eval

KEY = "AIza-not-a-key-0123456789"
AGENT = """
import json, os, pathlib
pathlib.Path(__file__).with_name("seen.json").write_text(json.dumps(dict(os.environ)))
raise RuntimeError("the key is " + os.environ.get("OPENAI_API_KEY", "nowhere"))
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    (folder / "bot").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "bot" / "__init__.py").write_text("")
    (folder / "bot" / "agent.py").write_text(AGENT + "root_agent = None\n")
    turn = {"user_content": {"parts": [{"text": "hi"}]}, "final_response": {"parts": [{"text": "ho"}]}}
    cases = {"eval_set_id": "s", "eval_cases": [{"eval_id": "a", "conversation": [turn]}]}
    (folder / "bot" / "s.evalset.json").write_text(json.dumps(cases))
    return folder


def run(workspace: Path, adk: Path, **environ: str) -> tuple[dict[str, str], str, str]:
    """What the agent saw, what was printed, and everything that was written."""
    outer = {name: os.environ[name] for name in ("PATH", "HOME")}
    done = agent_eval("run", cwd=workspace, env={**outer, "INPUT_PYTHON": str(adk), "INPUT_RETRIES": "0", **environ})
    assert done.returncode == 3, done.stderr
    files = "".join(path.read_text() for path in (workspace / ".agent-eval").rglob("*") if path.is_file())
    return json.loads((workspace / "bot" / "seen.json").read_text()), done.stdout + done.stderr, files


@pytest.fixture(scope="module")
def adk() -> Path:
    return Path(__file__).resolve().parents[3] / ".venvs" / "adk-2.13" / "bin" / "python"


@pytest.mark.parametrize("name", ["INPUT_OPENAI-API-KEY", "INPUT_OPENAI_API_KEY", "OPENAI_API_KEY"])
def test_a_key_reaches_the_agent_by_its_variable_and_no_text(workspace, adk, name):
    seen, printed, written = run(workspace, adk, **{name: KEY, "INPUT_GITHUB-TOKEN": "ghs_thetokenofthejob"})
    assert seen["OPENAI_API_KEY"] == KEY
    assert not [variable for variable in seen if variable.startswith("INPUT_")]
    assert "the key is ***" in printed + written
    assert KEY not in printed + written


def test_the_input_counts_before_the_variable_and_an_empty_one_does_not(workspace, adk):
    given = {"INPUT_OPENAI-API-KEY": KEY, "OPENAI_API_KEY": "other-0123456789", "INPUT_GOOGLE-CLOUD-PROJECT": ""}
    seen, _, _ = run(workspace, adk, **given, GOOGLE_CLOUD_PROJECT="mine")
    assert (seen["OPENAI_API_KEY"], seen["GOOGLE_CLOUD_PROJECT"]) == (KEY, "mine")


def test_what_is_for_the_install_step_is_not_for_the_agent(workspace, adk):
    given = {"INPUT_INSTALL-ENV": "GIT_TOKEN\nUV_INDEX_URL=https://me:secretword@host/", "GIT_TOKEN": "ghs_0123456789"}
    seen, printed, written = run(workspace, adk, **given)
    assert not {"GIT_TOKEN", "UV_INDEX_URL"} & set(seen)
    assert "secretword" not in printed + written + json.dumps(seen)
