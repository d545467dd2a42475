"""A quarantine on the way that users take it: written by the command, in a run of main and of a pull request."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from integration.cli.test_weakened_change import PULL, Repo
from support.command import agent_eval
from support.messages import notes, sentence

WORDS = ("accept", "--quarantine", "b", "--owner", "jane", "--reason", "the sandbox is down")


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """Main, on which case ``b`` fails; .agent-eval/accept.yaml can be committed."""
    made = Repo(tmp_path)
    made.rules("warn")
    (tmp_path / ".gitignore").write_text(".agent-eval/*\n!.agent-eval/accept.yaml\n")
    made.commit("main")
    return made


def quarantine(repo: Repo, *words: str) -> subprocess.CompletedProcess[str]:
    return agent_eval(*WORDS, *words, cwd=repo.root)


def test_a_run_passes_with_it_and_says_so(repo: Repo) -> None:
    assert repo.run()[0] == 1
    done = quarantine(repo, "--until", "9999-12-31")
    assert done.returncode == 0, done.stderr
    assert "quarantined until 9999-12-31: b" in done.stderr
    code, decision, said = repo.run()
    assert code == 0, said
    assert "quarantined until 9999-12-31 (owner jane): b" in said.replace("`", "")
    comment = (repo.root / ".agent-eval" / "out" / "comment.md").read_text()
    assert comment.index("🚧 quarantined until 9999-12-31") < comment.index("<details>")
    assert 'message="quarantined, does not block' in (repo.root / ".agent-eval" / "out" / "junit.xml").read_text()
    assert not any(pair["blocking"] for pair in decision["pairs"])


def test_a_pull_request_s_own_quarantine_is_a_weakening(repo: Repo) -> None:
    repo.commit("pr")
    quarantine(repo, "--until", "9999-12-31")
    repo.git("add", "-A")
    repo.git("commit", "-qm", "quarantine")
    code, decision, said = repo.run(**PULL)
    assert code == 0, said
    (found,) = decision["weakenings"]
    assert sentence(found) == "accept.yaml quarantines `b` until 9999-12-31 (owner jane): the sandbox is down"


def test_where_weakenings_block_it_blocks_until_it_is_on_the_base(repo: Repo) -> None:
    repo.rules("fail")
    repo.commit("main")
    repo.commit("pr")
    quarantine(repo, "--until", "9999-12-31")
    repo.git("add", "-A")
    repo.git("commit", "-qm", "quarantine")
    assert repo.run(**PULL)[0] == 1
    repo.git("checkout", "-q", "main")
    repo.git("merge", "-q", "pr")
    repo.git("checkout", "-qb", "next")
    code, decision, said = repo.run(**PULL)
    assert (code, decision["weakenings"]) == (0, []), said


def test_one_that_has_run_out_blocks_and_a_renewed_one_is_a_weakening(repo: Repo) -> None:
    entry: dict[str, Any] = {"case": "b", "reason": "x", "owner": "jane", "until": "2020-01-31"}
    file = repo.root / ".agent-eval" / "accept.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps([entry]))
    repo.commit("main")
    code, decision, said = repo.run()
    assert code == 1, said
    assert any("ran out on 2020-01-31 (owner jane), so it counts again" in note for note in notes(decision))
    repo.git("checkout", "-qb", "pr")
    file.write_text(json.dumps([{**entry, "until": "9999-12-31"}]))
    repo.commit("pr")
    code, decision, _ = repo.run(**PULL)
    assert (code, len(decision["weakenings"])) == (0, 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("accept", "--quarantine", "b", "--owner", "jane", "--reason", "x"),
            "needs --quarantine, --owner and --until",
        ),
        (("accept", "b", "--until", "2099-01-31", "--reason", "x"), "needs --quarantine, --owner and --until"),
        ((*WORDS, "--until", "2020-01-31"), "is over already"),
        ((*WORDS, "--until", "soon"), "must be a day: YYYY-MM-DD"),
        ((*WORDS, "--until", "2027-02-30"), "is no day of the calendar"),
        ((*WORDS, "--until", "2099-01-31", "--worse"), "--worse accepts changes"),
    ],
)
def test_what_is_missing_or_wrong_is_said(repo: Repo, words: tuple[str, ...], said: str) -> None:
    done = agent_eval(*words, cwd=repo.root)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (repo.root / ".agent-eval" / "accept.yaml").exists()
