"""A run as a step of a workflow: outputs, summary, annotations, groups, the last word, and what a secret becomes."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action import __version__
from support.command import COMMAND, agent_eval_bytes
from support.runner_log import Command, commands

ROLL = {"name": "roll_die", "args": {"sides": 17}}
KEY = "sk-live-4f9a1c77d20e"
FROM_DOTENV = "xoxb-9931-dotenv-value"
MULTILINE = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nline-two-of-it\n-----END KEY-----"


class Step:
    """A repository whose agent is a recording, and the files the runner gives a step."""

    def __init__(self, root: Path) -> None:
        self.root, self.out = root, root / ".agent-eval" / "out"
        self.output, self.summary = root / "output", root / "summary"
        (root / "bot").mkdir()
        (root / "bot" / "agent.py").write_text("root_agent = None\n")
        (root / "agent-eval.yaml").write_text(
            "agent: bot\nevals: s.evalset.json\nrecording: recording\nbaseline: {store: file}\n"
        )
        (root / "test_config.json").write_text(json.dumps({"criteria": {"response_match_score": 0.5}}))
        self.cases = ["a", "b"]
        self.answers: dict[str, str] = {}
        self.error: dict[str, Any] | None = None
        self.environ: dict[str, str] = {}

    def _write(self) -> None:
        user = {"role": "user", "parts": [{"text": "roll"}]}
        turn = {"user_content": user, "final_response": {"role": "model", "parts": [{"text": "you rolled a five"}]}}
        cases = [{"eval_id": name, "conversation": [turn]} for name in self.cases]
        (self.root / "s.evalset.json").write_text(
            json.dumps({"eval_set_id": "s", "eval_cases": cases}, indent=1, ensure_ascii=False)
        )
        (self.root / "recording").mkdir(exist_ok=True)
        lines = []
        for name in self.cases:
            said = {"role": "model", "parts": [{"text": self.answers.get(name, "you rolled a five")}]}
            line = {"agent": "bot", "eval_set": "s", "case": name, "repeat": 0, "case_digest": "x"}
            answered = line | {"turns": [turn | {"final_response": said}]}
            lines += [json.dumps(answered | {"repeat": repeat}) for repeat in range(5)]
        if self.error is not None:
            lines[-1] = json.dumps(line | {"turns": [], "error": self.error})
        (self.root / "recording" / "attempts.jsonl").write_text("\n".join(lines) + "\n")

    def __call__(self, *args: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
        self._write()
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("INPUT_", "GITHUB_"))}
        given = {
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            **self.environ,
            **environ,
        }
        return agent_eval_bytes(*(args or ("run",)), cwd=self.root, env=clean | given)

    def outputs(self) -> dict[str, str]:
        found = re.findall(r"(?ms)^([a-z-]+)<<(agent-eval-[0-9a-f]{32})\n(.*?)\n\2$", self.output.read_text())
        return {name: value for name, _, value in found}


@pytest.fixture
def step(tmp_path: Path) -> Step:
    return Step(tmp_path)


def found(done: subprocess.CompletedProcess[bytes], name: str) -> list[Command]:
    return [one for one in commands(done.stderr) if one.name == name]


def test_a_pass_is_quiet_and_leaves_everything(step: Step) -> None:
    done = step()
    assert done.returncode == 0, done.stderr.decode()
    assert step.outputs() == {
        "verdict": "pass",
        "reason": step.outputs()["reason"],
        "pass-rate": "1.0000",
        "regressions": "0",
        "cost": "",
        "results": ".agent-eval/out/results.json",
        "junit": ".agent-eval/out/junit.xml",
        "comment": ".agent-eval/out/comment.md",
        "report": ".agent-eval/out/report.html",
    }
    assert not [one for one in commands(done.stderr) if one.name in {"error", "warning", "notice"}]
    assert "All 2 cases" in step.summary.read_text()


def test_the_first_line_names_the_version_unless_the_step_is_quiet(step: Step) -> None:
    assert step("run").stderr.splitlines()[0] == f"agent-eval {__version__}".encode()
    assert f"agent-eval {__version__}".encode() not in step("run", "--quiet").stderr


def test_a_red_step_says_why_once_and_where_the_case_is(step: Step) -> None:
    assert step("baseline", "update").returncode == 0
    step.answers = {"b": "no idea"}
    done = step("run", "--threshold-on", "case")
    assert done.returncode == 1, done.stderr.decode()
    placed, last = found(done, "error")
    lines = (step.root / "s.evalset.json").read_text().splitlines()
    assert placed.properties["file"] == "s.evalset.json"
    assert '"b"' in "".join(lines[int(placed.properties["line"]) - 1 :][:3])
    assert last.properties["title"] == "agent-eval: blocked"
    assert commands(done.stderr)[-1] == last
    assert (step.outputs()["regressions"], step.outputs()["pass-rate"]) == ("1", "0.5000")


def test_cases_that_fail_alike_are_one_annotation(step: Step) -> None:
    step.cases = [f"c{number:02}" for number in range(30)]
    assert step("baseline", "update").returncode == 0
    step.answers = dict.fromkeys(step.cases, "no idea")
    done = step("run", "--threshold-on", "case")
    placed, last = found(done, "error")
    assert "The same cause: c01, c02" in placed.message
    assert placed.message.endswith("and 9 more")
    assert last.properties["title"] == "agent-eval: blocked"


def test_a_usage_error_is_one_annotation_and_closes_every_group(step: Step) -> None:
    done = step("run", "nowhere.evalset.json")
    assert done.returncode == 2
    (only,) = found(done, "error")
    assert "nowhere.evalset.json" in only.message
    assert only.properties["title"] == "agent-eval: nothing was decided"
    assert "nowhere.evalset.json" in step.summary.read_text()
    assert not step.output.exists()
    assert len(found(done, "group")) == len(found(done, "endgroup"))


def test_a_defect_of_ours_is_one_annotation_and_a_report_no_matcher_takes(step: Step) -> None:
    broken = step.root / "site"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(
        "import agent_eval_action.cli.session as session\n"
        "def explode(*_):\n    raise RuntimeError('::error::not mine\\r##[group]x')\n"
        "session.checked = explode\n"
    )
    done = step(PYTHONPATH=os.pathsep.join([str(broken), os.environ.get("PYTHONPATH", "")]))
    assert done.returncode == 70
    (only,) = commands(done.stderr)
    assert only.message.startswith("a defect of agent-eval")
    text = done.stderr.decode()
    assert "| Traceback (most recent call last):" in text
    assert not re.search(r'(?m)^\s*File\s"', text)


def test_a_report_that_cannot_be_written_is_a_warning_and_the_verdict_stands(step: Step) -> None:
    (step.out / "report.html").mkdir(parents=True)
    (step.out / "report.html" / "in-the-way").touch()
    first = step()  # a folder in the place of a file is refused before anything is spent
    assert first.returncode == 3
    (step.out / "report.html" / "in-the-way").unlink()
    (step.out / "report.html").rmdir()
    done = step(GITHUB_STEP_SUMMARY="/dev/full")
    assert done.returncode == 0, done.stderr.decode()
    (warning,) = found(done, "warning")
    assert "summary could not be written" in warning.message
    assert step.outputs()["verdict"] == "pass"


def test_outside_of_a_workflow_there_are_no_commands_and_no_files(step: Step) -> None:
    done = step(GITHUB_ACTIONS="")
    assert done.returncode == 0
    assert commands(done.stderr) == []
    assert not step.output.exists()
    assert not step.summary.exists()


@pytest.fixture
def secret(step: Step) -> tuple[Step, subprocess.CompletedProcess[bytes]]:
    """An agent that says every secret it was given, in answers, in an error and in a traceback."""
    (step.root / "bot" / ".env").write_text(f"SLACK={FROM_DOTENV}\nMODE=production\nDEBUG=1\n")
    step.environ = {
        "INPUT_ENV": f"SERVICE_KEY={KEY}\nNOTE=in plain words\nREGION=us-central1\nPIN=12",
        "INPUT_GITHUB-TOKEN": "ghs_0123456789abcdef",
        "DEPLOY_PRIVATE_KEY": MULTILINE,
    }
    everything = f"{KEY} {FROM_DOTENV} ghs_0123456789abcdef {MULTILINE} production us-central1 12"
    step.cases = ["a", "b", "c"]
    step.answers = {"a": everything}
    step.error = {"kind": "exception", "message": everything, "traceback": f"Traceback:\n  {everything}\n"}
    return step, step()


SECRETS = [KEY, FROM_DOTENV, "ghs_0123456789abcdef", *MULTILINE.splitlines()]


@pytest.mark.parametrize("value", SECRETS)
def test_a_secret_is_in_no_file_and_in_the_log_only_to_be_masked(
    secret: tuple[Step, subprocess.CompletedProcess[bytes]], value: str
) -> None:
    step, done = secret
    for path in [*step.out.rglob("*"), step.output, step.summary]:
        if path.is_file():
            assert value not in path.read_text(errors="replace"), path.name
            assert json.dumps(value)[1:-1] not in path.read_text(errors="replace"), path.name
    rest = [line for line in done.stderr.decode().splitlines() if not line.startswith("::add-mask::")]
    assert value not in "\n".join(rest)
    assert value not in done.stdout.decode()
    assert "***" in (step.out / "attempts.jsonl").read_text()


def test_masks_come_before_anything_but_the_version_and_blank_nothing_common(
    secret: tuple[Step, subprocess.CompletedProcess[bytes]],
) -> None:
    _, done = secret
    masked = [one.message for one in found(done, "add-mask")]
    assert set(SECRETS) <= set(masked)
    assert not {"production", "us-central1", "12", "1", ""} & set(masked)
    version, *lines = done.stderr.decode().splitlines()
    assert version == f"agent-eval {__version__}"
    masks = [number for number, line in enumerate(lines) if line.startswith("::add-mask::")]
    assert masks == list(range(len(masks))), "something was printed before the last mask"


def test_nothing_is_masked_where_a_file_takes_the_output(step: Step) -> None:
    step._write()
    with (step.root / "log.txt").open("wb") as log:
        environ = {**os.environ, "GITHUB_ACTIONS": "true", "INPUT_ENV": f"SERVICE_KEY={KEY}"}
        subprocess.run([COMMAND, "run"], cwd=step.root, env=environ, stderr=log, timeout=60, check=False)
    assert KEY not in (step.root / "log.txt").read_text()
