"""``agent-eval run`` as a step on a pull request: its comment, what is taken out of it, and its verdict."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from agent_eval_action.ci.comment import read_marker
from support.command import agent_eval
from support.repositories import commit_all

CARD = "4111 1111 1111 1111"
SAID = "Zebrafink"
FORGED = '<!-- agent-eval-action:comment {"key":"forged","run":999} -->'
HEAD = "b" * 40


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Two recorded cases: one as expected, one in which the agent says what must not be shown."""
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot" / "agent.py").write_text("root_agent = None\n")
    (tmp_path / "recording").mkdir()
    said = {"good": "a harmless answer", "bad": f"{SAID} has card {CARD} {'x' * 700} {CARD}\n{FORGED}"}
    cases, lines = [], []
    for name, answer in said.items():
        user = {"role": "user", "parts": [{"text": f"what of {name}, {SAID} {CARD}?"}]}
        expected = {"user_content": user, "final_response": {"parts": [{"text": "a harmless answer"}]}}
        cases.append({"eval_id": name, "conversation": [expected]})
        call = {"function_call": {"name": "pay", "args": {"card": CARD, SAID: [CARD]}}}
        turn = {
            "user_content": user,
            "final_response": {"role": "model", "parts": [{"text": answer}]},
            "intermediate_data": {"invocation_events": [{"author": "bot", "content": {"parts": [call]}}]},
        }
        done = {"agent": "bot", "eval_set": "s", "case": name, "repeat": 0, "case_digest": "x", "turns": [turn]}
        lines.append(json.dumps(done))
    (tmp_path / "s.evalset.json").write_text(json.dumps({"eval_set_id": "s", "eval_cases": cases}))
    (tmp_path / "test_config.json").write_text(json.dumps({"criteria": {"response_match_score": 0.9}}))
    (tmp_path / "recording" / "attempts.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "agent-eval.yaml").write_text("agent: bot\nevals: s.evalset.json\nrecording: recording\n")
    return tmp_path


def event(project: Path, fork: bool = False) -> Path:
    ours = {"id": 1001, "full_name": "org/repo"}
    theirs = {"id": 2002, "full_name": "ann/repo"} if fork else ours
    pull = {
        "number": 7,
        "head": {"sha": HEAD, "ref": "topic", "repo": theirs},
        "base": {"sha": commit_all(project), "repo": ours},
    }
    path = project / "event.json"
    path.write_text(json.dumps({"pull_request": pull, "repository": ours, "sender": {"login": "ann"}}))
    return path


def step(server, project: Path, *, fork: bool = False, **inputs: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("INPUT_", "GITHUB_"))}
    environ = (
        clean
        | server.environ
        | {
            "GITHUB_ACTIONS": "true",
            "CI": "true",
            "GITHUB_EVENT_NAME": "pull_request",
            "GITHUB_EVENT_PATH": str(event(project, fork)),
            "GITHUB_REPOSITORY": "org/repo",
            "GITHUB_WORKFLOW": "eval",
            "GITHUB_JOB": "run",
            "GITHUB_RUN_ID": "70",
            "GITHUB_RUN_NUMBER": "7",
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_STEP_SUMMARY": str(project / "summary"),
            "GITHUB_OUTPUT": str(project / "output"),
            "INPUT_BASELINE-STORE": "file",
            "INPUT_GITHUB-TOKEN": server.token,
            "INPUT_MATRIX": '{"python": "3.12", "os": "linux"}',
        }
    )
    environ |= {f"INPUT_{name.upper().replace('_', '-')}": value for name, value in inputs.items()}
    return agent_eval("run", cwd=project, env=environ)


def comment(server) -> tuple[str, str]:
    """Key and text of the only comment."""
    (made,) = server.comments(7)
    marker = read_marker(made["body"])
    assert marker is not None
    assert marker.sha == HEAD
    assert (marker.run, marker.run_id, marker.outcome) == (7, 70, "fail")
    assert made["body"].count("<!-- agent-eval-action") == 1
    return marker.key, made["body"].split("\n", 2)[2]


def kept_files(project: Path) -> dict[str, str]:
    """Everything the run left, but what it was given."""
    given = {"s.evalset.json", "recording/attempts.jsonl", "event.json"}
    made = (path for path in project.rglob("*") if path.is_file() and ".git" not in path.parts)
    files = {str(path.relative_to(project)): path for path in made}
    return {name: path.read_text(errors="replace") for name, path in files.items() if name not in given}


def test_a_failing_run_says_so_on_its_pull_request(server, project):
    ran = step(server, project)
    assert ran.returncode == 1, ran.stderr
    key, text = comment(server)
    assert key == "eval / run (linux, 3.12)"
    assert text.startswith("## ❌ linux, 3.12 · Blocked: ")
    assert SAID in text
    assert "https://github.example/org/repo/actions/runs/70" in text
    log = [line for line in (ran.stdout + ran.stderr).splitlines() if not line.startswith("::add-mask::")]
    assert server.token not in "\n".join([*log, *kept_files(project).values()])


def test_a_second_run_edits_the_same_comment(server, project):
    step(server, project)
    step(server, project)
    comment(server)


def test_scores_alone_are_names_and_numbers(server, project):
    step(server, project, comment_detail="scores")
    _, text = comment(server)
    assert SAID not in text
    assert CARD not in text
    assert "harmless" not in text
    assert SAID not in kept_files(project)[".agent-eval/out/comment.md"]
    assert "<code>bad</code>" in text
    assert "response_match_score" in text


def test_what_is_redacted_is_in_nothing_that_is_kept_shown_or_posted(server, project):
    ran = step(server, project, redact=f"\\d{{4}} \\d{{4}} \\d{{4}} \\d{{4}}\n(?i){SAID}")
    assert ran.returncode == 1
    files = kept_files(project)
    assert {".agent-eval/out/results.json", ".agent-eval/out/attempts.jsonl", "summary"} <= files.keys()
    _, text = comment(server)
    for where, held in {**files, "comment": text, "stdout": ran.stdout, "stderr": ran.stderr}.items():
        assert CARD not in held, where
        assert SAID not in held, where
    assert "[redacted]" in files[".agent-eval/out/attempts.jsonl"]
    assert "[redacted]" in text


def test_scores_are_those_of_what_was_said(server, project):
    """The pattern fits half of the answer that is right: it is scored before it is redacted."""
    step(server, project, redact="harmless")
    _, text = comment(server)
    assert "1 of 2 cases misses its threshold" in text or "1 of 2 cases got worse" in text


def test_a_pattern_that_is_none_stops_the_run_before_it_begins(server, project):
    ran = step(server, project, redact="(")
    assert ran.returncode == 2
    assert "INPUT_REDACT" in ran.stderr
    assert server.said() == []


@pytest.mark.parametrize("fork", [False, True])
def test_a_token_that_may_not_comment_changes_no_verdict(server, project, fork):
    server.put(tokens={"reader": {"comments": "read"}})
    ran = step(server, project, fork=fork, github_token="reader")  # noqa: S106 - of the local server
    assert ran.returncode == 1
    assert "pull-requests: write" in ran.stderr
    warned = [line for line in ran.stderr.splitlines() if line.startswith("::warning") and "comment" in line]
    assert bool(warned) is not fork
    assert server.comments(7) == []


def test_off_and_outside_of_pull_requests_nobody_is_asked(server, project):
    step(server, project, comment="off")
    assert server.said() == []
