"""Progress in a log: phases are groups that end, whatever happens in them; elsewhere they are lines."""

from __future__ import annotations

import pytest

from agent_eval_action.cli.progress import PlainDisplay
from agent_eval_action.run.events import Notice, PhaseStarted


class Log:
    """What was said, in order: lines as they are, groups as ``>title`` and ``<``."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def display(self, *, folds: bool = True) -> PlainDisplay:
        group = (lambda title: self.said.append(f">{title}")) if folds else None
        bar = "| ".__add__
        return PlainDisplay(self.said.append, group, lambda: self.said.append("<"), bar)


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_phase_ends_where_the_next_begins_and_the_last_at_the_end(log: Log) -> None:
    with log.display() as display:
        display(Notice("before"))
        display(PhaseStarted("agents", "bot"))
        display(Notice("inside"))
        display(PhaseStarted("run", "2 cases"))
    assert log.said == ["before", ">agents: bot", "inside", "<", ">run: 2 cases", "<"]


def test_a_phase_ends_also_when_something_breaks(log: Log) -> None:
    def broken() -> None:
        with log.display() as display:
            display(PhaseStarted("run"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    assert log.said == [">run: ", "<"]


def test_without_folds_a_phase_is_a_line(log: Log) -> None:
    with log.display(folds=False) as display:
        display(PhaseStarted("agents", "bot"))
    assert log.said == ["agents: bot"]


def test_what_follows_the_first_line_of_a_warning_is_an_excerpt(log: Log) -> None:
    log.display()(Notice('bot does not start: boom\n  File "a.py", line 3, in f', level="warning"))
    assert log.said == ["warning: bot does not start: boom", '|   File "a.py", line 3, in f']
