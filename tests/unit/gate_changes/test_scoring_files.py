"""Which files of the base commit say how agents are scored, under the names that they have there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from agent_eval_action.config.loader import resolve
from agent_eval_action.gate_changes.snapshot import BaseSnapshot, CommandContext, read_base

CASE = {"eval_id": "a", "conversation": [{"user_content": {"parts": [{"text": "hi"}]}}]}
METRICS = "metrics_to_run: [tone]\ncustom_metrics:\n- {name: tone, custom_function_file: ../grading/tone.py}\n"


def test_criteria_and_their_code_that_the_change_renamed(tmp_path: Path) -> None:
    root = tmp_path / "ws"
    for name, text in {
        "bot/agent.py": "root_agent = None\n",
        "evals/s.evalset.json": json.dumps({"eval_set_id": "s", "eval_cases": [CASE]}),
        "evals/eval_config.yaml": METRICS,
        "grading/tone.py": "def evaluate(instance): return 1.0\n",
        "agent-eval.yaml": "agent: {path: bot, evals: [evals/*.evalset.json], criteria: evals/eval_config.yaml}\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git = ("git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b.c")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "base")):
        subprocess.run([*git, *words], check=True)
    (root / "grading/tone.py").rename(root / "grading/mood.py")
    (root / "evals/eval_config.yaml").write_text(METRICS.replace("tone.py", "mood.py"))
    settings = resolve(flags={}, environ={}, cwd=root).settings
    base = read_base(settings, CommandContext({}, {}, root, base="HEAD"))
    assert isinstance(base, BaseSnapshot), base
    assert base.scoring_files == ("evals/eval_config.yaml", "grading/tone.py")
