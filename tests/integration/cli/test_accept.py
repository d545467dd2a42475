"""An intended change, commit by commit in a real repository: what the comment says to do lets it through."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.command import agent_eval
from support.repositories import IDENTITY

ROOT = Path(__file__).resolve().parents[3]
MADE_BY_RUNNING = shutil.ignore_patterns("cache", "out", "__pycache__", ".adk", ".venv")
PATCH = "regression/answer-from-memory.patch"
WORSE = {"which_are_prime", "roll_then_check", "two_turns_is_it_prime", "roll_three_and_check_them", "smoke"}


class PullRequest:
    """The dice agent on main, and a branch that is run as the event ``pull_request``."""

    def __init__(self, root: Path, python: Path, gate: str = "") -> None:
        self.root, self.python = root / "dice", python
        shutil.copytree(ROOT / "examples" / "dice", self.root, ignore=MADE_BY_RUNNING)
        config = self.root / "agent-eval.yaml"
        text = re.sub(r"(?s)gate:.*", "", config.read_text())
        config.write_text(f"{text}gate:\n  max_drop: 0.02\n{gate}")
        self.git("init", "-qb", "main")
        self.commit("main")

    def git(self, *words: str) -> str:
        environ = {**os.environ, **IDENTITY}
        done = subprocess.run(["git", *words], cwd=self.root, env=environ, check=True, capture_output=True, text=True)
        return done.stdout

    def commit(self, message: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", message)

    def command(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "INPUT_"))}
        return agent_eval(*words, cwd=self.root, env={**clean, **environ})

    def run(self, *words: str) -> tuple[int, str]:
        """Run the branch as a pull request; the exit code, and the comment."""
        event = {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": "pull_request", "GITHUB_BASE_REF": "main"}
        done = self.command("run", *words, "--python", str(self.python), **event)
        comment = self.root / ".agent-eval" / "out" / "comment.md"
        assert comment.exists(), done.stderr
        return done.returncode, comment.read_text()

    def decision(self) -> dict[str, Any]:
        results = self.root / ".agent-eval" / "out" / "results.json"
        found: dict[str, Any] = json.loads(results.read_text())["decision"]
        return found

    def make_worse(self) -> None:
        self.git("checkout", "-qb", "pr")
        self.git("apply", PATCH)
        self.commit("answer from memory")


@pytest.fixture
def pull(tmp_path: Path, adk213_python: Path) -> PullRequest:
    return PullRequest(tmp_path, adk213_python)


def commands_of(comment: str) -> list[list[str]]:
    """What the comment says to type if the change is intended."""
    part = comment[comment.index("If the change is intended") :]
    block = part[part.index("```sh\n") + len("```sh\n") :]
    return [shlex.split(line)[1:] for line in block[: block.index("\n```")].splitlines()]


def without_calls(value: Any, name: str) -> Any:
    """Eval cases that no longer expect calls of this tool."""
    if isinstance(value, dict):
        return {key: without_calls(item, name) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    called = [
        item for item in value if not (isinstance(item, dict) and name in (item.get("name"), item.get("tool_name")))
    ]
    return [without_calls(item, name) for item in called]


@pytest.mark.exhaustive
def test_after_what_the_comment_says_the_check_passes_and_stays_green_after_the_merge(pull: PullRequest) -> None:
    pull.make_worse()
    code, comment = pull.run()
    assert code == 1, comment
    assert "5 of 13 cases got worse" in comment
    for words in commands_of(comment):
        done = pull.command(*words)
        assert done.returncode == 0, done.stderr
    pull.commit("accept it")

    code, comment = pull.run()
    assert code == 0, comment
    accepted = {pair["case"] for pair in pull.decision()["pairs"] if pair["accepted"]}
    assert accepted == WORSE
    assert "accept.yaml accepts a change of" in comment, "an accepted change is shown as a weakening"

    pull.git("checkout", "-q", "main")
    pull.git("merge", "-q", "--no-ff", "-m", "merge", "pr")
    done = pull.command("run", "--python", str(pull.python))
    assert done.returncode == 0, done.stderr

    pull.git("checkout", "-qb", "later")
    tools = pull.root / "dice_agent" / "tools.py"
    tools.write_text(tools.read_text() + "\n# nothing changes\n")
    pull.commit("a later change")
    code, comment = pull.run()
    assert code == 0, comment
    assert not any(pair["accepted"] for pair in pull.decision()["pairs"]), "the entries are spent"


def test_everything_that_got_worse_is_accepted_by_one_command(pull: PullRequest) -> None:
    pull.make_worse()
    assert pull.run()[0] == 1
    done = pull.command("accept", "--worse", "--reason", "it may answer from memory")
    assert done.returncode == 0, done.stderr
    text = (pull.root / ".agent-eval" / "accept.yaml").read_text()
    assert set(re.findall(r'- case: "(\w+)"', text)) == WORSE
    assert text.count("it may answer from memory") == text.count("- case:")
    again = pull.command("accept", "--worse", "--reason", "it may answer from memory")
    assert again.returncode == 0
    assert "in it already" in again.stderr
    assert (pull.root / ".agent-eval" / "accept.yaml").read_text() == text
    pull.commit("accept it")
    code, comment = pull.run()
    assert code == 0, comment


@pytest.mark.exhaustive
def test_what_was_not_accepted_still_blocks(pull: PullRequest) -> None:
    pull.make_worse()
    done = pull.command("accept", "which_are_prime", "smoke", "--reason", "these two")
    assert done.returncode == 0, done.stderr
    pull.commit("accept two")
    code, comment = pull.run()
    assert code == 1, comment
    assert "3 of 13 cases got worse" in comment


@pytest.mark.exhaustive
def test_where_a_threshold_blocks_the_comment_names_what_to_edit_and_editing_it_is_enough(
    tmp_path: Path, adk213_python: Path
) -> None:
    pull = PullRequest(tmp_path, adk213_python, "  threshold_on: case\n")
    pull.make_worse()
    code, comment = pull.run()
    assert code == 1
    assert "blocked by a threshold, which accepting does not change" in comment
    lines = (pull.root / "evals" / "dice.evalset.json").read_text().splitlines()
    for name in WORSE - {"smoke"}:
        place = re.search(rf"case <code>{name}</code> at evals/dice\.evalset\.json:(\d+)", comment)
        assert place, comment
        near = "\n".join(lines[int(place[1]) - 1 : int(place[1]) + 2])
        assert f'"eval_id": "{name}"' in near
    config = (pull.root / "evals" / "test_config.json").read_text().splitlines()
    place = re.search(r"<code>tool_trajectory_avg_score</code> at evals/test_config\.json:(\d+)", comment)
    assert place
    assert "tool_trajectory_avg_score" in config[int(place[1]) - 1]

    for words in commands_of(comment):
        assert pull.command(*words).returncode == 0
    pull.commit("accept it")
    assert pull.run()[0] == 1, "threshold_on: case holds a case to its threshold whatever was accepted"

    for path in (pull.root / "evals" / "dice.evalset.json", pull.root / "evals" / "smoke.test.json"):
        path.write_text(json.dumps(without_calls(json.loads(path.read_text()), "check_prime")))
    pull.commit("expect what it does now")
    code, comment = pull.run()
    assert code == 0, comment


@pytest.mark.exhaustive
def test_what_is_measured_beside_the_change_is_accepted_as_well(pull: PullRequest) -> None:
    """With ``baseline: rerun`` there are no records: the base commit's file says what main has accepted."""
    pull.make_worse()
    cases = "evals/dice.evalset.json:which_are_prime,roll_one_die"
    assert pull.run(cases, "--baseline-store", "rerun")[0] == 1
    assert pull.command("accept", "--worse", "--reason", "it may answer from memory").returncode == 0
    pull.commit("accept it")
    code, comment = pull.run(cases, "--baseline-store", "rerun")
    assert code == 0, comment
    assert {pair["case"] for pair in pull.decision()["pairs"] if pair["accepted"]} == {"which_are_prime"}


CHECKS = '''"""A metric: the share of turns in which check_prime was called as often as expected."""


def checks(eval_metric, actual_invocations, expected_invocations, conversation_scenario=None):
    from google.adk.evaluation.eval_case import get_all_tool_calls
    from google.adk.evaluation.evaluator import EvalStatus, EvaluationResult

    def count(turn):
        return sum(call.name == "check_prime" for call in get_all_tool_calls(turn.intermediate_data))

    pairs = list(zip(actual_invocations, expected_invocations))
    score = sum(count(one) == count(other) for one, other in pairs) / len(pairs)
    return EvaluationResult(overall_score=score, overall_eval_status=EvalStatus.PASSED)
'''


@pytest.fixture
def two_agents(tmp_path: Path, adk213_python: Path) -> PullRequest:
    """Two agents whose cases have the same names, each judged by two criteria of which a change makes both worse."""
    pull = PullRequest(tmp_path, adk213_python)
    shutil.rmtree(pull.root / ".agent-eval")
    (pull.root / "evals" / "smoke.test.json").unlink()
    criteria = {
        "criteria": {"tool_trajectory_avg_score": 1.0, "checks": {"threshold": 0.9}},
        "custom_metrics": {"checks": {"code_config": {"name": "dice_agent.metrics.checks"}}},
    }
    (pull.root / "evals" / "test_config.json").write_text(json.dumps(criteria, indent=1))
    (pull.root / "dice_agent" / "metrics.py").write_text(CHECKS)
    shutil.copytree(pull.root / "dice_agent", pull.root / "second" / "dice_agent")
    shutil.copytree(pull.root / "evals", pull.root / "second" / "evals")
    agents = [
        {"path": "dice_agent", "name": "first", "evals": "evals"},
        {"path": "second/dice_agent", "name": "second", "evals": "second/evals"},
    ]
    (pull.root / "agent-eval.yaml").write_text(
        json.dumps({"agents": agents, "env": ["DICE_MODEL"], "gate": {"max_drop": 0.02}})
    )
    pull.commit("two agents")
    done = pull.command("baseline", "update", "--python", str(pull.python), "--case", "which_are_prime")
    assert done.returncode == 0, done.stderr
    pull.commit("their baseline")
    return pull


@pytest.mark.exhaustive
def test_of_several_agents_and_criteria_every_pair_is_accepted(two_agents: PullRequest) -> None:
    pull = two_agents
    pull.git("checkout", "-qb", "pr")
    for folder in (pull.root, pull.root / "second"):
        agent = folder / "dice_agent" / "agent.py"
        changed = re.sub(
            r"(?m)^(- To say which numbers are prime, ).*$",
            r"\\1answer from memory: it saves a call.",
            agent.read_text(),
        )
        assert changed != agent.read_text()
        agent.write_text(changed)
    pull.commit("answer from memory")
    code, comment = pull.run("--case", "which_are_prime")
    assert code == 1, comment
    for words in commands_of(comment):
        done = pull.command(*words, *(["--python", str(pull.python)] if words[:2] == ["baseline", "update"] else []))
        assert done.returncode == 0, done.stderr
    pull.commit("accept it")
    code, comment = pull.run("--case", "which_are_prime")
    assert code == 0, comment
    accepted = {(pair["agent"], pair["criterion"]) for pair in pull.decision()["pairs"] if pair["accepted"]}
    assert accepted == {(a, c) for a in ("first", "second") for c in ("checks", "tool_trajectory_avg_score")}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--worse",), "there are no results at .agent-eval/out/results.json"),
        ((), "name either cases, or --worse"),
        (("smoke", "--worse"), "name either cases, or --worse"),
        (("smokee",), "there is no case 'smokee'"),
        (("smoke", "--criterion", "tool_trajectory"), "there is no criterion 'tool_trajectory'"),
    ],
)
def test_what_cannot_be_accepted_writes_nothing(pull: PullRequest, words: tuple[str, ...], said: str) -> None:
    done = pull.command("accept", *words, "--reason", "x")
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert not (pull.root / ".agent-eval" / "accept.yaml").exists()
