"""``agent-eval explain``: what files, main, the last run and accept.yaml say of one case."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.formats import parse_selector
from integration.cli.test_weakened_change import UPDATE, Repo, case
from support.command import agent_eval


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """Main, on which case ``b`` fails, with one case to a line as people and tools write it."""
    made = Repo(tmp_path)
    made.rules("warn")
    (tmp_path / ".gitignore").write_text(".agent-eval/*\n!.agent-eval/accept.yaml\n")
    write(made, case("a"), case("b"))
    made.commit("main")
    return made


def write(repo: Repo, *cases: dict[str, Any], name: str = "s") -> None:
    lines = ",\n".join(json.dumps(one) for one in cases)
    file = repo.root / "evals" / f"{name}.evalset.json"
    file.write_text(f'{{"eval_set_id": "{name}",\n"eval_cases": [\n{lines}\n]}}\n')


def explained(repo: Repo, *words: str) -> dict[str, Any]:
    done = agent_eval("explain", *words, "--json", cwd=repo.root)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_before_any_run_its_definition_is_known(repo: Repo) -> None:
    found = explained(repo, "b")
    assert (found["agent"], found["eval_set"], found["line"], found["turns"]) == ("bot", "evals/s", 4, 1)
    (criterion,) = found["criteria"]
    assert (criterion["criterion"], criterion["threshold"]) == ("response_match_score", 0.8)
    assert criterion["where"] == "evals/test_config.json:1"
    assert (criterion["main"], criterion["last_run"], found["last_run"]) == (None, None, None)
    assert found["commands"] == {"run": "agent-eval run evals/s.evalset.json:b"}


def test_after_runs_it_says_history_outcome_and_what_would_let_it_pass(repo: Repo) -> None:
    repo.run()
    agent_eval(*UPDATE, cwd=repo.root)
    repo.run()
    (criterion,) = explained(repo, "b")["criteria"]
    last = criterion["last_run"]
    assert criterion["main"] == {"runs": 1, "attempts": 1, "mean": 0, "low": 0, "high": 0, "met": 0, "flaky": False}
    assert (last["mean"], last["short"], last["blocks"]) == (
        0,
        0.8,
        True,
    )
    found = explained(repo, "b")
    assert found["outcomes"] == "f"
    assert found["last_run"]["blocks"]
    assert found["last_run"]["first_difference"]
    assert any("threshold 0.80 of `response_match_score`" in line for line in found["last_run"]["to_pass"])
    assert found["commands"]["update"] == "agent-eval update --case=b"
    assert found["commands"]["accept"] == "agent-eval accept --reason '…' b"
    good = explained(repo, "a")
    assert list(good["commands"]) == ["run"]
    assert (good["last_run"]["blocks"], good["last_run"]["to_pass"]) == (False, [])
    shown = agent_eval("explain", "b", cwd=repo.root).stdout
    assert "0.00, 0.8 short" in shown
    assert "0.00 in 1 run, met by 0 of 1 attempt" in shown


def test_the_commit_that_changed_the_case_itself_is_named(repo: Repo) -> None:
    first = {**case("a"), "creation_timestamp": 5.0}
    write(repo, first, case("b"))
    repo.git("commit", "-qam", "Ask a anew")
    write(repo, first, {**case("b"), "creation_timestamp": 7.0})
    repo.git("commit", "-qam", "Ask b anew")
    assert explained(repo, "b")["edited"]["what"] == "Ask b anew"
    assert explained(repo, "a")["edited"]["what"] == "Ask a anew"


def test_what_accept_yaml_says_of_it(repo: Repo) -> None:
    held = {"case": "b", "reason": "down", "owner": "jane", "until": "2020-01-31"}
    file = repo.root / ".agent-eval" / "accept.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps([held, {"case": "b", "reason": "shorter"}, {"case": "a", "reason": "no"}]))
    found = explained(repo, "b")
    assert found["quarantine"] == {**held, "overdue": "yes"}
    assert [entry["reason"] for entry in found["accepted"]] == ["shorter"]
    assert "was quarantined until 2020-01-31 (owner jane): down" in agent_eval("explain", "b", cwd=repo.root).stdout


def test_a_name_of_several_cases_or_of_none_is_an_error_that_helps(repo: Repo) -> None:
    write(repo, case("b"), case("refund_order"), name="t")
    done = agent_eval("explain", "b", cwd=repo.root)
    assert done.returncode == 2
    assert "2 cases are called 'b': bot / evals/s, bot / evals/t" in done.stderr
    assert "--agent bot --eval-set evals/s" in done.stderr
    assert explained(repo, "b", "--eval-set", "evals/t")["path"] == "evals/t.evalset.json"
    repo.run()
    assert "--eval-set evals/t" in explained(repo, "b", "--eval-set", "evals/t")["commands"]["accept"]
    assert "did you mean `refund_order`?" in agent_eval("explain", "refund_oder", cwd=repo.root).stderr
    wrong = agent_eval("explain", "a", "--eval-set", "evals/t", cwd=repo.root)
    assert (wrong.returncode, "it is in bot / evals/s" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("name", ["::set-output name=a::b", "a\x1b[31mb", "-x", "a\u202eb", "q" * 10_000])
def test_a_hostile_name_commands_nothing(repo: Repo, name: str) -> None:
    write(repo, case(name))
    done = agent_eval("explain", "--", name, cwd=repo.root, env={"GITHUB_ACTIONS": "true"})
    assert done.returncode == 0, done.stderr
    assert not {"\x1b", "\u202e"} & set(done.stdout)
    assert not any(line.startswith("::") for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    "name", ['it\'s "so"', "a\x1b[31mb", "two  blanks\tand\nlines", "a\u202eb,c", "##[x]::y", "$(id)"]
)
def test_its_commands_are_typed_as_they_are_printed(repo: Repo, name: str) -> None:
    write(repo, case("z"), case(name))
    repo.run()
    found = explained(repo, name)["commands"]
    shown = agent_eval("explain", "--", name, cwd=repo.root).stdout
    assert set(found) == {"run", "update", "accept", "quarantine"}
    for command in found.values():
        assert f"\n  {command}\n" in shown
        script = f"set -- {command}; printf '%s\\0' \"$@\""
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        words = done.stdout.split("\0")[:-1]
        assert [word for word in words if name in word or parse_selector(word).case_ids == (name,)]
