"""A git repository whose agent is a recording: the whole command in a second, without a model or an interpreter."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from support.command import agent_eval
from support.repositories import run_git

_TURN = {
    "user_content": {"role": "user", "parts": [{"text": "hello"}]},
    "final_response": {"role": "model", "parts": [{"text": "hello there"}]},
}


class RecordedRepository:
    """One agent, one case, everything committed."""

    def __init__(self, root: Path, agent: str = "bot") -> None:
        self.root = root
        self.write("bot/agent.py", "root_agent = None\n")
        self.write("agent-eval.yaml", "agent: bot\nrecording: recording\n")
        self.write("test_config.json", json.dumps({"criteria": {"response_match_score": 0.5}}))
        self.write("s.evalset.json", json.dumps({"eval_set_id": "s", "eval_cases": [self.case("a")]}))
        lines = [
            {"agent": agent, "eval_set": "s", "case": "a", "repeat": repeat, "case_digest": "x", "turns": [_TURN]}
            for repeat in range(5)
        ]
        self.write("recording/attempts.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        run_git(root, "init", "--quiet", "--initial-branch=main")
        self.commit()

    @staticmethod
    def case(name: str) -> dict[str, object]:
        return {"eval_id": name, "conversation": [_TURN]}

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def link(self, path: str, target: str | Path) -> Path:
        """A link in place of whatever is there."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.symlink_to(target)
        return file

    def commit(self) -> None:
        run_git(self.root, "add", "--all", "--force")
        run_git(self.root, "commit", "--quiet", "-m", "x")

    def commit_on(self, branch: str) -> None:
        """Commit everything on a new branch."""
        run_git(self.root, "checkout", "--quiet", "-b", branch)
        self.commit()

    def __call__(self, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("INPUT_", "GITHUB_"))}
        return agent_eval(*args, cwd=self.root, env=clean | environ)
