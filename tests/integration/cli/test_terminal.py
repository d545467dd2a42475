"""What a person sees at a terminal of 80 and of 140 columns: while a run is at it, at its end, and of the last run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from support.pseudo_terminal import PseudoTerminal
from support.recorded_repository import RecordedRepository

WIDE = "サイコロを振って素数かどうかを確かめる"
LONG = "refund_of_a_booking_that_was_changed_twice_after_payment"
CASES = ("a", "b", LONG, WIDE)
WORSE = (LONG, WIDE)
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9]m")


def turn(answer: str) -> dict[str, Any]:
    return {
        "user_content": {"role": "user", "parts": [{"text": "hello"}]},
        "final_response": {"role": "model", "parts": [{"text": answer}]},
    }


class Repository(RecordedRepository):
    """Four cases with a baseline; an answer that is made worse is in the recording alone."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.write("agent-eval.yaml", "agent: bot\nrecording: recording\ngate: {threshold_on: case}\n")
        self.write(
            "s.evalset.json", json.dumps({"eval_set_id": "s", "eval_cases": [self.case(name) for name in CASES]})
        )
        self.record()
        assert self("run").returncode == 0
        assert self("baseline", "update", "--from", ".agent-eval/out").returncode == 0

    def record(self, worse: tuple[str, ...] = ()) -> None:
        lines = [
            {
                "agent": "bot",
                "eval_set": "s",
                "case": name,
                "repeat": repeat,
                "case_digest": "x",
                "turns": [turn("no idea" if name in worse else "hello there")],
            }
            for name in CASES
            for repeat in range(5)
        ]
        self.write("recording/attempts.jsonl", "".join(json.dumps(line) + "\n" for line in lines))

    def terminal(self, *words: str, width: int = 80, **environ: str) -> PseudoTerminal:
        shown = PseudoTerminal(*words, cwd=self.root, width=width, **environ)
        shown.code = shown.end()
        return shown

    def cases_run(self) -> set[str]:
        results = json.loads((self.root / ".agent-eval/out/results.json").read_text("utf-8"))
        return {case["case"] for owner in results["sets"] for case in owner["cases"]}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.mark.parametrize("width", [80, 140])
def test_a_blocked_run_says_what_differs_and_what_to_type_and_breaks_no_name(
    repository: Repository, width: int
) -> None:
    repository.record(WORSE)
    seen = repository.terminal("run", width=width)
    assert seen.code == 1, seen.text
    assert "reading the checkout" in seen.raw, "from the first moment"
    assert "reading the checkout" not in seen.text, "the live line leaves nothing behind"
    assert "bot  4 cases, 1 criterion" in seen.lines[0]
    assert any(line.startswith("Blocked  2 of 4 cases got worse") for line in seen.lines)
    for name in (LONG, "response_match_score"):
        assert [line for line in seen.lines if name in line], name
    squeezed = seen.text.replace(" ", "")  # a wide character takes two columns of the screen
    assert WIDE in squeezed
    assert "  again    agent-eval run --worse" in seen.lines
    assert [line for line in seen.lines if line.endswith(" agent-eval update")], "for a change that is meant"
    assert "configuration:" not in seen.text
    assert "see its files" not in seen.text


def test_set_up_is_shown_with_verbose_and_with_quiet_nothing_but_the_verdict(repository: Repository) -> None:
    repository.record(WORSE)
    verbose = repository.terminal("run", "-v", width=140)
    assert "configuration: agent-eval.yaml" in verbose.lines
    assert "  junit    .agent-eval/out/junit.xml" in verbose.lines
    quiet = repository.terminal("run", "-q", width=140)
    assert (verbose.code, quiet.code) == (1, 1)
    assert quiet.lines[0].startswith("Blocked  2 of 4 cases got worse")
    assert [line for line in quiet.lines if LONG in line]
    assert not [line for line in quiet.lines if "agent-eval " in line or "report.html" in line]


def test_worse_runs_the_worse_cases_of_the_last_run_and_selectors_narrow_them_down(repository: Repository) -> None:
    repository.record(WORSE)
    assert repository("run").returncode == 1
    again = repository.terminal("run", "--worse", width=140)
    assert again.code == 1
    assert again.lines[0].startswith("running 2 cases that got worse in the last run: ")
    assert LONG in again.lines[0]
    assert repository.cases_run() == {*WORSE}
    narrowed = repository("run", "--last-failed", f"s.evalset.json:a,{LONG}")
    assert narrowed.returncode == 1, narrowed.stderr
    assert repository.cases_run() == {LONG}
    repository.record()
    assert repository("run", "--worse").returncode == 0, "it is better now"
    done = repository("run", "--worse")
    assert done.returncode == 2
    assert "no case got worse in the last run (pass)" in done.stderr
    assert "every case was green" in repository("run", "--last-failed").stderr


def test_without_a_last_run_there_is_nothing_to_run_again(repository: Repository) -> None:
    (repository.root / ".agent-eval/out/results.json").unlink()
    for flag in ("--worse", "--last-failed"):
        done = repository("run", flag)
        assert done.returncode == 2
        assert "there are no results at .agent-eval/out/results.json" in done.stderr
        assert "hint: run `agent-eval run` first" in done.stderr


def test_a_case_that_is_gone_is_reported_and_the_others_are_run(repository: Repository) -> None:
    repository.record(WORSE)
    assert repository("run").returncode == 1
    cases = [repository.case(name) for name in CASES if name != WIDE]
    repository.write("s.evalset.json", json.dumps({"eval_set_id": "s", "eval_cases": cases}))
    done = repository("run", "--worse")
    assert "running 1 case that got worse in the last run" in done.stderr
    assert "1 more case that got worse is not in the eval files of this run" in done.stderr
    assert repository.cases_run() == {LONG}


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize("width", [80, 140])
def test_tables_hold_whole_names_and_say_that_they_work(repository: Repository, width: int) -> None:
    for words in (("baseline", "show"), ("simulate", "--runs", "3")):
        seen = repository.terminal(*words, width=width)
        assert seen.code == 0, seen.text
        assert "…" not in seen.text
        assert "reading main's runs" in seen.raw
        assert "reading main's runs" not in seen.text
        assert [line for line in seen.lines if "response_match_score" in line]
    assert "simulating" in seen.raw
    shown = repository.terminal("baseline", "show", width=width)
    assert [line for line in shown.lines if LONG in line]
    assert WIDE in shown.text.replace(" ", "")


def test_a_pipe_has_whole_rows_for_other_programs(repository: Repository) -> None:
    done = repository("baseline", "show")
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("bot ")]
    assert [row[2] for row in rows] == [*CASES]
    assert all(row[:2] == ["bot", "s"] for row in rows)


@pytest.mark.exhaustive
def test_colours_follow_the_environment(repository: Repository) -> None:
    repository.record(WORSE)
    assert COLOUR.search(repository.terminal("run").raw)
    assert not COLOUR.search(repository.terminal("run", NO_COLOR="1").raw)
    assert COLOUR.search(repository("run", FORCE_COLOR="1").stderr)
    assert "\x1b" not in repository("run").stderr
    plain = repository.terminal("run", CI="true")
    assert "reading the checkout" not in plain.raw, "no line is drawn anew in a log"
    assert "configuration: agent-eval.yaml" in plain.lines


def test_gitlab_folds_the_set_up_into_a_section_that_untrusted_names_cannot_end(repository: Repository) -> None:
    done = repository("run", CI="true", GITLAB_CI="true")
    begin = re.search(
        r"\x1b\[0Ksection_start:\d+:(agent_eval_\d+)\[collapsed=true\]\r?\n?\x1b\[0Kset-up\n", done.stderr
    )
    assert begin, done.stderr
    inside, end, _ = done.stderr[begin.end() :].partition("section_end")
    assert "configuration: agent-eval.yaml" in inside
    assert end
    assert "section_start" not in inside


def test_a_wrong_configuration_is_an_error_and_a_hint(repository: Repository) -> None:
    repository.write("agent-eval.yaml", "agent: bot\nmax_cots: 1\n")
    seen = repository.terminal("run")
    assert seen.code == 2
    assert seen.lines[0].startswith("error: ")
    assert [line for line in seen.lines if "`max_cost`?" in line], "a name is not broken"


def test_an_error_on_a_terminal_does_not_show_what_disarms_its_commands(repository: Repository) -> None:
    seen = repository.terminal("run", "##[group]x.json")
    assert seen.code == 2
    assert "200b" not in "".join(seen.lines)


AGENT = """
import pathlib, time
from google.adk.agents import BaseAgent
while not pathlib.Path(__file__).with_name("go").exists():
    time.sleep(0.02)
root_agent = None
raise RuntimeError("it went")
"""


@pytest.fixture
def waiting(tmp_path: Path, adk213_python: Path) -> Path:
    """An agent whose import ends when a file is there."""
    repository = RecordedRepository(tmp_path)
    repository.write("bot/agent.py", AGENT)
    repository.write("agent-eval.yaml", f"agent: bot\npython: {adk213_python}\n")
    return tmp_path


def test_the_live_line_says_that_it_waits_for_the_import(waiting: Path) -> None:
    seen = PseudoTerminal("run", cwd=waiting)
    seen.wait_for("imports the agent (configured")
    (waiting / "bot/go").touch()
    assert seen.end() == 3, seen.text
    assert "bot does not start: " in seen.text
    assert "it went" in seen.text


def test_ctrl_c_in_the_middle_ends_in_a_verdict_and_a_clean_screen(waiting: Path) -> None:
    seen = PseudoTerminal("run", cwd=waiting)
    seen.wait_for("imports the agent (configured")
    seen.interrupt()
    assert seen.end() == 130, seen.text
    assert "Inconclusive" in seen.text
    assert "imports the agent" not in seen.text
    assert "Traceback" not in seen.text
    assert json.loads((waiting / ".agent-eval/out/results.json").read_text())["status"] == "interrupted"
