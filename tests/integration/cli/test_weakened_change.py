"""A change that loosens its own gate, in a real repository: said first, and judged by main's rules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

COMMAND = str(Path(sys.executable).with_name("agent-eval"))
CONFIG = "agent:\n  path: bot\n  name: bot\n  recording: recording\n  evals: evals\n"
RULES = "gate:\n  threshold_on: case\n  on_weakened: {}\n"


def case(name: str) -> dict[str, Any]:
    parts = {"role": "user", "parts": [{"text": "roll"}]}
    answer = {"role": "model", "parts": [{"text": "six"}]}
    return {"eval_id": name, "conversation": [{"user_content": parts, "final_response": answer}]}


class Repo:
    """A repository with main and a branch; the agent is a recording in which case ``b`` fails."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("bot", "evals", "recording"):
            (root / folder).mkdir()
        (root / ".gitignore").write_text(".agent-eval/\n")
        (root / "bot" / "agent.py").write_text("from google.adk.agents import Agent\n")
        self.cases("a", "b")
        self.criteria(0.8)
        with (root / "recording" / "attempts.jsonl").open("w", encoding="utf-8") as file:
            for name, said in (("a", "six"), ("b", "no")):
                turn = case(name)["conversation"][0]
                turn["final_response"] = {"role": "model", "parts": [{"text": said}]}
                line = {"agent": "bot", "eval_set": "evals/s", "case": name, "repeat": 0, "case_digest": "x"}
                file.write(json.dumps({**line, "turns": [turn]}) + "\n")

    def cases(self, *names: str) -> None:
        value = {"eval_set_id": "s", "eval_cases": [case(name) for name in names]}
        (self.root / "evals" / "s.evalset.json").write_text(json.dumps(value))

    def criteria(self, threshold: float) -> None:
        (self.root / "evals" / "test_config.json").write_text(
            json.dumps({"criteria": {"response_match_score": threshold}})
        )

    def rules(self, on_weakened: str) -> None:
        (self.root / "agent-eval.yaml").write_text(CONFIG + RULES.format(on_weakened))

    def git(self, *words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        done = subprocess.run(["git", *who, *words], cwd=self.root, check=True, capture_output=True, text=True)
        return done.stdout

    def commit(self, branch: str) -> None:
        if not (self.root / ".git").exists():
            self.git("init", "-qb", branch)
        elif self.git("branch", "--show-current").strip() != branch:
            self.git("checkout", "-qb", branch)
        self.git("add", "-A")
        self.git("commit", "-qm", "x")

    def run(self, *words: str, **environ: str) -> tuple[int, dict[str, Any], str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "INPUT_"))}
        argv = [COMMAND, "run", *words]
        done = subprocess.run(
            argv, cwd=self.root, env={**clean, **environ}, check=False, capture_output=True, text=True
        )
        results = self.root / ".agent-eval" / "out" / "results.json"
        assert results.exists(), done.stderr
        return done.returncode, json.loads(results.read_text())["decision"], done.stderr


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo(tmp_path)
    made.rules("fail")
    made.commit("main")
    return made


PULL = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_BASE_REF": "main"}


def test_removing_the_failing_case_is_blocked_by_main_s_rule_even_if_the_change_switches_it_off(repo: Repo):
    code, decision, _ = repo.run()
    assert code == 1
    assert decision["weakenings"] == []
    repo.cases("a")
    repo.rules("warn")
    repo.commit("pr")
    before = repo.git("status", "--porcelain"), repo.git("stash", "list"), (repo.root / ".git" / "index").read_bytes()
    code, decision, said = repo.run(**PULL)
    assert code == 1, said
    reasons = [one["reason"] for one in decision["weakenings"]]
    assert reasons[0] == "case `b` was removed from `evals/s.evalset.json`"
    assert "on_weakened fail → warn (agent-eval.yaml)" in reasons
    assert any("the rules are those of the base commit" in note for note in decision["notes"])
    comment = (repo.root / ".agent-eval" / "out" / "comment.md").read_text()
    assert comment.index("This change weakens the gate") < comment.index("| Criterion |")
    assert before == (
        repo.git("status", "--porcelain"),
        repo.git("stash", "list"),
        (repo.root / ".git" / "index").read_bytes(),
    )


def test_on_a_laptop_the_own_file_holds_and_the_weakening_is_said(repo: Repo):
    repo.cases("a")
    repo.criteria(0.1)
    repo.rules("warn")
    repo.commit("pr")
    code, decision, said = repo.run()
    assert code == 0, said
    assert len(decision["weakenings"]) == 3
    assert "this change weakens the gate" in said
    assert "threshold lowered 0.80 → 0.10" in " ".join(said.split())


def test_a_narrowed_run_still_sees_the_whole_suite(repo: Repo):
    repo.cases("a")
    repo.commit("pr")
    _, decision, _ = repo.run("--case", "a")
    assert [one["case"] for one in decision["weakenings"]] == ["b"]


def test_uncommitted_changes_on_main_are_compared_with_its_last_commit(repo: Repo):
    repo.cases("a")
    code, decision, _ = repo.run()
    assert code == 1
    assert [one["case"] for one in decision["weakenings"]] == ["b"]


def test_without_rules_on_the_base_the_change_s_own_hold_and_that_is_said(tmp_path: Path):
    repo = Repo(tmp_path)
    repo.commit("main")
    repo.rules("warn")
    repo.commit("pr")
    _, decision, _ = repo.run(**PULL)
    assert any("the rules are this change's own: the base commit" in note for note in decision["notes"])


def test_a_base_that_cannot_be_read_is_said_and_stops_nothing(repo: Repo):
    (repo.root / "evals" / "s.evalset.json").write_text("{")
    repo.commit("main")
    repo.cases("a")
    repo.commit("pr")
    code, decision, _ = repo.run(**PULL)
    assert code == 0
    assert decision["weakenings"] == []
    assert any("what the change does to eval files is not known" in note for note in decision["notes"])
