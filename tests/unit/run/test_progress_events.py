"""What a person reads while a run is at it: what is run again, why, and how much of it is done."""

from __future__ import annotations

import pytest

from agent_eval_action.cli.progress import PlainDisplay
from agent_eval_action.gate.next_step import Run, Stop, describe_step
from agent_eval_action.gate.pairs import GateState, Pair
from agent_eval_action.reports import formatting as fmt
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.run_result import Attempt, CriterionScore, Purpose, ScoreStatus, Totals
from agent_eval_action.run.events import AttemptFinished, AttemptStarted, RerunsPlanned, RunPlanned, SuiteRead


def key(name: str) -> CaseKey:
    return CaseKey("bot", "set", name)


BOOK = Pair(key("book_flight"), "tool_trajectory_avg_score", ((1.0, 14),), (0.0,), threshold=1.0)
SLOW = Pair(key("slow"), "token_usage_v1", ((100.0, 5),), (140.0,), goal="minimize")
NEAR = Pair(key("near"), "response_match_score", ((0.95, 5),), (0.85,), threshold=0.8)


def test_a_suspect_is_named_with_what_it_did_on_main_and_here() -> None:
    step = Run("rerun", ((key("book_flight"), 4), (key("b"), 4), (key("c"), 4)), "3 cases did worse")
    said = describe_step(step, GateState((NEAR, BOOK)))
    assert said == (
        "3 suspects, 4 more runs each: tool_trajectory_avg_score of book_flight fell from 14/14 to 0/1, and 2 others"
    )


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (NEAR, "1 suspect, 1 more run each: response_match_score of near fell from 0.95 to 0.85"),
        (SLOW, "1 suspect, 1 more run each: token_usage_v1 of slow rose from 100.00 to 140.00"),
    ],
)
def test_scores_are_said_where_counts_would_not_tell(pair: Pair, words: str) -> None:
    assert describe_step(Run("rerun", ((pair.key, 1),), "worse"), GateState((pair,))) == words


def test_a_control_says_how_much_is_run_on_either_side() -> None:
    both = Run("control", ((BOOK.key, 3),), "checking 1 case on main", ((BOOK.key, 2),))
    fell = "tool_trajectory_avg_score of book_flight fell from 14/14 to 0/1"
    assert (
        describe_step(both, GateState((BOOK,))) == f"checking 1 case on main, 3 runs there in turn with 2 here: {fell}"
    )
    alone = Run("control", ((BOOK.key, 3), (key("b"), 3)), "checking 2 cases on main")
    assert describe_step(alone, GateState((BOOK,))) == f"checking 2 cases on main, 6 runs there: {fell}, and 1 other"


def test_the_suite_again_says_the_gates_own_reason() -> None:
    step = Run("suite", ((key("a"), 1), (key("b"), 2)), "the drop of x is in doubt")
    assert describe_step(step, GateState((BOOK,))) == "2 cases, 1 to 2 more runs each: the drop of x is in doubt"
    assert describe_step(Stop("nothing is in doubt"), GateState(())) == "nothing is in doubt"


def finished(purpose: Purpose) -> AttemptFinished:
    score = CriterionScore(criterion="x", status=ScoreStatus.SCORED, score=0.0, passed=False, reason="wrong")
    return AttemptFinished(
        Attempt(agent="bot", eval_set="set", case="a", repeat=0, purpose=purpose, case_digest="d", scores=(score,))
    )


def test_a_log_says_each_phase_and_does_not_repeat_what_is_below() -> None:
    lines: list[str] = []
    display = PlainDisplay(lines.append)
    display(SuiteRead(("bot",), 1, 1, "2c2a3a71cc"))
    display(RunPlanned(attempts=1, cases=1))
    display(AttemptStarted(finished("first").attempt.key))
    display(finished("first"))
    display(RerunsPlanned(2, "rerun", "1 suspect"))
    display(finished("rerun"))
    display(finished("rerun"))
    kept = [line.rpartition(", ")[0] if "attempts," in line else line for line in lines]
    assert kept == [
        "bot  1 case, 1 criterion  compared with main 2c2a3a7",
        "run: 1 case, 1 attempt",
        "  below  set › a › x = 0.00: wrong",
        "  1/1 attempts, 0 running, 1 below threshold",
        "re-running: 1 suspect",
        "  re-running: 3/3 attempts, 0 running, 1 below threshold",
    ]


@pytest.mark.parametrize(
    ("totals", "words"),
    [
        (Totals(attempts=50), "50 attempts"),
        (Totals(attempts=62, extra=12, control=6), "62 attempts: 50 + 12 re-runs, 6 control"),
        (Totals(attempts=51, extra=1), "51 attempts: 50 + 1 re-run"),
        (Totals(attempts=50, control=250), "50 attempts, 250 control"),
    ],
)
def test_attempts_are_counted_by_what_they_were_made_for(totals: Totals, words: str) -> None:
    assert fmt.attempts(totals) == words
