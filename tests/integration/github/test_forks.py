"""Pull requests without credentials: what needs none is run, the rest is said and not held against them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.command import agent_eval
from support.messages import headline, sentence
from support.repositories import commit_all, run_git

EVENTS = Path(__file__).parents[2] / "support" / "github_events"
SENTENCE = "not measured: no credentials on this pull request"
JUDGED = "final_response_match_v2"
MATCHED = "response_match_score"


def case(name: str) -> dict[str, Any]:
    parts = {"role": "user", "parts": [{"text": "roll"}]}
    answer = {"role": "model", "parts": [{"text": "six"}]}
    return {"eval_id": name, "conversation": [{"user_content": parts, "final_response": answer}]}


class Repo:
    """A repository whose agent is a recording, and a job of GitHub Actions that has no credentials."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.output = root / "output.txt"
        (root / "bot").mkdir()
        (root / "bot" / "agent.py").write_text("root_agent = None\n")
        self.configure(recording="recording")
        self.criteria(**{MATCHED: 0.8, JUDGED: 0.8})
        self.cases(case("a"), case("b"))
        self.answers(a="six", b="six")

    def configure(self, **more: Any) -> None:
        config = {"agent": "bot", "evals": "s.evalset.json", **more}
        (self.root / "agent-eval.yaml").write_text(json.dumps(config))

    def criteria(self, **criteria: Any) -> None:
        (self.root / "test_config.json").write_text(json.dumps({"criteria": criteria}))

    def cases(self, *cases: dict[str, Any]) -> None:
        (self.root / "s.evalset.json").write_text(json.dumps({"eval_set_id": "s", "eval_cases": cases}))

    def answers(self, **said: str) -> None:
        (self.root / "recording").mkdir(exist_ok=True)
        with (self.root / "recording" / "attempts.jsonl").open("w", encoding="utf-8") as file:
            for name, text in said.items():
                turn = case(name)["conversation"][0]
                turn["final_response"] = {"role": "model", "parts": [{"text": text}]}
                line = {"agent": "bot", "eval_set": "s", "case": name, "repeat": 0, "case_digest": "x"}
                file.write(json.dumps({**line, "turns": [turn]}) + "\n")

    def merge(self, change: Callable[[], None] = lambda: None) -> None:
        """Commit what there is as main, and check out GitHub's merge commit of main and a fork's ``change``."""

        def git(*words: str) -> str:
            return run_git(self.root, *words)

        (self.root / ".gitignore").write_text(".agent-eval/\n*.txt\nfork.json\n__pycache__/\n")
        git("init", "--quiet", "--initial-branch=main")
        git("add", "--all")
        git("commit", "--quiet", "-m", "main")
        base = git("rev-parse", "HEAD")
        git("checkout", "--quiet", "-b", "change")
        change()
        git("add", "--all")
        git("commit", "--quiet", "--allow-empty", "-m", "change")
        head = git("rev-parse", "HEAD")
        git("checkout", "--quiet", "--detach", base)
        git("merge", "--quiet", "--no-ff", "-m", "merge", head)
        payload = json.loads((EVENTS / "pull_request_fork.json").read_text())
        payload["pull_request"]["base"]["sha"], payload["pull_request"]["head"]["sha"] = base, head
        (self.root / "fork.json").write_text(json.dumps(payload))

    def _event(self, name: str) -> Path:
        """The event's file, with what there is now as its base."""
        payload = json.loads((EVENTS / f"{name}.json").read_text())
        for side in (payload.get("merge_group"), payload.get("pull_request", {}).get("base")):
            if side:
                side["base_sha" if "base_sha" in side else "sha"] = commit_all(self.root)
        path = self.root.parent / f"{self.root.name}-event.json"
        path.write_text(json.dumps(payload))
        return path

    def run(self, event: str, *, file: str = "", command: str = "run", **more: str) -> tuple[int, dict[str, Any], str]:
        """Exit code, results.json ({} without one), and the log."""
        kept = ("PATH", "HOME", "LANG", "VIRTUAL_ENV", "TMPDIR")
        said = self.root / file if file == "fork.json" else self._event(file or event)
        clean = {name: value for name, value in os.environ.items() if name in kept}
        job = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": event,
            "GITHUB_EVENT_PATH": str(said),
            "GITHUB_REPOSITORY": "octo-org/Hello-World",
            "GITHUB_WORKSPACE": str(self.root),
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_ACTOR": "octocat",
            "INPUT_BASELINE-STORE": "file",
            "INPUT_COMMENT": "off",
        }
        done = agent_eval(*command.split(), cwd=self.root, env={**clean, **job, **more})
        out = self.root / ".agent-eval" / "out" / "results.json"
        return done.returncode, json.loads(out.read_text()) if out.is_file() else {}, done.stdout + done.stderr


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path)


def findings(results: dict[str, Any], effect: str) -> list[str]:
    return [sentence(one) for one in results["decision"]["findings"] if one["severity"] == effect]


def test_a_forks_judged_criteria_are_not_measured_and_the_step_is_not_red(repo: Repo) -> None:
    code, results, log = repo.run("pull_request", file="pull_request_fork")
    decision = results["decision"]
    assert (code, decision["outcome"], decision["excused"]) == (0, "inconclusive", True)
    assert f"{SENTENCE}: `{JUDGED}` (GitHub gives no secrets to a pull request from a fork)" in headline(decision)
    assert "of the rest every threshold that counts is met by 2 cases on 1 criterion" in headline(decision)
    assert len(findings(results, "inconclusive")) == 1
    assert "Traceback" not in log
    assert log.count("GOOGLE_API_KEY") == 1
    # green, and said aloud
    assert f"::warning title=agent-eval::{headline(decision)[:60]}" in log
    assert "::error" not in log
    assert "verdict<<" in repo.output.read_text()
    rows = {row["criterion"]: row for row in decision["criteria"]}
    assert rows[MATCHED]["current"] == 1.0
    assert (rows[JUDGED]["current"], rows[JUDGED]["status"], rows[JUDGED]["errors"]) == (None, "not_applicable", 0)


def test_the_reports_of_a_fork_say_it_too(repo: Repo) -> None:
    repo.run("pull_request", file="pull_request_fork")
    out = repo.root / ".agent-eval" / "out"
    assert SENTENCE in (out / "comment.md").read_text()
    junit = (out / "junit.xml").read_text()
    assert "<error" not in junit
    assert f'message="{SENTENCE}"' in junit


def test_dependabot_is_as_a_fork(repo: Repo) -> None:
    code, results, _ = repo.run("pull_request", file="pull_request_dependabot", GITHUB_ACTOR="dependabot[bot]")
    assert (code, results["decision"]["outcome"]) == (0, "inconclusive")
    assert "Dependabot" in headline(results["decision"])


def test_a_pull_request_of_ones_own_is_red_and_says_what_to_set(repo: Repo) -> None:
    code, results, _ = repo.run("pull_request")
    decision = results["decision"]
    assert (code, decision["outcome"], decision["excused"]) == (3, "inconclusive", False)
    assert SENTENCE in headline(decision)
    assert "set GOOGLE_API_KEY" in headline(decision)


@pytest.mark.parametrize("event", ["push", "merge_group", "schedule", "workflow_dispatch"])
def test_everywhere_else_nothing_is_run_without_credentials(repo: Repo, event: str) -> None:
    code, results, log = repo.run(event)
    assert (code, results) == (3, {})
    assert "so nothing was run" in log


def test_what_needs_no_credentials_still_blocks_a_fork(repo: Repo) -> None:
    repo.answers(a="six", b="no")
    code, results, _ = repo.run("pull_request", file="pull_request_fork")
    assert (code, results["decision"]["outcome"], results["decision"]["excused"]) == (1, "fail", False)
    assert SENTENCE in headline(results["decision"])


def test_another_doubt_is_not_excused(repo: Repo) -> None:
    repo.answers(a="six")  # nothing is recorded of b
    code, results, _ = repo.run("pull_request", file="pull_request_fork")
    assert (code, results["decision"]["outcome"], results["decision"]["excused"]) == (3, "inconclusive", False)


def test_a_criterion_that_only_advises_leaves_the_rest_a_pass(repo: Repo) -> None:
    repo.configure(recording="recording", gate={"criteria": {JUDGED: {"mode": "advisory"}}})
    code, results, _ = repo.run("pull_request", file="pull_request_fork")
    assert (code, results["decision"]["outcome"]) == (0, "pass")
    assert SENTENCE in findings(results, "advisory")[0]


def test_nothing_that_can_be_measured_is_no_pass(repo: Repo) -> None:
    repo.criteria(**{JUDGED: 0.8})
    code, results, _ = repo.run("pull_request", file="pull_request_fork")
    assert (code, results["decision"]["outcome"]) == (0, "inconclusive")
    assert "of the rest" not in headline(results["decision"])


def test_with_credentials_a_fork_is_measured_like_everybody(repo: Repo) -> None:
    """The key is no good and the server refuses at once: what counts is that the judge was asked."""
    code, results, _ = repo.run(
        "pull_request",
        file="pull_request_fork",
        GOOGLE_API_KEY="x",
        GOOGLE_GEMINI_BASE_URL="http://127.0.0.1:9",
        **{"INPUT_LLM-RETRY-DEADLINE": "1"},
    )
    assert (code, results["decision"]["excused"]) == (3, False)
    assert SENTENCE not in headline(results["decision"])


def test_users_nobody_can_play_are_not_begun(repo: Repo, adk213_python: Path) -> None:
    """Told of the scenario alone: the other case of the set is run."""
    repo.configure(python=str(adk213_python), reruns="off")
    (repo.root / "bot" / "agent.py").write_text(SCRIPTED)
    scenario = {"starting_prompt": "Hello", "conversation_plan": "Ask how hot Rome is."}
    repo.criteria(tool_call_count_v1={"threshold": 5})
    repo.cases(case("a"), {"eval_id": "talk", "conversation_scenario": scenario})
    code, results, _ = repo.run("pull_request", file="pull_request_fork")
    assert (code, results["decision"]["outcome"]) == (0, "inconclusive"), headline(results["decision"])
    assert "in 1 of 2 cases" in headline(results["decision"])
    made = {one["case"]: len(one["attempts"]) for one in results["sets"][0]["cases"]}
    assert made == {"a": 1, "talk": 0}


@pytest.mark.exhaustive
def test_an_agent_without_credentials_of_its_own_is_one_sentence(repo: Repo, adk213_python: Path) -> None:
    repo.configure(python=str(adk213_python), reruns="off")
    (repo.root / "bot" / "agent.py").write_text(
        'from google.adk.agents import Agent\nroot_agent = Agent(name="bot", model="gemini-2.5-flash")\n'
    )
    repo.criteria(**{MATCHED: 0.8})
    repo.cases(*(case(f"case {number}") for number in range(40)))
    repo.merge()
    code, results, log = repo.run("pull_request", file="fork.json")
    decision = results["decision"]
    assert (code, decision["outcome"], decision["excused"]) == (0, "inconclusive", True), headline(decision)
    assert SENTENCE in headline(decision)
    assert len(decision["findings"]) == 1
    assert "No API key" in " ".join(results["conditions"]["lacking"])
    assert "Traceback" not in log
    own, results, _ = repo.run("pull_request")
    assert (own, results["decision"]["excused"]) == (3, False)


def test_an_agent_that_asks_for_its_key_when_it_is_imported(repo: Repo, adk213_python: Path) -> None:
    repo.configure(python=str(adk213_python), reruns="off")
    (repo.root / "bot" / "agent.py").write_text(
        'raise ValueError("The api_key client option must be set by OPENAI_API_KEY")\n'
    )
    repo.criteria(**{MATCHED: 0.8})
    repo.merge()
    code, results, _ = repo.run("pull_request", file="fork.json")
    assert (code, results["decision"]["excused"]) == (0, True), headline(results["decision"])


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize(
    "said",
    [
        'if "worse" in str(llm_request.contents):\n            raise ValueError("No API key was provided")\n        ',
        'raise ValueError("No API key was provided")\n        ',
    ],
)
def test_an_agent_that_only_says_that_it_has_no_key_is_not_excused(repo: Repo, adk213_python: Path, said: str) -> None:
    """The cases that got worse are those that main's agent answers without any key."""
    repo.configure(python=str(adk213_python), reruns="off")
    (repo.root / "bot" / "agent.py").write_text(SCRIPTED)
    repo.criteria(**{MATCHED: 0.8})
    worse = case("b")
    worse["conversation"][0]["user_content"]["parts"][0]["text"] = "worse"
    repo.cases(case("a"), worse)
    agent = SCRIPTED.replace("said = types", f"{said}said = types")
    repo.merge(lambda: (repo.root / "bot" / "agent.py").write_text(agent))
    code, results, log = repo.run("pull_request", file="fork.json")
    decision = results["decision"]
    assert code in {1, 3}, log
    assert decision["outcome"] in {"fail", "inconclusive"}
    assert not decision["excused"]
    assert "main's agent answers this without credentials" in headline(decision)
    assert SENTENCE not in headline(decision)


@pytest.mark.exhaustive
def test_an_agent_that_says_so_when_it_is_imported_is_not_excused_either(repo: Repo, adk213_python: Path) -> None:
    repo.configure(python=str(adk213_python), reruns="off")
    (repo.root / "bot" / "agent.py").write_text(SCRIPTED)
    repo.criteria(**{MATCHED: 0.8})
    repo.merge(lambda: (repo.root / "bot" / "agent.py").write_text('raise ValueError("No API key was provided")\n'))
    code, results, log = repo.run("pull_request", file="fork.json")
    assert code in {1, 3}, log
    assert not results["decision"]["excused"]
    assert "main's agent answers this without credentials" in headline(results["decision"])


def test_where_main_s_agent_cannot_be_asked_nothing_is_excused(repo: Repo, adk213_python: Path) -> None:
    repo.configure(python=str(adk213_python))
    (repo.root / "bot" / "agent.py").write_text(SCRIPTED.replace("said = types", NO_KEY))
    repo.criteria(**{MATCHED: 0.8})
    code, results, _ = repo.run("pull_request", file="pull_request_fork")
    assert (code, results["decision"]["excused"]) == (3, False)
    assert "it is not known whether main's agent needs credentials here" in headline(results["decision"])


@pytest.mark.exhaustive
def test_an_agent_that_main_lacks_leaves_the_others_their_excuse(repo: Repo, adk213_python: Path) -> None:
    """Main's agent needs a key as well; the one that the change adds says so too, and cannot be asked on main."""
    agent = SCRIPTED.replace("said = types", NO_KEY)
    repo.configure(python=str(adk213_python), reruns="off")
    (repo.root / "bot" / "agent.py").write_text(agent)
    repo.criteria(**{MATCHED: 0.8})

    def add() -> None:
        (repo.root / "helper").mkdir()
        (repo.root / "helper" / "agent.py").write_text(agent)
        agents = [{"path": "bot", "evals": "s.evalset.json"}, {"path": "helper", "evals": "h.evalset.json"}]
        (repo.root / "agent-eval.yaml").write_text(json.dumps({"agents": agents, "python": str(adk213_python)}))
        added = {"eval_set_id": "h", "eval_cases": [case("h")]}
        (repo.root / "h.evalset.json").write_text(json.dumps(added))

    repo.merge(add)
    _, results, log = repo.run("pull_request", file="fork.json")
    cases = {(one["agent"], each["case"]): each for one in results["sets"] for each in one["cases"]}
    assert all(cases["bot", name]["unmeasured"].startswith("not measured") for name in ("a", "b")), log
    assert not cases["helper", "h"]["unmeasured"]
    assert "it is not known whether main's agent" in cases["helper", "h"]["attempts"][0]["error"]["message"]
    assert list(results["base"]["unavailable_agents"]) == ["helper"]


@pytest.mark.parametrize(
    ("rule", "code", "outcome"), [("pass", 0, "pass"), ("neutral", 0, "inconclusive"), ("fail", 1, "fail")]
)
def test_what_a_partly_measured_fork_is_says_main(repo: Repo, rule: str, code: int, outcome: str) -> None:
    repo.configure(recording="recording", gate={"withheld": rule})
    found, results, log = repo.run("pull_request", file="pull_request_fork")
    assert (found, results["decision"]["outcome"]) == (code, outcome), log
    assert f"{SENTENCE}: `{JUDGED}`" in headline(results["decision"])


def test_pull_request_target_is_refused_before_anything_is_read(repo: Repo) -> None:
    code, results, log = repo.run("pull_request_target")
    assert (code, results) == (2, {})
    assert "must not be run there" in log
    assert "docs/forks.md" in log


def test_pull_request_target_is_warned_of_when_it_is_asked_for(repo: Repo) -> None:
    repo.criteria(**{MATCHED: 0.8})
    code, results, log = repo.run("pull_request_target", **{"INPUT_ALLOW-PULL-REQUEST-TARGET": "true"})
    assert (code, results["decision"]["outcome"]) == (0, "pass"), log
    assert "can take them all" in " ".join(log.split())


def test_a_file_of_the_repository_cannot_allow_it(repo: Repo) -> None:
    repo.configure(recording="recording", allow_pull_request_target=True)
    code, _, log = repo.run("pull_request_target")
    assert code == 2
    assert "allow_pull_request_target" in log


def test_a_token_that_may_not_comment_changes_nothing(repo: Repo, server: Any) -> None:
    reader = {"ghs_reads": {"comments": "read"}}
    server.put(repo="octo-org/Hello-World", tokens=reader)
    given = {"INPUT_COMMENT": "update", "INPUT_GITHUB-TOKEN": next(iter(reader)), **server.environ}
    code, results, log = repo.run("pull_request", file="pull_request_fork", **given)
    assert (code, results["decision"]["excused"]) == (0, True)
    assert "pull-requests: write" in log
    assert "Traceback" not in log


def test_a_baseline_is_whole_or_not_made(repo: Repo) -> None:
    code, results, log = repo.run("pull_request", file="pull_request_fork", command="baseline update")
    assert (code, results) == (3, {})
    assert "so nothing was run" in log
    assert not (repo.root / ".agent-eval" / "baseline.json").exists()


NO_KEY = 'raise ValueError("No API key was provided")\n        said = types'

SCRIPTED = """
from google.adk.agents import Agent
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types


class Scripted(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        said = types.Content(role="model", parts=[types.Part(text="six")])
        yield LlmResponse(content=said)


root_agent = Agent(name="bot", model=Scripted(model="gemini-2.5-flash"))
"""
