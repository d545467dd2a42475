"""Which files no agent gets to see: those of this run that say what it is to answer, and no others."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agent_eval_action.config.loader import resolve
from agent_eval_action.run.affected import hidden_files
from agent_eval_action.run.loader import discover_eval_files
from agent_eval_action.sandbox.tree import TreeCopy

CASE = {"eval_id": "a", "conversation": [{"user_content": {"parts": [{"text": "hi"}]}}]}
EVALS = json.dumps({"eval_set_id": "s", "eval_cases": [CASE]})
CONFIG = "agent: {path: bot, evals: [evals/*.evalset.json]}\n"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    for name, text in {
        "bot/agent.py": "root_agent = None\n",
        "bot/data/menu.evalset.json": EVALS,  # the agent's own: not of this run
        "evals/s.evalset.json": EVALS,
        "evals/test_config.json": '{"criteria": {"response_match_score": 0.8}}',
        "evals/notes.md": "",
        "main/s.evalset.json": EVALS,
        "main/test_config.json": "{}",
        "agent-eval.yaml": CONFIG,
        "scores.json": "{}",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def visible(workspace: Path, *, base: tuple[str, ...] = (), scoring: tuple[str, ...] = (), **flags: object) -> set[str]:
    settings = resolve(flags=flags, environ={}, cwd=workspace).settings
    hidden = hidden_files(settings, discover_eval_files(settings), base, scoring)
    target, environments = workspace.parent / "copy", workspace.parent / "environments"
    environments.mkdir()
    closed = {workspace.resolve() / path for path in hidden}
    TreeCopy(workspace.resolve(), target, os.geteuid(), os.getegid(), environments, closed).make()
    return {path.relative_to(target).as_posix() for path in target.rglob("*") if not path.is_dir()}


OWN = {"bot/agent.py", "bot/data/menu.evalset.json", "evals/notes.md"}
OF_MAIN = {"main/s.evalset.json", "main/test_config.json"}


def test_what_the_run_uses_is_not_in_the_copy(workspace: Path) -> None:
    assert visible(workspace) == OWN | OF_MAIN | {"scores.json"}


def test_nor_are_the_base_commit_s_eval_files_under_their_own_names(workspace: Path) -> None:
    assert visible(workspace, base=("main/s.evalset.json",)) == OWN | {"scores.json"}


def test_nor_the_code_that_the_base_commit_scores_by(workspace: Path) -> None:
    (workspace / "main" / "scoring.py").touch()
    base = ("main/s.evalset.json",)
    assert visible(workspace, base=base, scoring=("main/scoring.py",)) == OWN | {"scores.json"}


def test_nor_a_baseline_that_is_kept_elsewhere(workspace: Path) -> None:
    assert visible(workspace, baseline="scores.json") == OWN | OF_MAIN


def test_nor_the_results_that_are_resumed(workspace: Path) -> None:
    (workspace / "earlier").mkdir()
    (workspace / "earlier" / "attempts.jsonl").touch()
    assert visible(workspace, resume="earlier") == OWN | OF_MAIN | {"scores.json"}


def test_nor_a_recording(workspace: Path) -> None:
    (workspace / "good").mkdir()
    (workspace / "good" / "attempts.jsonl").touch()
    (workspace / "agent-eval.yaml").write_text(
        "agent: {path: bot, driver: recorded, recording: good, evals: [evals/*.evalset.json]}\n"
    )
    assert visible(workspace) == OWN | OF_MAIN | {"scores.json"}


def test_nor_what_an_eval_file_is_a_link_to(workspace: Path) -> None:
    (workspace / "evals" / "s.evalset.json").rename(workspace / "answers.json")
    (workspace / "evals" / "s.evalset.json").symlink_to("../answers.json")
    assert visible(workspace) == OWN | OF_MAIN | {"scores.json"}


def test_nor_the_code_of_an_eval_config_s_functions(workspace: Path) -> None:
    metrics = "metrics_to_run: [tone]\ncustom_metrics:\n- {name: tone, custom_function_file: ../grading/tone.py}\n"
    (workspace / "evals" / "test_config.json").unlink()
    (workspace / "evals" / "eval_config.yaml").write_text(metrics)
    (workspace / "grading").mkdir()
    (workspace / "grading" / "tone.py").write_text("def evaluate(instance): return 1.0\n")
    (workspace / "grading" / "notes.py").touch()
    assert visible(workspace) == OWN | OF_MAIN | {"scores.json", "grading/notes.py"}


def test_who_says_so_sees_everything(workspace: Path) -> None:
    config = workspace / "agent-eval.yaml"
    config.write_text(f"{CONFIG}gate: {{agents_see_evals: true}}\n")
    every = {"evals/s.evalset.json", "evals/test_config.json", "agent-eval.yaml", "scores.json"}
    assert visible(workspace) == OWN | OF_MAIN | every
