"""Judges' answers that are kept: a second run asks nothing, a run that writes history asks everything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.repositories import run_git

from .conftest import Judged, case

VOTES = 9


@pytest.fixture
def recorded(judged: Judged) -> Judged:
    """A run of three cases whose answers lie in ``recording``; three votes each."""
    judged.cases(case("rome", "Rome"), case("oslo", "Oslo"), case("lima", "Lima"))
    done = judged.run()
    assert done.code == 0, done.said
    assert judged.model.asked["match"] == VOTES
    done.out.rename(judged.root / "recording")
    judged.forget()
    return judged


REPLAY = ("--recording", "recording")


@pytest.mark.exhaustive
def test_recorded_answers_are_judged_without_a_call(recorded: Judged) -> None:
    done = recorded.run(*REPLAY)
    assert done.code == 0, done.said
    assert recorded.server.seen.calls == 0
    assert done.uses()["final_response_match_v2"]["cached"] == VOTES
    assert f"{VOTES} more from the cache" in done.comment


def test_without_the_cache_all_is_asked_again(recorded: Judged) -> None:
    done = recorded.run(*REPLAY, "--no-cache")
    assert done.code == 0, done.said
    assert recorded.model.asked == {"match": VOTES}
    assert done.uses()["final_response_match_v2"]["cached"] == 0


@pytest.mark.exhaustive
def test_another_judge_or_prompt_is_another_question(recorded: Judged) -> None:
    warmer = {"judge_model_config": {"temperature": 0.5}}
    recorded.criteria({"final_response_match_v2": {"threshold": 0.8, "judge_model_options": warmer}})
    assert recorded.run(*REPLAY).code == 0
    assert recorded.model.asked == {"match": VOTES}


@pytest.mark.exhaustive
def test_damaged_answers_are_asked_for_again(recorded: Judged) -> None:
    kept = [path for path in (recorded.root / ".agent-eval" / "cache" / "llm").rglob("*") if path.is_file()]
    assert len(kept) >= VOTES
    for path in kept:
        assert path.stat().st_mode & 0o077 == 0
        path.write_bytes(path.read_bytes()[:-7])
    assert recorded.run(*REPLAY).code == 0
    assert recorded.model.asked == {"match": VOTES}


@pytest.mark.exhaustive
def test_a_baseline_is_made_of_new_votes(recorded: Judged) -> None:
    done = recorded.command("baseline", "update", *REPLAY, "--repeats", "1")
    assert done.code == 0, done.said
    assert recorded.model.asked == {"match": VOTES}


@pytest.mark.exhaustive
def test_a_record_of_main_is_made_of_new_votes(recorded: Judged, tmp_path: Path) -> None:
    root, origin = recorded.root, tmp_path / "origin.git"
    (root / ".gitignore").write_text(".agent-eval/\n")
    recorded.configure(baseline={"store": "branch"}, recording="recording")
    run_git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", str(origin))
    run_git(root, "init", "--quiet", "--initial-branch=main")
    run_git(root, "add", "-A")
    run_git(root, "commit", "--quiet", "-m", "main")
    run_git(root, "remote", "add", "origin", f"file://{origin}")
    run_git(root, "push", "--quiet", "origin", "HEAD:refs/heads/main")
    event = tmp_path / "push.json"
    event.write_text(json.dumps({"repository": {"default_branch": "main"}}))
    recorded.environ |= {
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_NAME": "push",
        "GITHUB_EVENT_PATH": str(event),
        "GITHUB_REF": "refs/heads/main",
        "GITHUB_WORKSPACE": str(root),
        "GITHUB_SHA": run_git(root, "rev-parse", "HEAD"),
    }
    done = recorded.run()
    assert done.code == 0, done.said
    assert "one record added to agent-eval-data" in done.said
    assert recorded.model.asked == {"match": VOTES}


def test_a_cache_that_cannot_be_written_is_reported_once_and_done_without(judged: Judged) -> None:
    judged.cases(case("rome", "Rome"), case("oslo", "Oslo"))
    place = judged.root / ".agent-eval" / "cache"
    place.mkdir(parents=True)
    (place / "llm").write_text("a file where a folder should be")
    done = judged.run()
    assert done.code == 0, done.said
    assert judged.model.asked["match"] == 6
    assert done.said.count("judges' answers are not cached: Not a directory") == 1, done.said


@pytest.mark.exhaustive
def test_votes_on_an_attempt_that_is_made_again_are_new_ones(judged: Judged) -> None:
    """Repeats of a case are other questions, also where the agent says the same: else they would all agree."""
    done = judged.run("--repeats", "3")
    assert done.code == 0, done.said
    assert judged.model.asked["match"] == 3 * 3
    assert done.uses()["final_response_match_v2"]["cached"] == 0
