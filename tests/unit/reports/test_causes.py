"""Cases that fail alike are one cause, whatever their arguments and answers are."""

from __future__ import annotations

from typing import Any

import pytest

from agent_eval_action.reports import REPORTS, ReportInput
from agent_eval_action.results.decision import BaselineTrajectory, ChangeKind, PairChange, TurnBrief, Verdict
from agent_eval_action.results.run_result import (
    AttemptError,
    AttemptSummary,
    CaseResult,
    CriterionInfo,
    ErrorKind,
    RubricScore,
    ScoreStatus,
    SentenceLabel,
    SetResult,
    Votes,
)


def fallen(build: Any, name: str, want: tuple[Any, ...], now: tuple[Any, ...], **fields: Any) -> BaselineTrajectory:
    """A case that blocks; main did what is expected."""
    expected = (TurnBrief(user="hello", calls=want),)
    attempt = build.attempt(0.0, turns=(TurnBrief(user="hello", calls=now),))
    one = {"expected": expected, "attempt": attempt, "baseline": build.stat(1.0), "change": -1.0, **fields}
    build.case(name, ChangeKind.NEWLY_FAILING, 0.0, blocking=True, **one)
    return BaselineTrajectory(agent="dice", eval_set="basics", case=name, turns=expected)


def causes(build: Any, *then: BaselineTrajectory) -> list[tuple[str, list[str], list[str]]]:
    report = build.report(Verdict.FAIL, baseline_trajectories=then)
    return [
        (str(cause.text), [view.key.case for view in cause.cases], [str(text) for text in cause.differences])
        for cause in report.causes
    ]


def test_a_call_that_is_missing_everywhere_is_one_cause(build: Any) -> None:
    then = [fallen(build, f"c{n}", (build.call("roll"), build.call("check", n=n)), (build.call("roll"),)) for n in "12"]
    assert causes(build, *then) == [
        (
            "the agent no longer calls `check`",
            ["c1", "c2"],
            ['turn 1: `check(n="1")` not called', 'turn 1: `check(n="2")` not called'],
        )
    ]


@pytest.mark.parametrize(
    ("now", "text"),
    [
        ((("roll", 20), ("roll", 20)), "the agent also calls `roll`"),
        ((("roll", 6),), "the agent calls `roll` with another `sides`"),
        ((), "the agent no longer calls `roll`"),
    ],
)
def test_what_differs_first_is_the_cause(build: Any, now: Any, text: str) -> None:
    then = fallen(build, "a", (build.call("roll", sides=20),), tuple(build.call(n, sides=s) for n, s in now))
    assert [cause for cause, _, _ in causes(build, then)] == [text]


def test_calls_as_on_main_do_not_explain_why_a_case_got_worse(build: Any) -> None:
    want, now = (build.call("roll", sides=20),), (build.call("roll", sides=6),)
    fallen(build, "a", want, now)
    main = BaselineTrajectory(agent="dice", eval_set="basics", case="a", turns=(TurnBrief(calls=now),))
    assert [cause for cause, _, _ in causes(build, main)] == ["`tool_trajectory_avg_score` got worse"]


def test_a_rubric_that_is_not_met_is_a_cause(build: Any) -> None:
    attempt = build.attempt(0.0)
    (score,) = attempt.scores
    rubric = RubricScore(rubric_id="polite", text="be polite", score=0.0, votes=Votes(no=3), rationale="it shouts")
    turn = score.turns[0].model_copy(update={"rubrics": (rubric,)})
    judged = attempt.model_copy(update={"scores": (score.model_copy(update={"turns": (turn,)}),)})
    for name in "ab":
        build.case(name, ChangeKind.NEWLY_FAILING, 0.0, blocking=True, attempt=judged, baseline=build.stat(1.0))
    ((text, cases, differences),) = causes(build)
    assert (text, cases) == ("the rubric `polite` is not met", ["a", "b"])
    assert differences[0] == "turn 1: rubric `polite` not met: 0 of 3 votes yes. it shouts"


def test_a_statement_of_the_agent_that_a_judge_objects_to_is_a_cause(build: Any) -> None:
    attempt = build.attempt(0.0)
    (score,) = attempt.scores
    made_up = SentenceLabel(sentence="It is sunny.", label="unsupported", rationale="nobody said so")
    turn = score.turns[0].model_copy(update={"sentences": (made_up,)})
    judged = attempt.model_copy(update={"scores": (score.model_copy(update={"turns": (turn,)}),)})
    build.case("a", ChangeKind.NEWLY_FAILING, 0.0, blocking=True, attempt=judged, baseline=build.stat(1.0))
    assert causes(build) == [("the agent makes unsupported statements", ["a"], ["turn 1: unsupported: “It is sunny.”"])]


def test_errors_with_one_message_are_one_cause_and_the_table_counts_what_decides(build: Any) -> None:
    for name, message in (("a", "429"), ("b", "429"), ("c", "503"), ("d", "")):
        error = AttemptError(kind=ErrorKind.RATE_LIMITED, message=message, turn=1 if message else None)
        build.case(name, ChangeKind.ERROR, None, errors=1, attempt=build.attempt(None, error=error))
    found = causes(build)
    assert [cases for _, cases, _ in found] == [["a", "b"], ["c"], ["d"]]
    assert found[0][0] == "the model refused calls because there were too many: 429"
    assert found[0][2] == ["rate_limited in turn 2: 429"] * 2
    assert found[2][0] == "the model refused calls because there were too many"


def test_why_a_criterion_could_not_score_is_a_cause(build: Any) -> None:
    attempt = build.attempt(1.0)
    (score,) = attempt.scores
    failed = score.model_copy(update={"status": ScoreStatus.ERROR, "score": None, "reason": "the judge is down"})
    broken = attempt.model_copy(update={"scores": (failed,)})
    for name in "ab":
        build.case(name, ChangeKind.ERROR, None, errors=1, attempt=broken)
    text = "`tool_trajectory_avg_score` has no score: the judge is down"
    assert causes(build) == [(text, ["a", "b"], [text] * 2)]


def test_thirty_agents_have_one_heading_the_worst_first_and_the_rest_counted(build: Any) -> None:
    build.case("a", ChangeKind.NEWLY_FAILING, 0.0, blocking=True, baseline=build.stat(1.0))
    one = build.result(Verdict.FAIL)
    info = (CriterionInfo(name=build.criterion, digest="c"),)
    fine = CaseResult(case="a", digest="d", attempts=(AttemptSummary(repeat=0, scores=build.attempt().scores),))
    others = [SetResult(agent=f"agent_{n:02}", eval_set="s", path="s", criteria=info, cases=(fine,)) for n in range(29)]
    pairs = [
        PairChange(
            agent=owner.agent, eval_set="s", case="a", criterion=build.criterion, kind=ChangeKind.SAME,
            threshold=1.0, current=build.stat(1.0), baseline=build.stat(1.0),
        )
        for owner in others
    ]  # fmt: skip
    decision = one.decision.model_copy(update={"pairs": (*one.decision.pairs, *pairs)})
    text = REPORTS["markdown"](
        ReportInput(one.model_copy(update={"sets": (*one.sets, *others), "decision": decision})), None
    )
    assert "## ❌ Blocked: 1 of 30 agents got worse" in text
    assert "| ❌ | **dice** | 1 of 1 case worse: <code>a</code> |\n| ✅ | 29 others | 29 of 29 cases pass |" in text
