from __future__ import annotations

from agent_eval_action.reports.view import COLUMNS, agent_tokens, cost_rows, cost_text, judge_calls, objections
from agent_eval_action.results.run_result import (
    CriterionScore,
    ModelUse,
    RubricScore,
    ScoreStatus,
    SentenceLabel,
    Totals,
    TurnScore,
    Usage,
    Votes,
)


def score(*turns: TurnScore) -> CriterionScore:
    return CriterionScore(criterion="judged", status=ScoreStatus.SCORED, score=0.5, turns=turns)


def rubric(name: str, value: float | None, votes: Votes, **more: object) -> RubricScore:
    return RubricScore.model_validate({"rubric_id": name, "text": name, "score": value, "votes": votes, **more})


def test_a_rubric_that_was_not_met_has_its_votes_and_why() -> None:
    good = rubric("short", 1, Votes(yes=3))
    bad = rubric("polite", 0, Votes(yes=1, no=3, left_out=1), rationale="it shouts", weight=2)
    found = objections(score(TurnScore(turn=0, score=1, rubrics=(good,)), TurnScore(turn=1, rubrics=(good, bad))))
    assert list(found) == [(2, "rubric", "polite", "1 of 4 votes yes, 1 left out, weight 2. it shouts")]


def test_a_rubric_nobody_voted_on_is_neither_met_nor_missed() -> None:
    found = objections(score(TurnScore(turn=0, rubrics=(rubric("polite", None, Votes(left_out=5)),))))
    assert list(found) == [(1, "rubric", "polite", "no vote")]


def test_a_rubric_that_was_graded_has_its_grade() -> None:
    found = objections(score(TurnScore(turn=0, rubrics=(rubric("polite", 0.25, Votes(), rationale="curt"),))))
    assert list(found) == [(1, "rubric", "polite", "graded 0.25. curt")]


def test_sentences_without_support_are_shown() -> None:
    sentences = (
        SentenceLabel(sentence="Hello.", label="not_applicable"),
        SentenceLabel(sentence="There is a pool.", label="unsupported", rationale="nobody said so"),
    )
    found = objections(score(TurnScore(turn=0, sentences=sentences), TurnScore(turn=1, sentences=sentences[:1])))
    assert list(found) == [(1, "unsupported", "There is a pool.", "nobody said so")]


def test_a_cost_that_is_partly_unknown_is_a_lower_bound() -> None:
    known = ModelUse(purpose="agent", provider="", model="m", calls=2, usd=0.5)
    unknown = ModelUse(purpose="judged", provider="openai", model="n", calls=3, unpriced=3, calls_without_usage=1)
    assert cost_text(Totals(uses=(known,), usd=0.5)) == "$0.5000"
    assert cost_text(Totals(uses=(known, unknown), usd=0.5)) == "at least $0.5000"
    assert cost_text(Totals(uses=(unknown,))) == ""
    rows = cost_rows(Totals(uses=(unknown, known)))
    assert rows == [("agent", "m", "2", "0", "0", "0", "$0.5000"), ("judged", "n", "3", "0", "≥ 0", "≥ 0", "–")]
    assert {len(row) for row in rows} == {len(COLUMNS)}


def test_calls_of_agents_are_no_calls_of_judges() -> None:
    agent = ModelUse(purpose="agent", provider="", model="m", calls=2)
    judge = ModelUse(purpose="judged", provider="google", model="m", calls=240, cached=12)
    assert judge_calls(Totals(uses=(agent,))) == ""
    assert judge_calls(Totals(uses=(agent, judge))) == "240 judge calls, 12 more from the cache"
    user = judge.model_copy(update={"purpose": "user_simulator", "calls": 3, "cached": 0})
    assert judge_calls(Totals(uses=(agent, judge, user))) == "243 judge and user calls, 12 more from the cache"


def test_tokens_say_whose_they_are_where_a_cost_beside_them_is_of_more() -> None:
    agent = ModelUse(purpose="agent", provider="", model="m", calls=2)
    judge = ModelUse(purpose="judged", provider="google", model="m", calls=1)
    usage = Usage(model_calls=2, total_tokens=1080)
    assert agent_tokens(Totals()) == ""
    assert agent_tokens(Totals(usage=usage, uses=(agent,))) == "1,080 tokens"
    assert agent_tokens(Totals(usage=usage, uses=(agent, judge))) == "1,080 agent tokens"
    unreported = usage.model_copy(update={"calls_without_usage": 1})
    assert agent_tokens(Totals(usage=unreported, uses=(agent,))) == "at least 1,080 tokens"
