"""``agent-eval compare`` on what ``agents-cli eval grade`` itself writes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from support.command import agent_eval

CONFIG = """
metrics_to_run: [picky]
custom_metrics:
- name: picky
  custom_function: |
    def evaluate(instance):
        if "broken" in str(instance["response"]):
            raise ValueError("boom")
        return {"score": 4.0, "explanation": "fine"}
"""
CREDENTIALS = {"type": "authorized_user", "client_id": "x", "client_secret": "x", "refresh_token": "x"}


def grade(agents_cli_python: Path, folder: Path, answers: dict[str, str]) -> Path:
    """Grade traces with these answers by a function; agents-cli wants credentials that it does not use for it."""
    folder.mkdir()
    cases = []
    for name, answer in answers.items():
        said = {"role": "model", "parts": [{"text": answer}]}
        events = [
            {"author": "user", "content": {"role": "user", "parts": [{"text": name}]}},
            {"author": "root", "content": said},
        ]
        data = {"agents": {"root": {"agent_id": "root"}}, "turns": [{"turn_index": 0, "events": events}]}
        cases.append({"eval_case_id": name, "agent_data": data, "responses": [{"response": said}]})
    (folder / "traces.json").write_text(json.dumps({"eval_cases": cases}))
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "credentials.json").write_text(json.dumps(CREDENTIALS))
    words = [
        "eval",
        "grade",
        "--traces",
        "traces.json",
        "--output",
        "artifacts/grade_results",
        "--config",
        "config.yaml",
    ]
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GOOGLE_APPLICATION_CREDENTIALS": str(folder / "credentials.json"),
        "GOOGLE_CLOUD_PROJECT": "none",
        "LITELLM_LOCAL_MODEL_COST_MAP": "true",
    }
    tool = agents_cli_python.with_name("agents-cli")
    subprocess.run([tool, *words], cwd=folder, env=environ, check=True, capture_output=True, timeout=120)
    return folder


@pytest.mark.exhaustive
def test_what_agents_cli_hides_is_inconclusive(agents_cli_python: Path, tmp_path: Path):
    main = grade(agents_cli_python, tmp_path / "main", {"a": "yes", "b": "no"})
    change = grade(agents_cli_python, tmp_path / "change", {"a": "yes", "b": "broken"})
    same = agent_eval("compare", str(main), str(main), cwd=tmp_path)
    assert same.returncode == 0, same.stderr
    errored = agent_eval("compare", str(main), str(change), cwd=tmp_path)
    assert (errored.returncode, "boom" in errored.stderr) == (3, True), errored.stderr
