"""Progress in a log: the set-up and each phase are groups that end and are never empty; elsewhere they are lines."""

from __future__ import annotations

import pytest

from agent_eval_action.cli.progress import PlainDisplay, Progress
from agent_eval_action.results.run_result import AttemptKey
from agent_eval_action.run.events import (
    AgentStarted,
    AgentStarting,
    AttemptStarted,
    Notice,
    RerunsPlanned,
    RunPlanned,
    SuiteRead,
)

BUILDS = AgentStarting("bot", "builds its environment from uv.lock (48 packages); this is done once")
STARTED = AgentStarted("bot", "2.13.0", "3.11.7", "built by uv")
SUITE = SuiteRead(("bot",), 2, 1)
FIRST = AttemptStarted(AttemptKey("bot", "set", "a", 0))
LINES = {
    "builds": "bot: builds its environment from uv.lock (48 packages); this is done once",
    "started": "bot: google-adk 2.13.0, Python 3.11.7 (built by uv)",
    "title": "bot  2 cases, 1 criterion  google-adk 2.13.0",
}


class Log:
    """What was said, in order: lines as they are, groups as ``>title`` and ``<``."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def display(self, *, folds: bool = True, details: bool = True) -> PlainDisplay:
        group = (lambda title: self.said.append(f">{title}")) if folds else None
        bar = "| ".__add__
        return PlainDisplay(self.said.append, group, lambda: self.said.append("<"), details=details, excerpt=bar)


@pytest.fixture
def log() -> Log:
    return Log()


def set_up_and_begin(display: PlainDisplay) -> None:
    display(Notice("configuration: agent-eval.yaml", "setup"))
    display(BUILDS)
    display(Notice("not run: 1 eval file of other"))
    display(Notice("the clone is shallow", "warning"))
    display(SUITE)
    display(STARTED)
    display(RunPlanned(attempts=2, cases=2))
    display(FIRST)


def test_the_set_up_is_one_group_and_what_a_reader_needs_stands_outside_of_it(log: Log) -> None:
    with log.display() as display:
        set_up_and_begin(display)
    assert log.said == [
        ">set-up",
        "configuration: agent-eval.yaml",
        LINES["builds"],
        LINES["started"],
        "<",
        "not run: 1 eval file of other",
        "warning: the clone is shallow",
        LINES["title"],
        "run: 2 cases, 2 attempts",
    ]


def test_without_folds_nothing_is_held_back(log: Log) -> None:
    with log.display(folds=False) as display:
        set_up_and_begin(display)
    assert log.said == [
        "configuration: agent-eval.yaml",
        LINES["builds"],
        "not run: 1 eval file of other",
        "warning: the clone is shallow",
        LINES["started"],
        LINES["title"],
        "run: 2 cases, 2 attempts",
    ]


def test_without_details_the_set_up_is_not_shown(log: Log) -> None:
    with log.display(folds=False, details=False) as display:
        set_up_and_begin(display)
    assert [line for line in log.said if line in LINES.values() or "configuration" in line] == [LINES["title"]]


def test_a_phase_is_a_group_once_it_has_a_line_and_ends_where_the_next_begins(log: Log) -> None:
    with log.display() as display:
        display(SUITE)
        display(FIRST)
        display(Notice("inside", "setup"))
        display(RerunsPlanned(1, "rerun", "one case"))
        display(RerunsPlanned(2, "control", "is it as bad?"))
        display(Notice("inside", "setup"))
    title = "bot  2 cases, 1 criterion"
    run = [">run: 2 cases, 0 attempts", "inside", "<"]
    assert log.said == [title, *run, "re-running: one case", ">control: is it as bad?", "inside", "<"]


def test_a_group_ends_also_when_something_breaks_and_what_was_held_back_is_shown(log: Log) -> None:
    def broken() -> None:
        with log.display() as display:
            display(BUILDS)
            display(Notice("no space is left", "warning"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    assert log.said == [">set-up", LINES["builds"], "<", "warning: no space is left"]


def test_what_follows_the_first_line_of_a_warning_is_an_excerpt(log: Log) -> None:
    log.display()(Notice('bot does not start: boom\n  File "a.py", line 3, in f', level="warning"))
    assert log.said == ["warning: bot does not start: boom", '|   File "a.py", line 3, in f']


def test_the_live_line_says_what_the_run_waits_for() -> None:
    progress = Progress()
    assert progress.live_line == "0:00  reading the checkout"
    progress.add(BUILDS)
    progress.add(AgentStarting("other", "imports the agent (configured)"))
    waits = "0:00  bot builds its environment from uv.lock (48 packages) (and 1 more agent)"
    assert progress.live_line == waits
    progress.add(SUITE)
    progress.add(RunPlanned(attempts=2, cases=2))
    assert progress.live_line == waits, "nothing runs yet"
    progress.add(STARTED)
    progress.add(FIRST)
    assert progress.live_line == "0:00  0/2 · 1 running · 0 below threshold"
