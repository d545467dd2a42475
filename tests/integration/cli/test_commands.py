"""The command as a subprocess over a recording: files, exit codes, and what a person reads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import junitparser
import pytest

from support.command import COMMAND, agent_eval
from support.full_disk import files_of_at_most
from support.messages import notes


def eval_set(*cases: tuple[str, str, list[dict[str, Any]]]) -> dict[str, Any]:
    """An eval set of (id, reference answer, expected calls)."""
    return {
        "eval_set_id": "s",
        "eval_cases": [
            {
                "eval_id": name,
                "conversation": [
                    {
                        "user_content": {"role": "user", "parts": [{"text": "roll"}]},
                        "final_response": {"role": "model", "parts": [{"text": answer}]},
                        "intermediate_data": {"tool_uses": calls},
                    }
                ],
            }
            for name, answer, calls in cases
        ],
    }


def record(folder: Path, name: str, answer: str, calls: list[dict[str, Any]], repeat: int = 0) -> None:
    """Append what an agent did to a recording."""
    parts = [{"function_call": call} for call in calls]
    turn = {
        "user_content": {"role": "user", "parts": [{"text": "roll"}]},
        "final_response": {"role": "model", "parts": [{"text": answer}]},
        "intermediate_data": {"invocation_events": [{"author": "bot", "content": {"parts": parts}}]},
    }
    line = {"agent": "bot", "eval_set": "s", "case": name, "repeat": repeat, "case_digest": "x", "turns": [turn]}
    folder.mkdir(exist_ok=True)
    with (folder / "attempts.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


class Repo:
    """A small repository whose agent is a recording."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.recording = root / "recording"
        (root / "bot").mkdir()
        (root / "bot" / "agent.py").write_text("root_agent = None\n")
        (root / "agent-eval.yaml").write_text("agent: bot\nevals: s.evalset.json\nrecording: recording\n")
        (root / "test_config.json").write_text(
            json.dumps({"criteria": {"tool_trajectory_avg_score": 1.0, "response_match_score": 0.5}})
        )
        self.cases([("a", "you rolled 5", [ROLL]), ("b", "hello there", [])])

    def cases(self, cases: list[tuple[str, str, list[dict[str, Any]]]]) -> None:
        (self.root / "s.evalset.json").write_text(json.dumps(eval_set(*cases)))

    def answers(self, *answers: tuple[str, str, list[dict[str, Any]]]) -> None:
        for path in self.recording.glob("*"):
            path.unlink()
        for name, answer, calls in answers:
            for repeat in range(5):
                record(self.recording, name, answer, calls, repeat)

    def __call__(self, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("INPUT_", "GITHUB_"))}
        return agent_eval(*args, cwd=self.root, env=clean | environ)


ROLL = {"name": "roll_die", "args": {"sides": 17}}
WRONG_ROLL = {"name": "roll_die", "args": {"sides": 16}}
GOOD = [("a", "you rolled 5", [ROLL]), ("b", "hello there", [])]


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo(tmp_path)
    made.answers(*GOOD)
    return made


def test_pass_writes_every_file_and_outputs(repo: Repo) -> None:
    output = repo.root / "github_output"
    done = repo("run", GITHUB_ACTIONS="true", GITHUB_OUTPUT=str(output))
    assert done.returncode == 0, done.stderr
    out = repo.root / ".agent-eval" / "out"
    assert {path.name for path in out.iterdir()} >= {"results.json", "junit.xml", "comment.md", "attempts.jsonl"}
    assert json.loads((out / "results.json").read_text())["decision"]["outcome"] == "pass"
    junit = junitparser.JUnitXml.fromfile(str(out / "junit.xml"))
    assert {"a", "b"} <= {
        case.name.partition(" · ")[0] for suite in junit for case in suite if case.classname == "bot.s"
    }
    assert "!baseline.json" in (out.parent / ".gitignore").read_text()
    assert "verdict<<" in output.read_text()
    assert "\npass\n" in output.read_text()


def test_regression_is_blocked_and_named(repo: Repo) -> None:
    assert repo("baseline", "update").returncode == 0
    repo.answers(("a", "you rolled 5", [WRONG_ROLL]), ("b", "hello there", []))
    undecided = repo("run")  # a recording cannot be run again
    assert undecided.returncode == 3, undecided.stderr
    assert "1 of 2 cases needs more runs" in " ".join(undecided.stderr.split())
    done = repo("run", "--threshold-on", "case")
    assert done.returncode == 1, done.stderr
    assert "roll_die(sides=17)" in done.stderr
    assert "roll_die(sides=16)" in done.stderr
    comment = (repo.root / ".agent-eval/out/comment.md").read_text()
    assert "sides=16" in comment or '"sides": 16' in comment


def test_no_baseline_and_no_thresholds_of_ones_own_is_collecting(repo: Repo) -> None:
    (repo.root / "test_config.json").unlink()
    done = repo("run")
    assert done.returncode == 0, done.stderr
    assert "collecting" in done.stderr.lower()
    assert "agent-eval baseline update" in done.stderr


def test_an_error_is_inconclusive_and_fail_on_fail_lets_it_pass(repo: Repo) -> None:
    repo.answers(GOOD[0])
    assert repo("run").returncode == 3
    assert repo("run", "--fail-on", "fail").returncode == 0
    assert repo("run", **{"INPUT_FAIL-ON": "fail"}).returncode == 0


def test_report_only_shows_every_verdict_and_is_green(repo: Repo) -> None:
    outcomes = {}
    for name, answers in (("pass", GOOD), ("fail", (("a", "no", [WRONG_ROLL]), GOOD[1])), ("inconclusive", GOOD[:1])):
        repo.answers(*answers)
        done = repo("run", "--fail-on", "never")
        result = json.loads((repo.root / ".agent-eval/out/results.json").read_text())["decision"]
        outcomes[name] = (done.returncode, result["outcome"])
        assert any("report only" in note for note in notes(result))
        assert {"pass": "Passed  ", "fail": "Blocked  ", "inconclusive": "Inconclusive  "}[name] in done.stderr
        assert repo("run").returncode == {"pass": 0, "fail": 1, "inconclusive": 3}[name]
    assert outcomes == {name: (0, name) for name in outcomes}
    assert repo("run", "nowhere.evalset.json", "--fail-on", "never").returncode == 2


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["run", "nowhere.evalset.json"], "nowhere.evalset.json"),
        (["run", "s.evalset.json:aa"], 'has no case "aa"'),
        (["run", "--case", "zzz*"], "no case matches"),
        (["run", "--config", "missing.yaml"], "missing.yaml"),
        (["run", "--repeats", "many"], "many"),
        (["run", "--no-such-flag"], "there is no option --no-such-flag"),
        (["compare", "nowhere.json", "s.evalset.json"], "s.evalset.json"),
        (["report", "nowhere"], "nowhere"),
        (["report", ".", "--to", "jnit"], "junit"),
        (["baseline", "show"], "baseline update"),
        (["run", "--resume", "nowhere"], "no run to resume"),
        (["run", "--baseline", "s.evalset.json"], "baseline"),
    ],
)
def test_usage_errors_say_what_and_exit_2(repo: Repo, args: list[str], says: str) -> None:
    done = repo(*args)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_every_problem_of_every_file_at_once(repo: Repo) -> None:
    (repo.root / "s.evalset.json").write_text('{"eval_set_id": "s", "eval_cases": [{"eval_idd": "a"}, {"eval_id": 7}]}')
    (repo.root / "test_config.json").write_text('{"criteria": {"respons_match_score": 0.5}}')
    done = repo("run")
    assert done.returncode == 2
    for text in ("s.evalset.json:1", "eval_cases[0]", "eval_cases[1]", "response_match_score"):
        assert text in done.stderr


def test_validate(repo: Repo) -> None:
    done = repo("validate")
    assert done.returncode == 0, done.stderr
    (repo.root / "s.evalset.json").write_text("{,}")
    assert repo("validate").returncode == 2
    assert repo("validate", "s.evalset.json").returncode == 2
    assert repo("validate", "test_config.json").returncode == 0


def test_compare_and_report_from_files_alone(repo: Repo) -> None:
    assert repo("run", "--out", "good").returncode == 0
    repo.answers(("a", "you rolled 5", [WRONG_ROLL]), ("b", "hello there", []))
    assert repo("run", "--out", "bad").returncode == 1
    (repo.root / "recording/attempts.jsonl").unlink()
    assert repo("compare", "good", "bad/results.json").returncode == 3  # one run of either side
    done = repo("compare", "good", "bad/results.json", "--out", "both", "--threshold-on", "case")
    assert done.returncode == 1, done.stderr
    assert (repo.root / "both/comment.md").exists()
    assert repo("compare", "good", "good").returncode == 0
    report = repo("report", "both", "--to", "markdown")
    assert report.returncode == 0
    assert report.stdout == (repo.root / "both/comment.md").read_text()
    assert repo("report", "both", "--to", "junit", "-o", "x.xml").returncode == 0
    assert (repo.root / "x.xml").read_bytes() == (repo.root / "both/junit.xml").read_bytes()


def test_a_report_is_of_the_last_run_where_none_is_named(repo: Repo) -> None:
    none = repo("report")
    assert none.returncode == 2
    assert "there are no results at .agent-eval/out" in none.stderr
    assert repo("run").returncode == 0
    report = repo("report")
    assert report.returncode == 0, report.stderr
    assert report.stdout == (repo.root / ".agent-eval/out/comment.md").read_text()


def test_baseline_update_from_results_and_show(repo: Repo) -> None:
    assert repo("run").returncode == 0
    assert repo("baseline", "update", "--from", ".agent-eval/out").returncode == 0
    before = (repo.root / ".agent-eval/baseline.json").read_bytes()
    assert repo("baseline", "update", "--from", ".agent-eval/out").returncode == 0
    assert (repo.root / ".agent-eval/baseline.json").read_bytes() == before
    shown = repo("baseline", "show")
    assert shown.returncode == 0
    assert "tool_trajectory_avg_score" in shown.stdout
    ignored = (repo.root / ".agent-eval/.gitignore").read_text()
    assert "!baseline.json" in ignored


def test_a_stale_report_does_not_survive_a_run_that_could_not_begin(repo: Repo) -> None:
    assert repo("run").returncode == 0
    (repo.root / "s.evalset.json").write_text("[")
    assert repo("run").returncode == 2
    assert not (repo.root / ".agent-eval/out/comment.md").exists()
    assert not (repo.root / ".agent-eval/out/results.json").exists()


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_writes_what_there_is(repo: Repo, number: signal.Signals) -> None:
    many = [(f"case{n}", "hello there", []) for n in range(3000)]
    repo.cases(many)
    repo.answers(*many)
    process = subprocess.Popen(
        [COMMAND, "run"], cwd=repo.root, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    attempts = repo.root / ".agent-eval/out/attempts.jsonl"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not (attempts.exists() and attempts.stat().st_size):
        time.sleep(0.005)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    results = json.loads((repo.root / ".agent-eval/out/results.json").read_text())
    assert results["status"] == "interrupted"
    assert results["decision"]["outcome"] == "inconclusive"
    assert (repo.root / ".agent-eval/out/junit.xml").exists()


def test_a_full_disk_is_reported_with_exit_3(repo: Repo) -> None:
    with files_of_at_most(300):
        done = repo("run")
    assert done.returncode == 3
    assert "attempts.jsonl cannot be written: File too large" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.exhaustive
def test_one_agent_of_several_says_nothing_about_the_others(repo: Repo) -> None:
    (repo.root / "other").mkdir()
    (repo.root / "other" / "agent.py").write_text("root_agent = None\n")
    (repo.root / "agent-eval.yaml").write_text(
        "recording: recording\nagents: [{path: bot, evals: s.evalset.json}, {path: other, evals: s.evalset.json}]\n"
    )
    assert repo("baseline", "update").returncode == 0
    stored = repo.root / ".agent-eval/baseline.json"
    both = stored.read_text()
    assert '"other"' in both
    done = repo("run", "--agent", "bot")
    assert done.returncode == 0, done.stderr
    assert "2 cases of the baseline were not run: the run was narrowed to bot" in done.stderr
    assert "removed" not in done.stderr
    assert repo("baseline", "update", "--agent", "bot").returncode == 0
    assert stored.read_text() == both
    repo.cases(GOOD[:1])
    gone = repo("run", "--agent", "bot")
    assert "`b`" in gone.stderr
    assert repo("baseline", "update", "--agent", "bot").returncode == 0
    assert stored.read_text().count('"b"') == 1


def test_an_agent_that_does_not_start_is_one_problem_and_not_one_for_each_case(repo: Repo) -> None:
    many = [(f"case{n}", "hello there", []) for n in range(30)]
    repo.cases(many)  # type: ignore[arg-type] # the list's own type is narrower
    (repo.root / "recording/attempts.jsonl").unlink()
    done = repo("run")
    assert done.returncode == 3
    assert "bot does not start" in done.stderr
    assert "(the same in 29 more cases)" in done.stderr
    assert done.stderr.count("cannot be read") <= 5


def test_an_out_folder_that_cannot_be_is_reported_with_exit_3(repo: Repo) -> None:
    done = repo("run", "--out", "agent-eval.yaml/out")
    assert done.returncode == 3
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
