"""Eval files as tests of a real pytest process, whose agent is a server that counts what it is asked."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml

from support.command import pytest_session
from support.model_server.wire import HangConnection, HttpRequest, HttpResponse, json_response
from support.serving import listening

HOSTILE = "a | <b>@everyone\x1b[31m::set-output name=x::y\u202e\x00 [1]"
ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "INPUT_", "GITHUB_"))}
BARE = ENVIRON | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
PLUGIN = ("-p", "agent_eval_action.pytest_plugin")
# As in a terminal: shells have their background processes ignore interrupts.
PYTEST = "import signal, sys, pytest; signal.signal(signal.SIGINT, signal.default_int_handler); sys.exit(pytest.main())"
COUNTS = re.compile(r"(\d+) (passed|failed|xfailed|errors?|deselected|skipped)\b")


class Agent:
    """Says what it is asked, fails for *break*, hangs for *hang*."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.hung = threading.Event()

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        words = json.loads(request.body)["messages"][-1]["content"]
        self.asked.append(words)
        if words == "hang":
            self.hung.set()
            raise HangConnection
        if words == "break":
            return json_response({"error": {"message": "broken"}}, 400)
        return json_response(
            {"choices": [{"message": {"role": "assistant", "content": words}, "finish_reason": "stop"}]}
        )


class Project:
    """A folder with eval files, whose agent answers at an address."""

    def __init__(self, root: Path, agent: Agent, url: str) -> None:
        self.root, self.agent = root, agent
        self.configure(f"agent: {{name: echo, driver: openai, url: {url}/v1}}\n")
        (root / "test_config.json").write_text('{"criteria": {"response_match_score": 0.8}}')

    def configure(self, text: str) -> None:
        (self.root / "agent-eval.yaml").write_text(text)

    def write(self, name: str, *cases: dict[str, Any]) -> Path:
        file = self.root / name
        file.write_text(json.dumps({"eval_set_id": "s", "eval_cases": cases}, indent=1))
        return file

    def start(self, *options: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", PYTEST, *PLUGIN, *options],
            cwd=self.root,
            env=BARE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __call__(self, *options: str, plugins: tuple[str, ...] = ()) -> tuple[Counter[str], str]:
        """How many of each outcome, and what pytest printed."""
        chosen = [word for name in plugins for word in ("-p", name)]
        _, output = pytest_session(*PLUGIN, *chosen, *options, cwd=self.root, env=BARE)
        last = output.rstrip().rpartition("\n")[2]
        return Counter({what.rstrip("s"): int(count) for count, what in COUNTS.findall(last)}), output


def case(name: str, asked: str, expected: str | None = None, **more: Any) -> dict[str, Any]:
    turn = {
        "user_content": {"role": "user", "parts": [{"text": asked}]},
        "final_response": {"role": "model", "parts": [{"text": asked if expected is None else expected}]},
    }
    return {"eval_id": name, "conversation": [turn], **more}


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    agent = Agent()
    with listening(agent) as url:
        yield Project(tmp_path, agent, url)


def test_a_quarantined_case_is_expected_to_fail(project: Project) -> None:
    names = ("bad", "broken", "good")
    project.write("s.evalset.json", case("bad", "hello", "no"), case("broken", "break"), case("good", "hello"))
    held = "".join(f"- {{case: {name}, reason: r, owner: o, until: '9999-01-01'}}\n" for name in names)
    (project.root / ".agent-eval").mkdir()
    (project.root / ".agent-eval/accept.yaml").write_text(held)
    counts, output = project("--agent-eval")
    assert counts == {"passed": 1, "xfailed": 2}, output
    (project.root / ".agent-eval/accept.yaml").write_text(held.replace("9999", "2020"))
    counts, output = project("--agent-eval")
    assert counts == {"passed": 1, "failed": 1, "error": 1}, output


def test_each_case_is_a_test_with_its_scores_and_why_it_fails(project: Project) -> None:
    calls = {"tool_uses": [{"name": "look_up", "args": {"order": 7}}]}
    bad = case("bad", "good morning", "something else", tags=["smoke", "not a name"])
    bad["conversation"][0]["intermediate_data"] = calls
    project.write("s.evalset.json", case("good", "hello"), bad, case("broken", "break"), case(HOSTILE, "hi", "no"))
    counts, output = project("--agent-eval", "--junitxml=out.xml", "-rA")
    assert counts == {"passed": 1, "failed": 2, "error": 1}, output
    assert sorted(project.agent.asked) == ["break", "good morning", "hello", "hi"]
    assert "✗ response_match_score: 0.00, needs ≥ 0.8" in output
    assert "- look_up(order=7)          not called" in output
    assert "1. user: good morning" in output
    assert "ERROR at setup of broken" in output
    assert re.search(r"^not measured: .*broken", output, re.MULTILINE)
    assert "\x1b" not in output
    assert "\u202e" not in output
    found = {test.name: test for suite in JUnitXml.fromfile(str(project.root / "out.xml")) for test in suite}
    assert {name: [type(one).__name__ for one in test.result] for name, test in found.items()} == {
        "good": [],
        "bad": ["Failure"],
        "broken": ["Error"],
        "a | <b>@everyone: :set-output name=x: :y\\u202e [1]": ["Failure"],
    }
    assert [dict(one.attrib) for one in found["good"]._elem.iter("property")] == [
        {"name": "agent_eval.response_match_score", "value": "1.0"}
    ]
    assert "look_up(order=7)" in found["bad"].result[0].text
    assert {file.name for file in (project.root / ".agent-eval").iterdir()} == {".gitignore", "pytest"}


def test_chosen_cases_alone_are_run(project: Project) -> None:
    project.write("s.evalset.json", case("red", "one", tags=["colour"]), case("blue", "two", tags="colour"))
    project.write("t.test.json", case("tall", "three"))
    project.write("other-dataset.json", case("wide", "four"))
    (project.root / "numbers-dataset.json").write_text("[1, 2]")
    (project.root / "tsconfig.test.json").write_text("{}")
    for options, asked in [
        (("--agent-eval", "-k", "red or tall"), ["one", "three"]),
        (("--agent-eval-config=agent-eval.yaml", "-m", "colour", "--strict-markers"), ["one", "two"]),
        (("--agent-eval", "-m", "agent_eval and not colour"), ["four", "three"]),
        (("-o", "agent_eval=true", "s.evalset.json::blue"), ["two"]),
    ]:
        project.agent.asked.clear()
        counts, output = project(*options)
        assert counts["passed"] == len(asked), output
        assert counts["error"] + counts["failed"] == 0, output
        assert sorted(project.agent.asked) == asked


def test_nothing_is_collected_unless_asked_for(project: Project) -> None:
    project.write("s.evalset.json", case("red", "one"))
    counts, output = project()
    assert not counts
    assert "no tests ran" in output


def test_the_first_failure_ends_the_run_before_the_next_file(project: Project) -> None:
    project.write("a.evalset.json", case("one", "1"), case("two", "2", "other"))
    project.write("b.evalset.json", case("three", "3"))
    counts, output = project("--agent-eval", "-x")
    assert counts == {"passed": 1, "failed": 1}, output
    assert sorted(project.agent.asked) == ["1", "2"]
    project.agent.asked.clear()
    counts, output = project("--agent-eval", "--lf")
    assert counts == {"failed": 1}, output
    assert project.agent.asked == ["2"]


def test_workers_run_each_case_once(project: Project) -> None:
    names = [f"case{number}" for number in range(5)]
    project.write("s.evalset.json", *(case(name, name) for name in names), case(HOSTILE, "x", "y"))
    counts, output = project("--agent-eval", "-n", "2", plugins=("xdist",))
    assert counts == {"passed": 5, "failed": 1}, output
    assert sorted(project.agent.asked) == [*names, "x"]


def test_repeats_are_runs_whose_mean_counts(project: Project) -> None:
    project.write("s.evalset.json", case("red", "one"))
    counts, output = project("--agent-eval", "--agent-eval-repeats=3")
    assert counts == {"passed": 1}, output
    assert project.agent.asked == ["one"] * 3


def test_a_file_of_two_agents_is_a_test_for_each(project: Project) -> None:
    address = re.search(r"http\S+/v1", (project.root / "agent-eval.yaml").read_text())
    assert address
    project.configure(
        "agents:\n"
        f"  - {{name: first, driver: openai, url: {address[0]}, evals: [s.evalset.json, t.evalset.json]}}\n"
        f"  - {{name: second, driver: openai, url: {address[0]}, evals: [s.evalset.json]}}\n"
    )
    project.write("s.evalset.json", case("red", "one"), case("blue", "two"))
    project.write("t.evalset.json", case("tall", "three"))
    counts, output = project("--agent-eval", "-v")
    assert counts == {"passed": 5}, output
    assert "s.evalset.json::red[first] PASSED" in output
    assert sorted(project.agent.asked) == ["one", "one", "three", "two", "two"]
    project.agent.asked.clear()
    counts, output = project("--agent-eval", "-k", "second and red or first and blue or tall")
    assert counts["passed"] == 3, output
    assert sorted(project.agent.asked) == ["one", "three", "two"]


def test_a_file_that_cannot_be_used_is_an_error_with_its_line(project: Project) -> None:
    project.write("good.evalset.json", case("red", "one"))
    broken = project.write("broken.evalset.json", case("red", "one"))
    broken.write_text(broken.read_text().replace("user_content", "user_contend"))
    counts, output = project("--agent-eval")
    assert counts == {"error": 1}, output
    assert re.search(r"^broken\.evalset\.json:\d+: ", output, re.MULTILINE)
    assert "Traceback" not in output
    assert not project.agent.asked
    project.configure("agent: {nam: x}\n")
    counts, output = project("--agent-eval", "good.evalset.json")
    assert counts == {"error": 1}, output
    assert "agent-eval.yaml:1: " in output


def test_an_agent_that_does_not_start_is_an_error_of_each_case(project: Project) -> None:
    (project.root / "shop").mkdir()
    (project.root / "shop" / "agent.py").write_text("root_agent = None\n")
    project.configure(f"agent: {{path: shop, python: {sys.executable}}}\n")
    project.write("s.evalset.json", case("red", "one"), case("blue", "two"))
    counts, output = project("--agent-eval")
    assert counts == {"error": 2}, output
    assert len(re.findall(r"^not measured: environment: the configured interpreter", output, re.MULTILINE)) == 2, output


def test_what_the_agent_says_cannot_command_the_terminal(project: Project) -> None:
    words = "\x1b]0;title\x07 ::error::x \x00 \u202e " + "x" * 100_000
    project.write("s.evalset.json", case("long " * 10_000, words, "short"))
    counts, output = project("--agent-eval")
    assert counts == {"failed": 1}, output[:10_000]
    assert len(output) < 50_000
    assert not {"\x1b", "\x07", "\x00", "\u202e"} & set(output)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_an_interrupt_ends_the_run_at_once(project: Project) -> None:
    project.write("s.evalset.json", case("red", "hang"), case("blue", "two"))
    process = project.start("--agent-eval")
    assert project.agent.hung.wait(60)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert "KeyboardInterrupt" in output


def test_an_idle_plugin_imports_nothing_but_itself(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("def test_one(): pass\n")
    (tmp_path / "s.evalset.json").write_text("{}")
    program = (
        "import json, sys, pytest; code = pytest.main(['-q']); print(json.dumps(sorted(sys.modules))); sys.exit(code)"
    )
    listed = []
    for options in ([], ["-p", "no:agent_eval"]):
        environ = ENVIRON | {"PYTEST_ADDOPTS": " ".join(options)}
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True, timeout=60
        )
        listed.append(set(json.loads(done.stdout.rstrip().rpartition("\n")[2])))
    assert listed[0] - listed[1] == {"agent_eval_action", "agent_eval_action.pytest_plugin"}
