"""The command with the branch store, in the checkouts and environments of a repository's CI."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from support import command
from support.messages import notes
from support.repositories import fingerprint, run_git

DATA = "refs/heads/agent-eval-data"
CASES = {"a": "you rolled 5", "b": "hello there"}


def turn(answer: str, key: str) -> dict:
    content = {"user_content": {"role": "user", "parts": [{"text": "roll"}]}}
    return content | {key: {"role": "model", "parts": [{"text": answer}]}}


def write_repository(folder: Path, answers: dict[str, str]) -> None:
    """A repository whose agent is a recording."""
    (folder / "bot").mkdir(exist_ok=True)
    (folder / "bot" / "agent.py").write_text("root_agent = None\n")
    (folder / ".gitignore").write_text(".agent-eval/*\n!.agent-eval/accept.yaml\n")
    (folder / "agent-eval.yaml").write_text("agent: bot\nevals: s.evalset.json\nrecording: recording\n")
    (folder / "test_config.json").write_text('{"criteria": {"response_match_score": 0.1}}')
    cases = [{"eval_id": name, "conversation": [turn(answer, "final_response")]} for name, answer in CASES.items()]
    (folder / "s.evalset.json").write_text(json.dumps({"eval_set_id": "s", "eval_cases": cases}))
    (folder / "recording").mkdir(exist_ok=True)
    lines = [
        {"agent": "bot", "eval_set": "s", "case": name, "repeat": 0, "case_digest": "x"}
        | {"turns": [turn(answer, "final_response")]}
        for name, answer in answers.items()
    ]
    (folder / "recording" / "attempts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def agent_eval(work: Path, *args: str, **github: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("INPUT_", "GITHUB_", "GIT_"))}
    return command.agent_eval(*args, cwd=work, env=clean | github)


def github(tmp_path: Path, work: Path, name: str, payload: dict, **more: str) -> dict[str, str]:
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps({"repository": {"default_branch": "main"}, **payload}))
    given = {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": name, "GITHUB_EVENT_PATH": str(path)}
    return given | {"GITHUB_WORKSPACE": str(work), "GITHUB_SHA": run_git(work, "rev-parse", "HEAD")} | more


@pytest.fixture
def shas(origin):
    """Main, and a pull request that makes case ``a`` worse, merged onto it."""
    write_repository(origin.seed, CASES)
    main = origin.commit("main")
    write_repository(origin.seed, {**CASES, "a": "I would rather not"})
    head = origin.commit("worse", branch="feature")
    run_git(origin.seed, "checkout", "--quiet", "--detach", main)
    merge = origin.merge(main, head, "refs/pull/7/merge")
    return main, head, merge


def test_main_records_and_a_pull_request_is_compared_with_it(origin, shas, tmp_path):
    main, head, _ = shas
    work = origin.clone("main", "--depth=1", ref="refs/heads/main")
    git_before = fingerprint(work / ".git")
    done = agent_eval(work, "run", **github(tmp_path, work, "push", {}, GITHUB_REF="refs/heads/main"))
    assert done.returncode == 0, done.stderr
    assert "one record added to agent-eval-data of origin" in done.stderr
    assert fingerprint(work / ".git") == git_before
    assert run_git(origin.path, "rev-list", "--count", DATA) == "1"

    pull = {"pull_request": {"base": {"sha": main, "repo": {"id": 1}}, "head": {"sha": head, "repo": {"id": 1}}}}
    work = origin.clone("pull", "--depth=1", ref="refs/pull/7/merge")
    env = github(tmp_path, work, "pull_request", pull, GITHUB_REF="refs/pull/7/merge", GITHUB_BASE_REF="main")
    done = agent_eval(work, "run", **env)
    assert done.returncode != 0, done.stderr
    assert "not merged is never recorded" in done.stderr
    decision = json.loads((work / ".agent-eval/out/results.json").read_text())["decision"]
    assert decision["baseline"]["commit"] == main
    assert decision["baseline"]["path"] == "branch agent-eval-data"
    worse = {pair["case"]: pair["change"] for pair in decision["pairs"]}
    assert worse["a"] < 0
    assert worse["b"] == 0
    assert run_git(origin.path, "rev-list", "--count", DATA) == "1"

    listed = agent_eval(work, "baseline", "history", **env)
    assert listed.returncode == 0, listed.stderr
    assert main[:10] in listed.stdout
    assert "1 run of main at or before the merge commit's first parent" in listed.stdout

    missed = agent_eval(work, "accept", "aa", "--reason", "x", **env)
    assert missed.returncode == 2
    assert "there is no case 'aa'" in missed.stderr
    accepted = agent_eval(
        work, "accept", "a", "--criterion", "response_match_score", "--reason", "it may refuse", **env
    )
    assert accepted.returncode == 0, accepted.stderr
    assert (
        (work / ".agent-eval" / "accept.yaml")
        .read_text()
        .endswith('- case: "a"\n  criterion: "response_match_score"\n  reason: "it may refuse"\n')
    )
    shown = agent_eval(work, "baseline", "show", **env)
    rows = [line.split()[2] for line in shown.stdout.splitlines() if line.startswith("bot ")]
    assert rows == ["b"], "the accepted pair has no history any more"


def test_a_file_that_a_pull_request_adds_does_not_take_the_place_of_the_branch(origin, shas, tmp_path):
    main, head, _ = shas
    work = origin.clone("main", "--depth=1", ref="refs/heads/main")
    agent_eval(work, "run", **github(tmp_path, work, "push", {}, GITHUB_REF="refs/heads/main"))
    work = origin.clone("pull", ref="refs/pull/7/merge")
    assert agent_eval(work, "baseline", "update", "--repeats", "1", "--baseline-store", "file").returncode == 0
    pull = {"pull_request": {"base": {"sha": main, "repo": {"id": 1}}, "head": {"sha": head, "repo": {"id": 1}}}}
    env = github(tmp_path, work, "pull_request", pull, GITHUB_REF="refs/pull/7/merge", GITHUB_BASE_REF="main")
    done = agent_eval(work, "run", **env)
    decision = json.loads((work / ".agent-eval/out/results.json").read_text())["decision"]
    assert done.returncode != 0, done.stderr
    assert decision["baseline"]["path"] == "branch agent-eval-data"
    assert any("baseline.json that this change adds is not used" in note for note in notes(decision))


@pytest.mark.usefixtures("shas")
def test_a_wrong_accept_file_stops_the_run_with_its_line(origin):
    work = origin.clone("laptop")
    (work / ".agent-eval").mkdir()
    (work / ".agent-eval" / "accept.yaml").write_text("- case: a\n  reasn: x\n")
    done = agent_eval(work, "run")
    assert done.returncode == 2
    assert "accept.yaml:2" in done.stderr
    assert "did you mean `reason`?" in done.stderr
    (work / ".agent-eval" / "accept.yaml").write_text("- case: smalltalkk\n  reason: x\n- case: a\n  reason: y\n")
    done = agent_eval(work, "run")
    assert done.returncode == 0, done.stderr
    assert "accept.yaml:1: accepts a change of nothing: there is no case 'smalltalkk'" in done.stderr
    assert "accept.yaml:3" not in done.stderr


@pytest.mark.usefixtures("shas")
def test_outside_of_github_the_file_is_the_store(origin):
    work = origin.clone("laptop")
    done = agent_eval(work, "run")
    assert done.returncode == 0, done.stderr
    assert "agent-eval-data" not in done.stderr
    assert agent_eval(work, "baseline", "update", "--baseline-store", "branch").returncode == 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The same outside of any repository."""
    write_repository(tmp_path, CASES)
    return tmp_path


@pytest.mark.parametrize(
    ("store", "words"), [("file", "agent-eval baseline update"), ("branch", "next run on the main branch")]
)
@pytest.mark.parametrize("command", [["baseline", "show"], ["baseline", "history"], ["simulate"]])
def test_where_there_is_no_history_it_is_said_how_one_begins(folder, command, store, words):
    with (folder / "agent-eval.yaml").open("a", encoding="utf-8") as file:
        file.write(f"baseline:\n  store: {store}\n")
    done = agent_eval(folder, *command)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert store == "file" or "baseline update" not in done.stderr


def test_a_hostile_baseline_writes_nothing_to_the_terminal_but_text(folder):
    agent_eval(folder, "baseline", "update", "--repeats", "1")
    path = folder / ".agent-eval" / "baseline.json"
    value = json.loads(path.read_text())
    value |= {"commit": "\x1b[2J", "created_at": "\x1b[31mnever\n::error::x"}
    path.write_text(json.dumps(value))
    for words in (["baseline", "show"], ["baseline", "history"], ["compare", str(path), str(path)], ["simulate"]):
        done = agent_eval(folder, *words, "--runs", "1") if words == ["simulate"] else agent_eval(folder, *words)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        assert "\x1b" not in said
        assert "\n::" not in said


def test_a_side_that_is_not_there_is_named_with_what_can_be_given(folder):
    done = agent_eval(folder, "compare", "nowhere", "nowhere")
    assert done.returncode == 2
    assert "there is nothing at nowhere" in done.stderr
    assert "results.json, baseline.json" in done.stderr
