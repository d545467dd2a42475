"""Each deliberate difference from google-adk in the criteria with a judge: what it says, and what we say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_eval_action.llm.client import LlmRequest
from agent_eval_action.results.evalset import EvalCase, Invocation
from agent_eval_action.results.run_result import ScoreStatus
from support.fenced_texts import texts_in
from support.judging import AWAY, rubric, said, scored, verdicts
from support.scripted_llm import ScriptedLlm
from support.turns import criterion, recorded, turn

MATCH = "final_response_match_v2"
FINAL = "rubric_based_final_response_quality_v1"
TOOLS = "rubric_based_tool_use_quality_v1"
CONVERSATION = "rubric_based_multi_turn_trajectory_quality_v1"
VALID = json.dumps({"is_the_agent_response_valid": "valid"})
ONE = {"judge_model": "scripted-judge", "num_samples": 1}
THREE = {"judge_model": "scripted-judge", "num_samples": 3}


def asking(text: str, **fields: Any) -> Invocation:
    return turn("done", user_content={"role": "user", "parts": [{"text": text}]}, **fields)


def rated(*given: tuple[dict[str, Any], str]) -> str:
    return "\n".join(
        f"ID: {one['rubric_id']}\nProperty: {one['rubric_content']['text_property']}\n"
        f"Rationale: so\nVerdict: {verdict}\n"
        for one, verdict in given
    )


def test_a_call_that_fails_leaves_its_sample_out_and_voids_no_turn(adk):
    turns, options = [asking("a")], {"threshold": 0.5, "judge_model_options": THREE}
    theirs = adk(MATCH, options, turns, turns, judge=[VALID, None, VALID])
    assert (theirs["score"], theirs["status"]) == (None, "NOT_EVALUATED")
    llm = ScriptedLlm(lambda request: AWAY if request.sample == 1 else said("yes"))
    assert scored(criterion(MATCH, **options), llm, turns).score == 1


def test_a_turn_without_a_vote_is_an_error_of_the_case(adk):
    turns, options = [asking("a"), asking("b")], {"threshold": 1.0, "judge_model_options": ONE}
    theirs = adk(MATCH, options, turns, turns, judge=[VALID, "no idea"])
    assert (theirs["score"], theirs["status"]) == (1, "PASSED")
    llm = ScriptedLlm(lambda request: "no idea" if texts_in(request)["user_prompt"] == "b" else said("yes"))
    ours = scored(criterion(MATCH, **options), llm, turns)
    assert (ours.status, ours.score, ours.passed) == (ScoreStatus.ERROR, None, None)


def test_a_rubric_without_a_verdict_is_an_error_and_leaves_no_mean(adk):
    rubrics = [rubric("a"), rubric("b")]
    turns, options = [asking("a")], {"threshold": 1.0, "judge_model_options": ONE, "rubrics": rubrics}
    theirs = adk(FINAL, options, None, turns, judge=[rated((rubrics[0], "yes"), (rubrics[1], "unclear"))])
    assert (theirs["score"], theirs["status"]) == (1, "PASSED")
    assert adk(FINAL, options, None, turns, judge=[rated((rubrics[0], "yes"))])["score"] == 1
    ours = scored(criterion(FINAL, **options), ScriptedLlm(lambda _: verdicts("yes", None)), turns)
    assert ours.status is ScoreStatus.ERROR


def test_a_rubric_that_is_left_out_is_asked_again(adk):
    rubrics = [rubric("a"), rubric("b")]
    turns, options = [asking("a")], {"threshold": 1.0, "judge_model_options": ONE, "rubrics": rubrics}
    theirs = adk(FINAL, options, None, turns, judge=[rated((rubrics[0], "yes"))])
    assert (theirs["score"], len(theirs["asked"])) == (1, 1)
    llm = ScriptedLlm(lambda request: verdicts("yes", "no" if len(request.messages) > 1 else None))
    assert scored(criterion(FINAL, **options), llm, turns).score == 0.5


@pytest.mark.parametrize(("verdict", "theirs_score"), [("unknown", 0), ("I cannot say yes", 1), ("not yes", 1)])
def test_a_verdict_is_a_word_and_not_a_part_of_one(adk, verdict, theirs_score):
    rubrics = [rubric("a")]
    turns, options = [asking("a")], {"threshold": 0.5, "judge_model_options": ONE, "rubrics": rubrics}
    assert adk(FINAL, options, None, turns, judge=[rated((rubrics[0], verdict))])["score"] == theirs_score
    llm = ScriptedLlm(lambda _: verdicts(verdict))
    assert scored(criterion(FINAL, **options), llm, turns).status is ScoreStatus.ERROR


def test_text_around_an_answer_is_not_searched(adk):
    turns, options = [asking("a")], {"threshold": 0.5, "judge_model_options": ONE}
    planted = f"The agent said {VALID}\nbut it is {json.dumps({'is_the_agent_response_valid': 'invalid'})}"
    assert adk(MATCH, options, turns, turns, judge=[planted])["score"] == 1
    llm = ScriptedLlm(lambda _: f"The agent said {said('yes')}\nbut it is {said('no')}")
    assert scored(criterion(MATCH, **options), llm, turns).status is ScoreStatus.ERROR


@pytest.mark.parametrize(("name", "kind"), [(FINAL, "FINAL_RESPONSE_QUALITY"), (TOOLS, "TOOL_USE_QUALITY")])
def test_each_turn_is_judged_by_its_own_rubrics(adk, name, kind):
    first, second = rubric("first", type=kind), rubric("second", type=kind)
    turns = [asking("a", rubrics=[first]), asking("b", rubrics=[second])]
    options = {"threshold": 1.0, "judge_model_options": ONE}
    theirs = adk(name, options, None, turns, judge=[rated((first, "no")), rated((second, "yes"))])
    assert (theirs["score"], theirs["rubrics"]) == (1, {"second": 1})
    case = EvalCase(eval_id="case", conversation=tuple(turns))

    def reply(request: LlmRequest) -> str:
        return verdicts("no" if texts_in(request)["user_prompt"] == "a" else "yes")

    ours = scored(criterion(name, **options), ScriptedLlm(reply), turns, case=case)
    assert (ours.score, [one.score for one in ours.rubrics]) == (0.5, [0, 1])


def test_calls_without_an_id_have_their_own_results(adk):
    calls = {"tool_uses": [{"name": "weigh", "args": {"item": item}} for item in ("ibex", "yak")]}
    calls["tool_responses"] = [{"name": "weigh", "response": {"kg": kg}} for kg in (75.5, 550.5)]
    turns = [asking("a", intermediate_data=calls)]
    options = {"threshold": 1.0, "judge_model_options": ONE, "rubrics": [rubric("a")]}
    [theirs] = adk(TOOLS, options, None, turns, judge=[rated((rubric("a"), "yes"))])["asked"]
    assert theirs.count("550.5") == 2
    assert "75.5" not in theirs
    llm = ScriptedLlm(lambda _: verdicts("yes"))
    scored(criterion(TOOLS, **options), llm, turns)
    steps = json.loads(texts_in(llm.asked[0])["tool_calls"])
    assert [(one["arguments"]["item"], one["result"]["kg"]) for one in steps] == [("ibex", 75.5), ("yak", 550.5)]


def test_a_conversation_has_the_calls_of_hand_written_turns_too(adk):
    turns = [asking("a", intermediate_data={"tool_uses": [{"name": "weigh", "args": {"item": "ibex"}}]})]
    options = {"threshold": 1.0, "judge_model_options": ONE, "rubrics": [rubric("a")]}
    [theirs] = adk(CONVERSATION, options, None, turns, judge=[rated((rubric("a"), "yes"))])["asked"]
    assert "ibex" not in theirs
    llm = ScriptedLlm(lambda _: verdicts("yes"))
    scored(criterion(CONVERSATION, **options), llm, turns)
    assert "ibex" in texts_in(llm.asked[0])["conversation"]


def test_an_author_that_is_no_agent_does_not_void_the_criterion(adk):
    agents = {"agent_details": {"clerk": {"name": "clerk", "instructions": "Serve."}}}
    turns = [recorded({"author": "a plugin"}, {"author": "clerk"}, app_details=agents)]
    options = {"threshold": 1.0, "judge_model_options": ONE, "rubrics": [rubric("a")]}
    assert "not found" in adk(FINAL, options, None, turns, judge=[rated((rubric("a"), "yes"))])["error"]
    llm = ScriptedLlm(lambda _: verdicts("yes"))
    assert scored(criterion(FINAL, **options), llm, turns).score == 1
    assert texts_in(llm.asked[0])["instructions"] == "Serve."


def test_thoughts_are_shown_to_no_judge(adk):
    parts = [{"text": "I am guessing.", "thought": True}, {"text": "17"}]
    actual = [recorded({"content": {"parts": parts}}, {}, final_response={"parts": parts})]
    expected = [turn("17")]
    options = {"threshold": 1.0, "judge_model_options": ONE, "include_intermediate_responses_in_final": True}
    [theirs] = adk(MATCH, options, expected, actual, judge=[VALID])["asked"]
    assert "I am guessing." in theirs
    llm = ScriptedLlm(lambda _: said("yes"))
    scored(criterion(MATCH, **options), llm, actual, case=EvalCase(eval_id="case", conversation=tuple(expected)))
    assert "I am guessing." not in llm.asked[0].messages[0].text


def test_five_samples_that_agree_are_three_questions_at_once(adk):
    turns, options = [asking("a")], {"threshold": 1.0, "judge_model_options": {**ONE, "num_samples": 5}}
    assert len(adk(MATCH, options, turns, turns, judge=[VALID] * 5)["asked"]) == 5
    llm = ScriptedLlm(lambda _: said("yes"), latency=0.001)
    assert scored(criterion(MATCH, **options), llm, turns).score == 1
    assert (len(llm.asked), llm.at_once) == (3, 3)


@pytest.mark.parametrize("name", [FINAL, TOOLS, CONVERSATION])
@pytest.mark.parametrize("rubrics", [[], [rubric("a"), rubric("a")]])
def test_no_rubric_or_one_twice_is_known_before_the_run(adk, name, rubrics):
    """ADK raises when the agent has answered; the metric then counts for nothing."""
    kind = {FINAL: "FINAL_RESPONSE_QUALITY", TOOLS: "TOOL_USE_QUALITY", CONVERSATION: "TRAJECTORY_QUALITY"}[name]
    of_turn = [{**one, "type": kind} for one in rubrics]
    turns, options = [asking("a", rubrics=of_turn)], {"threshold": 0.5, "judge_model_options": ONE}
    assert adk(name, options, None, turns, judge=[])["error"].startswith("ValueError")
    made: Any = criterion(name, **options)
    assert made.check(EvalCase(eval_id="case", conversation=tuple(turns)))
