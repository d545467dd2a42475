"""``--json``: stdout is one JSON document of a known shape, whatever happens, and exit codes stay."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from integration.cli.test_weakened_change import UPDATE, Repo
from support.command import COMMAND, agent_eval

SCHEMAS = Path(__file__).resolve().parents[3] / "schema"


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """A repository on which case ``b`` fails."""
    made = Repo(tmp_path)
    made.rules("warn")
    made.commit("main")
    return made


def document(repo: Repo, *words: str, code: int = 0, **environ: str) -> Any:
    done = agent_eval(*words, "--json", cwd=repo.root, env=environ)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def is_of(schema: str, value: Any) -> None:
    jsonschema.validate(value, json.loads((SCHEMAS / f"{schema}.schema.json").read_text()))


def test_run_prints_results_json(repo: Repo) -> None:
    found = document(repo, "run", code=1)
    is_of("results", found)
    assert found == json.loads((repo.root / ".agent-eval" / "out" / "results.json").read_text())
    in_a_step = document(repo, "run", "-q", code=1, GITHUB_ACTIONS="true", CI="true")
    assert in_a_step["decision"]["outcome"] == "fail"


def test_compare_prints_the_results_that_it_decided(repo: Repo) -> None:
    document(repo, "run", code=1)
    found = document(repo, "compare", ".agent-eval/out", ".agent-eval/out", "-q", code=1)
    is_of("results", found)
    assert found["decision"]["outcome"] == "fail"


def test_baseline_show_prints_a_baseline(repo: Repo) -> None:
    document(repo, "run", code=1)
    agent_eval(*UPDATE, cwd=repo.root)
    found = document(repo, "baseline", "show")
    is_of("baseline", found)
    assert [record["case"] for record in found["records"]] == ["a", "b"]


def test_validate_prints_what_it_checked_and_every_problem(repo: Repo) -> None:
    assert document(repo, "validate") == {"checked": 1, "errors": 0, "warnings": 0, "problems": [], "error": None}
    (repo.root / "evals" / "test_config.json").write_text('{"criteria": {"response_match_scor": 0.5}}')
    found = document(repo, "validate", code=2)
    (problem,) = found["problems"]
    assert (found["errors"], problem["path"], problem["line"]) == (1, "evals/test_config.json", 1)
    assert problem["hint"] == "did you mean `response_match_score`?"
    (repo.root / "agent-eval.yaml").write_text("agent: [")
    assert document(repo, "validate", code=2)["errors"] == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "nowhere.json"), "it is not clear what to run"),
        (("run", "--no-such-flag"), "there is no option --no-such-flag"),
        (("compare", "nothing", "nothing"), "nothing"),
        (("baseline", "show"), "there is no baseline"),
        (("explain", "c"), "there is no case 'c'"),
    ],
)
def test_an_error_is_json_as_well(repo: Repo, words: tuple[str, ...], message: str) -> None:
    error = document(repo, *words, code=2)["error"]
    assert message in error["message"]
    assert error["exit_code"] == 2
    assert set(error) == {"message", "hint", "problems", "exit_code"}


def test_without_it_stdout_is_empty(repo: Repo) -> None:
    assert agent_eval("run", cwd=repo.root).stdout == ""
    assert agent_eval("validate", "-q", cwd=repo.root).stderr == ""


def started(repo: Repo, *words: str, **streams: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([COMMAND, *words], cwd=repo.root, **streams)


@pytest.mark.parametrize(
    "words", [("list", "--json"), ("list",), ("validate", "--json"), ("run", "--json"), ("--help",)]
)
def test_a_full_disk_behind_stdout_is_an_error_and_no_defect(repo: Repo, words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        process = started(repo, *words, stdout=full, stderr=subprocess.PIPE)
        _, said = process.communicate()
        assert process.returncode == 3, said
        assert b"No space left on device" in said
        assert b"Traceback" not in said
        nowhere = started(repo, *words, stdout=full, stderr=full)
        assert nowhere.wait() == 3


def test_a_reader_that_leaves_changes_no_verdict(repo: Repo) -> None:
    process = started(repo, "run", "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, said = process.communicate()
    assert process.returncode == 1, said


def test_closed_streams_are_no_defect(repo: Repo) -> None:
    command = f'"{COMMAND}" list >&- 2>&-'
    assert subprocess.run(["sh", "-c", command], cwd=repo.root, check=False).returncode == 0
