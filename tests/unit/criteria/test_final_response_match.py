"""final_response_match_v2: what the judge sees of a turn, and what becomes of its votes."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from agent_eval_action.criteria import criterion_info
from agent_eval_action.criteria.base import Sample, ScoringContext, TurnCriterion
from agent_eval_action.llm.client import LlmError, LlmErrorKind
from agent_eval_action.results.evalset import EvalCase, Invocation
from agent_eval_action.results.run_result import CriterionScore, ScoreStatus, Votes
from support.fenced_texts import texts_in
from support.judging import AWAY, said, scored
from support.scripted_llm import ScriptedLlm
from support.turns import criterion, recorded, turn

NAME = "final_response_match_v2"


def asked(text: str, of: str = "Price?") -> Invocation:
    return turn(text, user_content={"parts": [{"text": of}]})


def match(
    llm: ScriptedLlm, expected: list[Invocation], actual: list[Invocation], threshold: float = 0.5, **options: Any
) -> CriterionScore:
    case = EvalCase(eval_id="case", conversation=tuple(expected))
    return scored(criterion(NAME, threshold=threshold, **options), llm, actual, case=case)


def by_turn(**of: str | LlmError) -> ScriptedLlm:
    """Answers by what the user asked."""
    return ScriptedLlm(lambda request: of[texts_in(request)["user_prompt"]])


def test_the_judge_sees_prompt_reference_and_response():
    llm = ScriptedLlm(lambda _: said("yes"))
    found = match(llm, [asked("17 euros")], [asked("It is 17 €.", of="what the agent was sent")])
    assert (found.score, found.passed) == (1.0, True)
    assert texts_in(llm.asked[0]) == {"user_prompt": "Price?", "reference": "17 euros", "answer": "It is 17 €."}
    assert {request.purpose for request in llm.asked} == {NAME}
    assert [request.sample for request in llm.asked] == [0, 1, 2]


def test_a_turn_is_valid_or_invalid_and_a_case_is_the_mean():
    llm = by_turn(a=said("yes", "all there"), b=said("no", "the price is missing"), c=said("yes"), d=said("yes"))
    turns = [asked("x", of=of) for of in "abcd"]
    found = match(llm, turns, turns, threshold=0.8)
    assert [one.score for one in found.turns] == [1, 0, 1, 1]
    assert (found.score, found.passed) == (0.75, False)
    assert found.reason == "turn 2: invalid 3 of 3: the price is missing"
    assert found.turns[1].votes == Votes(no=3)
    assert found.turns[0].reason == "valid 3 of 3: all there"


def test_a_divided_judge_says_how_the_votes_fell():
    llm = ScriptedLlm(lambda request: said("yes" if request.sample % 2 else "no", f"vote {request.sample}"))
    turns = [asked("x")]
    found = match(llm, turns, turns)
    assert found.turns[0].votes == Votes(yes=2, no=3)
    assert found.reason == "turn 1: invalid 3 of 5: vote 0"
    assert match(llm, turns, turns, judge_model_options={"num_samples": 4}).score == 0, "a tie is invalid"


def test_everything_is_asked_at_once():
    llm = ScriptedLlm(lambda _: said("yes"), latency=0.01)
    turns = [asked("x", of=str(number)) for number in range(4)]
    match(llm, turns, turns)
    assert (len(llm.asked), llm.at_once) == (12, 12)


def test_intermediate_responses_count_on_both_sides_when_asked_for():
    said_before = {"intermediate_data": {"intermediate_responses": [["agent", [{"text": "First."}, {"text": ""}]]]}}
    thought = {"text": "hm", "thought": True}
    events = [
        {"content": {"parts": [thought, {"text": "One"}, {"text": "two."}]}},
        {"content": {"parts": [thought]}},
        {},
    ]
    expected, actual = [turn("Last.", **said_before)], [recorded(*events)]
    for option in ("include_intermediate_responses_in_final", "includeIntermediateResponsesInFinal"):
        llm = ScriptedLlm(lambda _: said("yes"))
        match(llm, expected, actual, **{option: True})
        texts = texts_in(llm.asked[0])
        assert (texts["reference"], texts["answer"]) == ("First.\nLast.", "One\ntwo.\ndone")
    llm = ScriptedLlm(lambda _: said("yes"))
    match(llm, expected, actual)
    assert (texts_in(llm.asked[0])["reference"], texts_in(llm.asked[0])["answer"]) == ("Last.", "done")


@pytest.mark.parametrize(("expected", "actual"), [(turn(), turn("x")), (turn("x"), turn()), (turn(), turn())])
def test_an_empty_side_is_judged_as_in_adk(expected, actual):
    llm = ScriptedLlm(lambda _: said("no"))
    assert match(llm, [expected], [actual]).score == 0
    assert "" in texts_in(llm.asked[0]).values()


def test_a_turn_without_a_vote_is_an_error_and_what_was_measured_is_kept():
    llm = by_turn(a=said("no", "it is wrong"), b=AWAY)
    turns = [asked("x", of=of) for of in "ab"]
    found = match(llm, turns, turns)
    assert (found.status, found.score, found.passed) == (ScoreStatus.ERROR, None, None)
    assert found.reason == f"turn 2: no verdict: {AWAY.message}"
    assert [(one.status, one.score) for one in found.turns] == [(ScoreStatus.SCORED, 0), (ScoreStatus.ERROR, None)]
    assert found.turns[1].votes == Votes(left_out=5)


def test_a_budget_that_ends_in_the_middle_says_what_was_heard():
    spent = LlmError(LlmErrorKind.BUDGET, "the run may spend 1 USD, and has")
    llm = ScriptedLlm(lambda request: spent if request.sample else said("yes"))
    found = match(llm, [asked("x")], [asked("x")])
    assert found.reason == "turn 1: no verdict after 1 yes and 0 no: the run may spend 1 USD, and has"


def test_a_simulated_user_has_no_reference():
    scenario = {"eval_id": "s", "conversation_scenario": {"starting_prompt": "hi", "conversation_plan": "buy"}}
    llm = ScriptedLlm(lambda _: said("yes"))
    found = scored(criterion(NAME, threshold=1), llm, [turn("x")], case=EvalCase.model_validate(scenario))
    assert found.status is ScoreStatus.NOT_APPLICABLE
    assert "needs reference answers" in found.reason
    assert llm.asked == []


def test_without_a_model_it_is_an_error():
    found = scored(criterion(NAME, threshold=1), None, [turn("x")])
    assert (found.status, found.reason) == (ScoreStatus.ERROR, "this run has no model to judge with")


@pytest.mark.parametrize("turns", [(), (turn("x"), turn("y"))])
def test_turns_that_are_missing_are_an_error_and_nobody_is_asked(turns):
    llm = ScriptedLlm(lambda _: said("yes"))
    case = EvalCase(eval_id="case", conversation=turns)
    assert scored(criterion(NAME, threshold=1), llm, [], case=case).status is ScoreStatus.ERROR
    assert llm.asked == []


def test_another_repeat_is_another_vote():
    llm = ScriptedLlm(lambda _: said("yes"))
    scored(criterion(NAME, threshold=1), llm, [turn("x")], repeat=3)
    assert {request.repeat for request in llm.asked} == {3}


def test_a_long_rationale_is_an_excerpt_in_the_reason_and_whole_in_the_details():
    long = "because " * 200
    found = match(ScriptedLlm(lambda _: said("no", long)), [turn("x")], [turn("y")])
    assert len(found.reason) < 300
    assert found.turns[0].details == {"rationale": long.strip()}
    assert match(ScriptedLlm(lambda _: said("no", "")), [turn("x")], [turn("y")]).reason.endswith("no reason given")


def test_what_it_was_judged_by_is_recorded():
    made = criterion(NAME, threshold=1, judge_model_options={"judge_model": "openai/gpt-4.1"})
    info = criterion_info(made)
    assert info.judge == "openai/gpt-4.1"
    assert made.models() == ("openai/gpt-4.1",)
    assert re.fullmatch(r"1\+final_response_match-\d+\.\d+", info.scoring_version)


def test_turns_judged_as_they_arrive_give_the_same_score():
    made, llm = criterion(NAME, threshold=1), ScriptedLlm(lambda _: said("no", "wrong"))
    assert isinstance(made, TurnCriterion)
    whole = scored(made, llm, [turn("x"), turn("y")])

    async def one_by_one() -> CriterionScore:
        turns = (turn("x"), turn("y"))
        case = EvalCase(eval_id="case", conversation=turns)
        given = [Sample(case, turns[: number + 1], context=ScoringContext(llm)) for number in range(2)]
        judged = [await made.score_turn(sample, number) for number, sample in enumerate(given)]
        return await made.aggregate(given[-1], judged)

    assert asyncio.run(one_by_one()) == whole
