"""Shell completion in a real bash, and the problem matcher of the docs on real output."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from integration.cli.test_weakened_change import Repo, case
from support.command import COMMAND, agent_eval

ROOT = Path(__file__).resolve().parents[3]
BASH = """
eval "$(_AGENT_EVAL_COMPLETE=source_bash {command})"
COMP_WORDS=({words}) COMP_CWORD={last} COMPREPLY=()
_agent_eval_completion {command}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo(tmp_path)
    made.rules("warn")
    return made


def completed(repo: Repo, *words: str) -> list[str]:
    """What bash offers where the last of the words is being typed."""
    line = shlex.join(["agent-eval", *words])
    script = BASH.format(command=shlex.quote(str(COMMAND)), words=line, last=len(words))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "INPUT_"))}
    done = subprocess.run(
        ["bash", "-c", script], cwd=repo.root, env=clean, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("expl",), ["explain"]),
        (("baseline", ""), ["update", "show", "history"]),
        (("run", "--max-co"), ["--max-cost"]),
        (("run", "ev"), ["evals/s.evalset.json"]),
        (("explain", ""), ["a", "b"]),
        (("update", "--case", ""), ["a", "b"]),
        (("run", "--case", ""), ["a", "b"]),
    ],
)
def test_commands_flags_eval_files_and_cases_are_completed(
    repo: Repo, words: tuple[str, ...], offered: list[str]
) -> None:
    assert completed(repo, *words) == offered


def test_a_name_that_a_shell_would_act_on_is_not_offered(repo: Repo) -> None:
    names = ("$(touch owned)", "`x`", "a;b", "a b", "a\nb", "ok-1")
    value = {"eval_set_id": "s", "eval_cases": [case(name) for name in names]}
    (repo.root / "evals" / "s.evalset.json").write_text(json.dumps(value))
    assert completed(repo, "explain", "") == ["ok-1"]


def test_where_the_configuration_is_wrong_nothing_is_offered(repo: Repo) -> None:
    (repo.root / "agent-eval.yaml").write_text("agent: [")
    assert completed(repo, "explain", "") == []


def test_the_problem_matcher_of_the_docs_finds_every_problem_with_its_place(repo: Repo) -> None:
    page = (ROOT / "docs" / "config.md").read_text()
    (block,) = (block for block in re.findall(r"```jsonc\n(.*?)```", page, re.DOTALL) if "problemMatcher" in block)
    (task,) = json.loads(block)["tasks"]
    pattern = task["problemMatcher"]["pattern"]
    assert task["command"] == "agent-eval validate --quiet"
    broken = {"eval_set_id": "s", "eval_cases": [{**case("a"), "session_inputs": {}}, {**case("b"), "conversaton": []}]}
    (repo.root / "evals" / "s.evalset.json").write_text(json.dumps(broken, indent=1))
    (repo.root / "agent-eval.yaml").write_text("agent:\n  path: bot\nbaselin: {}\n")
    for expected in (["agent-eval.yaml:3"], ["evals/s.evalset.json"]):
        done = agent_eval("validate", "--quiet", cwd=repo.root, env=task["options"]["env"])
        assert done.returncode in {0, 2}
        lines = [line for line in done.stderr.splitlines() if not re.fullmatch(r".*\d+ errors?.*", line)]
        found = [re.match(pattern["regexp"], line) for line in lines]
        assert lines
        assert all(found), lines
        places = {f"{one[pattern['file']]}:{one[pattern['line']]}" for one in found if one}
        assert all(any(place.startswith(path) for place in places) for path in expected), places
        assert {one[pattern["severity"]] for one in found if one} <= {"error", "warning"}
        assert all(int(one[pattern["line"]]) > 0 for one in found if one)
        repo.rules("warn")
