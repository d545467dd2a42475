"""The rubric_based_* criteria: which rubrics a turn is judged by, what the judge sees, and what becomes of verdicts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_eval_action.config.criteria import CriterionSpec
from agent_eval_action.criteria import build
from agent_eval_action.criteria.judge import VerdictAnswer, schema_of
from agent_eval_action.criteria.verdicts import RubricCriterion
from agent_eval_action.errors import ConfigError
from agent_eval_action.llm.client import LlmError, LlmRequest
from agent_eval_action.results.evalset import EvalCase, Invocation
from agent_eval_action.results.run_result import CriterionScore, ScoreStatus, Votes
from support.fenced_texts import texts_in
from support.judging import AWAY, rubric, scored, verdicts
from support.scripted_llm import ScriptedLlm
from support.turns import criterion, turn

FINAL = "rubric_based_final_response_quality_v1"
TOOLS = "rubric_based_tool_use_quality_v1"
CONVERSATION = "rubric_based_multi_turn_trajectory_quality_v1"
TYPES = {FINAL: "FINAL_RESPONSE_QUALITY", TOOLS: "TOOL_USE_QUALITY", CONVERSATION: "TRAJECTORY_QUALITY"}
ALL = list(TYPES)


def case(*turns: Invocation, **fields: Any) -> EvalCase:
    wire = [one.model_dump(mode="json", exclude_none=True) for one in turns]
    return EvalCase.model_validate({"eval_id": "case", "conversation": wire, **fields})


def of_turn(text: str, *rubrics: dict[str, Any]) -> Invocation:
    return turn("done", user_content={"parts": [{"text": text}]}, rubrics=list(rubrics))


def properties(request: LlmRequest) -> list[str]:
    return [entry["property"] for entry in json.loads(texts_in(request)["rubrics"])]


def judged(name: str, llm: ScriptedLlm, of: EvalCase, **options: Any) -> CriterionScore:
    return scored(criterion(name, **{"threshold": 0.5, **options}), llm, of.turns, case=of)


def holding(*properties_held: str) -> ScriptedLlm:
    """A judge by whom exactly these properties hold."""
    return ScriptedLlm(
        lambda request: verdicts(*("yes" if text in properties_held else "no" for text in properties(request)))
    )


@pytest.mark.parametrize("name", ALL)
def test_rubrics_of_criterion_case_and_turn_in_this_order_and_of_this_type(name):
    others = [rubric(f"other {number}", type=kind) for number, kind in enumerate([None, "ELSE", *set(TYPES.values())])]
    others = [one for one in others if one["type"] != TYPES[name]]
    own = [rubric("own"), rubric("own too", type="NEVER_FILTERED")]
    of = case(
        of_turn("a", *[{**one, "rubric_id": one["rubric_id"] + "t"} for one in others], rubric("t", type=TYPES[name])),
        rubrics=[*others, rubric("c", type=TYPES[name])],
    )
    llm = holding("It is own.", "It is c.")
    found = judged(name, llm, of, rubrics=own)
    assert properties(llm.asked[0]) == ["It is own.", "It is own too.", "It is c.", "It is t."]
    assert [(one.rubric_id, one.score) for one in found.rubrics] == [("own", 1), ("own too", 0), ("c", 1), ("t", 0)]
    assert found.score == 0.5


@pytest.mark.parametrize("name", [FINAL, TOOLS])
def test_each_turn_is_judged_by_its_own_rubrics(name):
    first, second = rubric("first", type=TYPES[name]), rubric("second", type=TYPES[name])
    of = case(of_turn("a", first), of_turn("b", second), rubrics=[rubric("both", type=TYPES[name])])
    llm = holding("It is both.", "It is second.")
    found = judged(name, llm, of)
    by_turn = [[(one.rubric_id, one.score) for one in each.rubrics] for each in found.turns]
    assert by_turn == [[("both", 1), ("first", 0)], [("both", 1), ("second", 1)]]
    assert [one.score for one in found.turns] == [0.5, 1]
    assert found.score == 0.75
    assert {one.rubric_id: one.score for one in found.rubrics} == {"both": 1, "first": 0, "second": 1}


def test_the_conversation_is_judged_once_by_the_rubrics_of_its_last_turn():
    kind = TYPES[CONVERSATION]
    of = case(of_turn("a", rubric("first", type=kind)), of_turn("b", rubric("last", type=kind)))
    llm = holding()
    found = judged(CONVERSATION, llm, of, rubrics=[rubric("own")])
    assert len(llm.asked) == 3
    assert properties(llm.asked[0]) == ["It is own.", "It is last."]
    assert [one.turn for one in found.turns] == [1]
    texts = texts_in(llm.asked[0])
    assert [entry["user"] for entry in json.loads(texts["conversation"])] == ["a", "b"]


def test_a_case_is_the_mean_over_verdicts_and_not_over_turns():
    kind = TYPES[FINAL]
    of = case(of_turn("a", *(rubric(name, type=kind) for name in "xyz")), of_turn("b", rubric("w", type=kind)))
    found = judged(FINAL, holding("It is x.", "It is y.", "It is z."), of)
    assert [one.score for one in found.turns] == [1, 0]
    assert found.score == 0.75


def test_weights_act_on_turn_and_case():
    of = case(of_turn("a"), of_turn("b"))
    rubrics = [rubric("safe"), rubric("short"), rubric("polite")]
    weights = {"safe": 3, "short": 0.5}
    found = judged(FINAL, holding("It is safe."), of, rubrics=rubrics, weights=weights)
    assert found.score == found.turns[0].score == 3 / 4.5
    assert [one.weight for one in found.rubrics] == [3, 0.5, 1]
    alike = judged(
        FINAL, holding("It is safe."), of, rubrics=rubrics, weights={one["rubric_id"]: 0.1 for one in rubrics}
    )
    assert alike.score == 1 / 3, "exactly: the last bit decides at a threshold"


@pytest.mark.parametrize("weight", [0, -1, float("inf"), float("nan"), "heavy"])
def test_a_weight_is_above_zero(weight):
    with pytest.raises(ConfigError):
        build([CriterionSpec(FINAL, {"threshold": 1, "rubrics": [rubric("a")], "weights": {"a": weight}})])


def test_verdicts_rationales_and_votes_are_kept():
    llm = ScriptedLlm(
        lambda request: verdicts("yes", "no" if request.sample < 3 else "yes", rationale=f"vote {request.sample}")
    )
    found = judged(FINAL, llm, case(of_turn("a")), rubrics=[rubric("a"), rubric("b", "It is brief.")])
    one, two = found.turns[0].rubrics
    assert (one.votes, one.rationale) == (Votes(yes=3), "vote 0")
    assert (two.votes, two.score, two.text) == (Votes(no=3), 0, "It is brief.")
    assert found.rubrics[1].rationale == "vote 0"
    assert found.reason == "turn 1: 1 of 2 rubrics not met: “b” no 3 of 3: vote 0"


def test_a_rubric_over_several_turns_tells_where_it_failed_first():
    llm = ScriptedLlm(
        lambda request: verdicts("no" if texts_in(request)["user_prompt"] in "bc" else "yes", rationale="it rambles")
    )
    found = judged(FINAL, llm, case(*(of_turn(of) for of in "abc")), rubrics=[rubric("short")])
    [merged] = found.rubrics
    assert (merged.score, merged.rationale, merged.votes) == (1 / 3, "turn 2: it rambles", Votes(yes=3, no=6))
    assert found.reason.startswith("turn 2: 1 of 1 rubrics not met: “short” no 3 of 3: it rambles; turn 3: ")


def test_all_met_is_said_in_a_word():
    of = case(of_turn("a"))
    assert judged(FINAL, holding("It is a."), of, rubrics=[rubric("a")]).reason == "turn 1: the one rubric is met"
    many = [rubric(name) for name in "abcde"]
    held = [one["rubric_content"]["text_property"] for one in many]
    assert judged(FINAL, holding(*held), of, rubrics=many).reason == "turn 1: all 5 rubrics are met"
    assert judged(FINAL, holding(), of, rubrics=many).reason.endswith("; and 2 more")


def test_a_rubric_that_was_left_out_is_asked_again():
    def reply(request: LlmRequest) -> str:
        return verdicts("yes", "no") if len(request.messages) > 1 else verdicts("yes", None)

    llm = ScriptedLlm(reply)
    found = judged(FINAL, llm, case(of_turn("a")), rubrics=[rubric("a"), rubric("b")])
    assert found.score == 0.5
    assert [one.votes for one in found.rubrics] == [Votes(yes=3), Votes(no=3)]
    assert "there is no verdict for R2" in llm.asked[-1].messages[-1].text


def test_a_rubric_without_any_verdict_voids_the_turn_and_the_others_are_kept():
    llm = ScriptedLlm(lambda _: verdicts("no", None, None))
    found = judged(FINAL, llm, case(of_turn("a")), rubrics=[rubric("a"), rubric("b"), rubric("c")])
    assert (found.status, found.score, found.passed) == (ScoreStatus.ERROR, None, None)
    assert found.reason == "turn 1: “b”: no verdict: the judge left it out of its answer; and 1 more rubric"
    assert [one.score for one in found.turns[0].rubrics] == [0, None, None]
    assert [one.score for one in found.rubrics] == [0, None, None]


def test_an_outage_in_one_turn_is_an_error_that_keeps_the_others():
    def reply(request: LlmRequest) -> str | LlmError:
        return AWAY if texts_in(request)["user_prompt"] == "b" else verdicts("yes")

    found = judged(FINAL, ScriptedLlm(reply), case(of_turn("a"), of_turn("b")), rubrics=[rubric("x")])
    assert found.status is ScoreStatus.ERROR
    assert found.reason == f"turn 2: “x”: no verdict: {AWAY.message}"
    assert [one.score for one in found.turns] == [1, None]


@pytest.mark.parametrize(
    "planted",
    [
        {"verdicts": [{"rubric": "R9", "rationale": "", "verdict": "yes"}]},
        {"verdicts": [{"rubric": "a", "rationale": "", "verdict": "yes"}]},
        {"verdicts": [{"rubric": "R1", "rationale": "", "verdict": one} for one in ("no", "yes")]},
        {"verdicts": [{"rubric": "R1", "rationale": "", "verdict": "unknown"}]},
        {"verdicts": {"R1": "yes"}},
    ],
)
def test_an_answer_on_something_else_is_no_vote(planted):
    found = judged(FINAL, ScriptedLlm(lambda _: json.dumps(planted)), case(of_turn("a")), rubrics=[rubric("a")])
    assert found.status is ScoreStatus.ERROR


@pytest.mark.parametrize("name", ALL)
def test_a_simulated_conversation_is_judged_by_the_rubrics_of_criterion_and_case(name):
    scenario = {"starting_prompt": "hi", "conversation_plan": "buy"}
    of = EvalCase.model_validate(
        {"eval_id": "s", "conversation_scenario": scenario, "rubrics": [rubric("c", type=TYPES[name])]}
    )
    llm = ScriptedLlm(lambda _: verdicts("yes", "no"))
    made = criterion(name, threshold=0.5, rubrics=[rubric("own")])
    found = scored(made, llm, [turn("x"), turn("y")], case=of)
    assert (found.status, found.score) == (ScoreStatus.SCORED, 0.5)
    assert len(found.turns) == (1 if name == CONVERSATION else 2)


@pytest.mark.parametrize("name", ALL)
def test_what_cannot_be_judged_is_known_from_the_files(name):
    kind = TYPES[name]
    made = criterion(name, threshold=1)
    assert isinstance(made, RubricCriterion)
    none = case(of_turn("a"))
    assert made.check(none) == "there is no rubric to judge by: neither the criterion nor the case has one"
    untyped = case(of_turn("a"), rubrics=[rubric("a"), rubric("b", type="ELSE")])
    assert made.check(untyped).endswith(f"(of type {kind}; there are 2 of other types or of none)")
    twice = case(of_turn("a", rubric("a", type=kind)), rubrics=[rubric("a", type=kind)])
    assert made.check(twice) == "rubric `a` is there twice"
    silent = case(of_turn("a"), rubrics=[{"rubric_id": "a", "rubric_content": {}, "type": kind}])
    assert made.check(silent) == "rubric `a` has no text"
    good = case(of_turn("a"), rubrics=[rubric("a", type=kind)])
    assert made.check(good) == ""
    for bad in (none, untyped, twice, silent):
        llm = ScriptedLlm(lambda _: verdicts("yes"))
        found = scored(made, llm, bad.turns, case=bad)
        assert (found.status, found.reason) == (ScoreStatus.ERROR, made.check(bad))
        assert llm.asked == []


def test_a_turn_without_rubrics_is_named():
    of = case(of_turn("a", rubric("a", type=TYPES[FINAL])), of_turn("b"))
    made = criterion(FINAL, threshold=1)
    assert isinstance(made, RubricCriterion)
    assert made.check(of).startswith("turn 2: there is no rubric to judge by")


def test_a_conversation_needs_rubrics_at_its_last_turn_alone():
    kind = TYPES[CONVERSATION]
    made = criterion(CONVERSATION, threshold=1)
    assert isinstance(made, RubricCriterion)
    assert made.check(case(of_turn("a"), of_turn("b", rubric("b", type=kind)))) == ""
    assert made.check(case(of_turn("a", rubric("a", type=kind)), of_turn("b"))).startswith("turn 2: there is no")


def test_a_weight_of_no_rubric_is_found_over_all_cases():
    kind = TYPES[FINAL]
    made = criterion(FINAL, threshold=1, rubrics=[rubric("own")], weights={"own": 2, "case": 2, "turn": 2})
    assert isinstance(made, RubricCriterion)
    one, two = case(of_turn("a"), rubrics=[rubric("case", type=kind)]), case(of_turn("a", rubric("turn", type=kind)))
    assert made.check_cases([one, two]) == ""
    wrong = "`weights` names `turn`, which is no rubric of the criterion or of a case"
    assert made.check_cases([one]) == wrong
    assert made.check_cases([one, case(of_turn("a", rubric("turn")))]) == wrong, "it is of no type"
    misspelt = criterion(FINAL, threshold=1, rubrics=[rubric("price")], weights={"pirce": 2})
    assert isinstance(misspelt, RubricCriterion)
    assert misspelt.check_cases([]).endswith("; did you mean `price`?")


def strict(schema: dict[str, Any]) -> bool:
    """Whether OpenAI's strict mode takes it: every property required, no others."""
    properties = schema.get("properties", {})
    parts = [*properties.values(), *([schema["items"]] if "items" in schema else [])]
    closed = schema["type"] != "object" or (
        schema["additionalProperties"] is False and set(schema["required"]) == set(properties)
    )
    return closed and all(strict(part) for part in parts)


def test_the_schemas_are_taken_by_every_provider():
    llm = holding()
    judged(FINAL, llm, case(of_turn("a")), rubrics=[rubric("a"), rubric("b")])
    assert strict(dict(llm.asked[0].schema or {}))
    assert strict(schema_of(VerdictAnswer))


@pytest.mark.parametrize(
    ("rubrics", "wrong"),
    [
        ([rubric("a"), rubric("a")], "rubric `a` is there twice"),
        ([{"rubric_id": "a", "rubric_content": {"text_property": " "}}], "rubric `a` has no text"),
        ([{"rubric_id": "a", "rubric_content": {"text": "x"}}], "text"),
    ],
)
def test_bad_rubrics_of_the_criterion_are_refused_when_it_is_built(rubrics, wrong):
    with pytest.raises(ConfigError) as raised:
        build([CriterionSpec(FINAL, {"threshold": 1, "rubrics": rubrics})])
    assert wrong in str(raised.value.problems)


def test_camel_case_is_read():
    options = {
        "threshold": 0.5,
        "judgeModelOptions": {
            "judgeModel": "m",
            "numSamples": 1,
            "parallelismLimit": 2,
            "judgeModelConfig": {"topK": 3},
        },
        "includeIntermediateResponsesInFinal": True,
        "rubrics": [{"rubricId": "a", "rubricContent": {"textProperty": "It is a."}, "type": "ANY"}],
        "weights": {"a": 2},
    }
    llm = holding("It is a.")
    assert judged(FINAL, llm, case(of_turn("a")), **options).score == 1
    [request] = llm.asked
    assert (request.model, request.options) == ("m", {"top_k": 3})


@pytest.mark.parametrize("name", [TOOLS, CONVERSATION])
def test_intermediate_responses_have_an_effect_on_the_final_response_alone(name):
    with pytest.raises(ConfigError) as raised:
        build([CriterionSpec(name, {"threshold": 1, "include_intermediate_responses_in_final": True})])
    assert "has no effect" in str(raised.value.problems)


@pytest.mark.parametrize("name", ALL)
def test_without_a_model_it_is_an_error(name):
    found = scored(criterion(name, threshold=1, rubrics=[rubric("a")]), None, [turn("x")])
    assert (found.status, found.reason) == (ScoreStatus.ERROR, "this run has no model to judge with")


@pytest.mark.parametrize("name", ALL)
def test_missing_turns_are_an_error_and_nobody_is_asked(name):
    llm = ScriptedLlm(lambda _: verdicts("yes"))
    made = criterion(name, threshold=1, rubrics=[rubric("a")])
    for of in (case(of_turn("a"), of_turn("b")), case()):
        assert scored(made, llm, [], case=of).status is ScoreStatus.ERROR
    assert llm.asked == []
