"""The command over scenarios: a model plays the user of an agent in its worker; files are converted and refused."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.command import agent_eval
from support.gemini_server.client import RunningGemini, running

CLERK = Path(__file__).parents[1] / "scenarios" / "folders" / "clerk"
SCENARIO = {"starting_prompt": "Hello", "conversation_plan": "Ask how hot Rome is."}
RULES = [
    {
        "when": {"instruction": "You are the clerk", "user": "Rome", "after_tool": None},
        "reply": {"calls": [{"name": "look_up", "args": {"city": "Rome"}}]},
    },
    {"when": {"instruction": "You are the clerk", "user": "Rome"}, "reply": {"text": "{tool.degrees} degrees."}},
    {"when": {"instruction": "You are the clerk"}, "reply": {"text": "What is it? </finished>"}},
    {"when": {"instruction": "You play a person", "user": "31 degrees"}, "reply": {"text": "Thanks! </finished>"}},
    {"when": {"instruction": "You play a person"}, "reply": {"text": "How hot is Rome?"}},
]


class Repo:
    """A repository whose agent and whose user talk to one server."""

    def __init__(self, root: Path, python: Path, server: RunningGemini) -> None:
        self.root, self.server = root, server
        (root / "clerk").mkdir()
        for file in CLERK.glob("*.py"):
            (root / "clerk" / file.name).write_text(file.read_text())
        self.config = {"agent": "clerk", "python": str(python), "evals": "s.evalset.json", "reruns": "off"}
        self.configure(criteria={"tool_call_count_v1": {}})
        self.cases({"eval_id": "talk", "conversation_scenario": SCENARIO})

    def configure(self, **more: Any) -> None:
        self.config |= more
        (self.root / "agent-eval.yaml").write_text(json.dumps(self.config))

    def cases(self, *cases: dict[str, Any]) -> None:
        (self.root / "s.evalset.json").write_text(json.dumps({"eval_set_id": "s", "eval_cases": cases}))

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("INPUT_", "GITHUB_"))}
        return agent_eval(*words, cwd=self.root, env={**clean, **self.server.environ})

    def attempts(self) -> list[dict[str, Any]]:
        path = self.root / ".agent-eval" / "out" / "attempts.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def users_asked(self) -> int:
        return sum("You play a person" in json.dumps(one) for one in self.server.seen()["requests"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGemini]:
    """One for all tests, so that their agents are started alike."""
    script = tmp_path_factory.mktemp("server") / "rules.json"
    script.write_text(json.dumps({"rules": RULES}))
    with running(script) as started:
        yield started


@pytest.fixture
def repo(tmp_path: Path, adk213_python: Path, server: RunningGemini) -> Repo:
    server.configure(faults=[])
    server.reset()
    root = tmp_path / "repo"
    root.mkdir()
    return Repo(root, adk213_python, server)


def said(attempt: dict[str, Any]) -> list[str]:
    return [turn["user_content"]["parts"][0]["text"] for turn in attempt["turns"]]


def test_a_scenario_is_run_resumed_and_replayed(repo: Repo) -> None:
    done = repo("run")
    assert done.returncode == 0, done.stderr
    (attempt,) = repo.attempts()
    assert said(attempt) == ["Hello", "How hot is Rome?"]
    assert attempt["ended"] == "stop_signal"
    assert [score["score"] for score in attempt["scores"]] == [0.5]
    assert repo.users_asked() == 2
    repo.server.reset()
    assert repo("run", "--resume", ".agent-eval/out").returncode == 0
    (repo.root / ".agent-eval" / "out").rename(repo.root / "recording")
    replayed = repo("run", "--recording", "recording", "--driver", "recorded")
    assert replayed.returncode == 0, replayed.stderr
    assert said(repo.attempts()[0]) == ["Hello", "How hot is Rome?"]
    assert repo.server.seen()["calls"] == 0


@pytest.mark.exhaustive
def test_an_outage_of_the_users_model_is_inconclusive(repo: Repo) -> None:
    repo.configure(llm={"retry_deadline": "4s"})
    repo.server.configure(faults=[{"kind": "status", "code": 500, "user": "The conversation so far"}])
    done = repo("run", "--no-cache")
    assert done.returncode == 3, done.stderr
    (attempt,) = repo.attempts()
    assert attempt["error"]["kind"] == "user"
    assert repo.server.seen()["faults"]["status"] > 1
    assert "the simulated user could not go on" in " ".join(done.stderr.split())


def test_the_limit_of_turns_and_the_skipped_criterion_are_reported(repo: Repo) -> None:
    repo.configure(
        criteria={"tool_call_count_v1": {}, "response_match_score": 0.5},
        user_simulator={"max_allowed_invocations": 1},
    )
    done = repo("run", "--repeats", "2")
    assert done.stderr.count("response_match_score is not applicable to 1 case, and skipped there") == 1
    assert [(said(one), one["ended"]) for one in repo.attempts()] == [(["Hello"], "turn_limit")] * 2


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"criteria": {"response_match_score": 0.5}}, "none of its criteria (response_match_score) can score any"),
        ({"user_simulator": {"type": "llm_audio"}}, "llm_audio is known, but not in this version"),
        ({"user_simulator": {"max_allowed_invocation": 3}}, "did you mean `max_allowed_invocations`?"),
        ({"user_simulator": "nowhere.json"}, "names a file that does not exist"),
        ({"user_simulator": {"max_allowed_invocations": 0}}, "the user never says anything"),
        ({"user_simulator": {"custom_instructions": "Hi"}}, "needs the placeholder {{ stop_signal }}"),
    ],
)
def test_what_cannot_be_run_is_reported_before_anything_is_asked(repo: Repo, config: dict[str, Any], says: str) -> None:
    repo.configure(**config)
    for word in ("validate", "run"):
        done = repo(word)
        assert done.returncode == 2, done.stderr
        assert says in " ".join(done.stderr.split())
    assert repo.server.seen()["calls"] == 0


def test_the_user_may_stand_in_a_file_or_in_a_test_config(repo: Repo) -> None:
    (repo.root / "user.yaml").write_text("max_allowed_invocations: 0\n")
    (repo.root / "test_config.json").write_text('{"criteria": {}, "userSimulatorConfig": {"maxAllowedInvocations": 0}}')
    for name in ("user.yaml", "test_config.json"):
        done = repo("validate")
        assert done.returncode == 0, done.stderr
        done = repo("run", "--user-simulator", name)
        assert done.returncode == 2
        assert "the user never says anything" in done.stderr


def test_scenarios_are_converted_and_read_as_they_are(repo: Repo) -> None:
    (repo.root / "talks.json").write_text(json.dumps({"scenarios": [SCENARIO]}))
    (repo.root / "session.json").write_text(json.dumps({"appName": "clerk", "userId": "me", "state": {"a": None}}))
    done = repo("convert", "talks.json", "--session-file", "session.json", "-o", "talks.evalset.json")
    assert done.returncode == 0, done.stderr
    assert "1 case written to talks.evalset.json" in done.stderr
    text = (repo.root / "talks.evalset.json").read_text()
    (case,) = json.loads(text)["eval_cases"]
    assert case["session_input"] == {"app_name": "clerk", "user_id": "me", "state": {"a": None}}
    assert json.loads(repo("convert", "talks.json").stdout)["eval_cases"][0]["eval_id"] == case["eval_id"]
    repo.configure(evals="talks.json")
    assert repo("validate").returncode == 0
    bad = repo("convert", "session.json")
    assert bad.returncode == 2
    assert "this is an initial session, not an eval file" in bad.stderr
    assert repo("convert", "nowhere.json").returncode == 2
