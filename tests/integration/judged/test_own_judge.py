"""A change that would judge itself, on a pull request in a real repository: main's rules are strict, and hold."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.messages import headline, notes, sentence
from support.repositories import commit_all, run_git

from .conftest import MATCH, Ended, Judged, case

PULL = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_EVENT_NAME": "pull_request",
    "GITHUB_BASE_REF": "main",
    "INPUT_COMMENT": "off",
}
METRIC = """
from google.adk.evaluation.evaluator import EvalStatus, EvaluationResult


def tone(eval_metric, actual_invocations, expected_invocations, conversation_scenario):
    return EvaluationResult(overall_score={score}, overall_eval_status=EvalStatus.PASSED)
"""


class PullRequest:
    """A repository whose main is strict, and a branch of it. ``main`` must be called before anything is changed."""

    def __init__(self, judged: Judged) -> None:
        self.judged, self.root = judged, judged.root
        judged.environ |= PULL
        judged.configure(strict=True)

    def main(self) -> None:
        commit_all(self.root)
        run_git(self.root, "checkout", "--quiet", "-b", "change")

    def run(self) -> Ended:
        commit_all(self.root)
        return self.judged.run()


@pytest.fixture
def change(judged: Judged) -> PullRequest:
    return PullRequest(judged)


def weakenings(ended: Ended) -> list[str]:
    return [sentence(one) for one in ended.results["decision"]["weakenings"]]


def assert_blocked(ended: Ended, *words: str) -> None:
    """Red, for this reason, which is said where people look."""
    assert ended.code == 1, ended.said
    found = weakenings(ended)
    for word in words:
        assert any(word in text for text in found), found


def test_a_change_of_nothing_that_judges_passes(change: PullRequest) -> None:
    change.main()
    ended = change.run()
    assert (ended.code, weakenings(ended)) == (0, []), ended.said


def test_a_recording_of_a_good_run(change: PullRequest) -> None:
    change.main()
    change.judged.run()
    shutil.copytree(change.root / ".agent-eval" / "out", change.root / "good")
    (change.root / "clerk" / "agent.py").write_text("root_agent = None\n")
    del change.judged.config["python"]
    change.judged.configure(recording="good")
    ended = change.run()
    assert ended.code == 2, ended.said
    assert "a recording is no answer of the agent to be merged" in ended.said


@pytest.mark.exhaustive
def test_the_folder_of_a_copy_of_the_old_agent(change: PullRequest) -> None:
    change.main()
    shutil.copytree(change.root / "clerk", change.root / "old" / "clerk")
    (change.root / "clerk" / "agent.py").write_text("root_agent = None\n")
    change.judged.configure(agent="old/clerk")
    assert_blocked(change.run(), "its folder is now `old/clerk` (was `clerk`)")


@pytest.mark.exhaustive
def test_a_variable_that_only_the_evaluation_has(change: PullRequest) -> None:
    change.main()
    change.judged.configure(env={"BE_GOOD": "yes"})
    assert_blocked(change.run(), "its variable `BE_GOOD` is now `yes` (was not set)")


@pytest.mark.exhaustive
def test_the_body_of_a_metric(change: PullRequest) -> None:
    (change.root / "clerk" / "metrics.py").write_text(METRIC.format(score=0.2))
    change.judged.criteria({"tone": 0.5}, custom_metrics={"tone": {"code_config": {"name": "clerk.metrics.tone"}}})
    change.main()
    (change.root / "clerk" / "metrics.py").write_text(METRIC.format(score=1.0))
    ended = change.run()
    assert ended.score("rome", "tone")["score"] == 0.2, ended.said
    assert_blocked(ended, "the metric function `clerk.metrics.tone` (clerk/metrics.py) was edited")


@pytest.mark.exhaustive
def test_a_metric_that_the_change_adds_is_measured_and_blocks_nothing(change: PullRequest) -> None:
    change.main()
    (change.root / "clerk" / "metrics.py").write_text(METRIC.format(score=0.2))
    change.judged.criteria(
        {**MATCH, "tone": 0.5}, custom_metrics={"tone": {"code_config": {"name": "clerk.metrics.tone"}}}
    )
    ended = change.run()
    assert ended.score("rome", "tone")["score"] == 0.2, ended.said
    assert (ended.code, weakenings(ended)) == (0, []), ended.said


def test_a_metric_that_the_change_adds_runs_beside_those_of_main(change: PullRequest) -> None:
    """What main has is main's under any name; only what it lacks comes from the change."""
    tone = {"code_config": {"name": "clerk.metrics.tone"}}
    (change.root / "clerk" / "metrics.py").write_text(METRIC.format(score=0.2))
    change.judged.criteria({"tone": 0.1}, custom_metrics={"tone": tone})
    change.main()
    edited = METRIC.format(score=1.0)
    (change.root / "clerk" / "metrics.py").write_text(edited + edited.replace("def tone", "def manners"))
    change.judged.criteria(
        {"tone": 0.1, "same": 0.1, "manners": 0.1},
        custom_metrics={"tone": tone, "same": tone, "manners": {"code_config": {"name": "clerk.metrics.manners"}}},
    )
    ended = change.run()
    scores = {name: ended.score("rome", name)["score"] for name in ("tone", "same", "manners")}
    assert scores == {"tone": 0.2, "same": 0.2, "manners": 1.0}, ended.said


@pytest.mark.exhaustive
def test_another_judge_and_fewer_samples(change: PullRequest) -> None:
    change.main()
    options = {"judge_model": "gemini-always-yes", "num_samples": 1}
    change.judged.criteria({"final_response_match_v2": {"threshold": 0.8, "judge_model_options": options}})
    ended = change.run()
    assert_blocked(ended, "num_samples 5 → 1", "judge_model gemini-2.5-flash → gemini-always-yes")
    uses = {use["model"] for use in ended.results["totals"]["uses"]}
    assert "gemini-always-yes" not in uses


@pytest.fixture
def eavesdropper() -> Iterator[tuple[str, list[str]]]:
    """A server that writes down that somebody came."""
    server = socket.create_server(("127.0.0.1", 0))
    came: list[str] = []

    def listen() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            came.append("somebody")
            with connection:  # an answer that google-genai does not ask for again, as it does after a reset
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    thread = threading.Thread(target=listen)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}", came
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def test_the_key_is_never_sent_where_the_change_says(change: PullRequest, eavesdropper: tuple[str, list[str]]) -> None:
    url, came = eavesdropper
    change.judged.criteria(
        {"final_response_match_v2": {"threshold": 0.8, "judge_model_options": {"judge_model": "openai/judge"}}}
    )
    change.judged.environ["OPENAI_API_KEY"] = "sk-secret"
    quiet = {"retry_deadline": "1s", "timeout_s": "1s", "openai_base_url": "http://127.0.0.1:9/v1"}
    change.judged.configure(llm=quiet)
    change.main()
    change.judged.configure(llm={**quiet, "openai_base_url": f"{url}/v1"})
    ended = change.run()
    assert_blocked(ended, f"llm.openai_base_url http://127.0.0.1:9/v1 → {url}/v1")
    assert came == []


def test_an_env_file_of_the_change_says_nothing_about_judges(
    change: PullRequest, eavesdropper: tuple[str, list[str]]
) -> None:
    url, _ = eavesdropper
    change.main()
    del change.judged.environ["GOOGLE_API_KEY"], change.judged.environ["GOOGLE_GEMINI_BASE_URL"]
    (change.root / ".env").write_text(f"GOOGLE_API_KEY=anything\nGOOGLE_GEMINI_BASE_URL={url}\n")
    change.judged.configure(agent={"path": "clerk", "driver": "adk"})
    ended = change.run()
    assert ended.code in (1, 3), ended.said
    assert not [use for use in ended.results["totals"]["uses"] if use["purpose"] == "final_response_match_v2"]


@pytest.mark.exhaustive
def test_answers_of_judges_that_the_change_keeps_elsewhere(change: PullRequest) -> None:
    change.main()
    change.judged.configure(cache_dir="kept")
    ended = change.run()
    assert_blocked(ended, "cache_dir .agent-eval/cache → kept")
    assert not (change.root / "kept").exists()
    assert (change.root / ".agent-eval" / "cache" / "llm").exists()


@pytest.mark.parametrize("cache_dir", [None, "elsewhere"])
def test_answers_of_judges_that_are_committed_are_refused(change: PullRequest, cache_dir: str | None) -> None:
    change.main()
    if cache_dir:  # so that only the cache in force, which is main's, is filled
        change.judged.configure(cache_dir=cache_dir)
    kept = change.root / ".agent-eval" / "cache" / "llm"
    kept.mkdir(parents=True)
    (kept / "answers.jsonl").write_text("{}\n")
    run_git(change.root, "add", "--force", str(kept))
    ended = change.run()
    assert ended.code == 2, ended.said
    assert ".agent-eval/cache" in ended.said
    assert not change.judged.model.asked


@pytest.mark.exhaustive
def test_limits_and_policy_of_the_change_wait_for_the_merge(change: PullRequest) -> None:
    change.main()
    change.judged.configure(strict=False, gate={"max_drop": 0.5, "fail_on": "never"}, max_calls=1)
    ended = change.run()
    assert_blocked(
        ended,
        "gate.max_drop 0.05 → 0.5",
        "gate.fail_on inconclusive → never",
        "gate.on_weakened fail → warn",
        "gate.new_cases block → advise",
    )
    assert all(text.endswith("takes effect with the merge") for text in weakenings(ended))
    said = notes(ended.results["decision"])
    assert any(note.startswith("max_calls not set → 1") for note in said), said


def test_a_broken_configuration_on_main_is_inconclusive(change: PullRequest) -> None:
    path: Path = change.root / "agent-eval.yaml"
    good = path.read_text()
    path.write_text(json.dumps({"gate": {"max_drop": "a lot"}}))
    change.main()
    path.write_text(good)
    ended = change.run()
    assert ended.code == 3, ended.said
    assert "cannot be used" in headline(ended.results["decision"])
    assert "repair it on the base branch first" in headline(ended.results["decision"])


def test_what_an_agent_writes_into_eval_files_comes_too_late(change: PullRequest) -> None:
    """It runs as our user here, and writes as soon as its interpreter is looked at, while a long file is read."""
    judged = change.judged
    judged.criteria({"response_match_score": 0.9})
    wrong = case("last")
    wrong["conversation"][0]["final_response"]["parts"][0]["text"] = "No."
    long = case("long")
    long["conversation"][0]["intermediate_data"] = {"tool_uses": [{"name": "look_up", "args": {}}] * 10_000}
    last, right = change.root / "evals" / "z.evalset.json", change.root / "right.json"
    judged.cases(*({**long, "eval_id": f"long {number}"} for number in range(3)))
    for path, one in ((last, wrong), (right, case("last"))):
        path.write_text(json.dumps({"eval_set_id": "z", "eval_cases": [one]}))
    python = change.root / "python"
    python.write_text(f'#!/bin/sh\ncp "{right}" "{last}"\nexec "{judged.python}" "$@"\n')
    python.chmod(0o755)
    judged.configure(python=str(python))
    change.main()
    ended = judged.run("--case", "last")
    assert last.read_text() == right.read_text(), ended.said
    assert ended.score("last", "response_match_score")["score"] == 0, ended.said


@pytest.mark.exhaustive
def test_kept_answers_of_judges_are_not_read_where_the_change_could_have_written_them(change: PullRequest) -> None:
    asked = change.judged.model.asked
    change.main()
    for name in PULL:
        del change.judged.environ[name]
    for times in (3, 3):  # the second run on a laptop asks nothing
        change.judged.run()
        assert asked["match"] == times
    change.judged.environ |= PULL
    assert change.run().code == 0
    assert asked["match"] == 6
