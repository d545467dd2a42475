"""A project whose extension replaces ``agents-cli eval generate``, in the gate by way of agents-cli itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.command import agent_eval

PROGRAM = Path(__file__).resolve().parents[2] / "support" / "dataset_program.py"
MANIFEST = """
schema: agents-cli-extension/v1alpha1
name: obedient
commands:
  override:
    eval.generate: {run: [python3, scripts/extension.py]}
"""


@pytest.mark.exhaustive
def test_an_extension_of_agents_cli_answers_for_the_agent(agents_cli_python: Path, tmp_path: Path) -> None:
    extension, project, tool = tmp_path / "extension", tmp_path / "shop", agents_cli_python.with_name("agents-cli")
    (extension / "scripts").mkdir(parents=True)
    shutil.copy(PROGRAM, extension / "scripts" / "extension.py")
    (extension / "agents-cli-extension.yaml").write_text(MANIFEST)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "An extension"]):
        subprocess.run([*git, *words], cwd=extension, check=True)
    (project / "tests/eval/datasets").mkdir(parents=True)
    (project / "agents-cli-manifest.yaml").write_text("name: shop\nagent_directory: app\nlanguage: python\n")
    environ = {**os.environ, "HOME": str(tmp_path), "NO_COLOR": "1"}
    add = [tool, "extension", "add", "--yes", extension.as_uri()]
    subprocess.run(add, cwd=project, env=environ, check=True, capture_output=True, timeout=60)

    contents = {name: {"parts": [{"text": words}]} for name, words in (("calls", "tools"), ("lost", "drop"))}
    cases = [{"eval_case_id": name, "prompt": content} for name, content in contents.items()]
    (project / "tests/eval/datasets/basic-dataset.json").write_text(json.dumps({"eval_cases": cases}))
    command = f"{tool} eval generate --dataset {{dataset}} --output {{output}}"
    agent = {"path": ".", "driver": "command", "command": command}
    single = {"trajectory_single_tool_use": {"tool": "add", "threshold": 1}}
    (project / "agent-eval.yaml").write_text(json.dumps({"agent": agent, "criteria": single}))
    done = agent_eval("run", cwd=project, env=environ)
    assert done.returncode == 3, done.stderr
    (measured,) = json.loads((project / ".agent-eval/out/results.json").read_text())["sets"]
    found = {case["case"]: case["attempts"][0] for case in measured["cases"]}
    assert [score["score"] for score in found["calls"]["scores"]] == [1]
    assert found["lost"]["error"]["message"] == "the program left the case out of what it wrote"
