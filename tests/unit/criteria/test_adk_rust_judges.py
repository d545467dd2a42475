"""The judged criteria of ADK-Rust: what a judge is asked, what its grades are worth, and which files ask for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.config.criteria_files import load_criteria_file
from agent_eval_action.criteria import build, criterion_digest
from agent_eval_action.criteria.base import Criterion
from agent_eval_action.errors import ConfigError
from agent_eval_action.llm.client import LlmRequest
from agent_eval_action.results.evalset import EvalCase, Invocation
from agent_eval_action.results.run_result import CriterionScore, ScoreStatus
from support.fenced_texts import texts_in
from support.judging import AWAY, scored
from support.scripted_llm import ScriptedLlm
from support.turns import criterion, turn

JUDGED = ("semantic_match_score", "safety_score", "hallucination_score")
RUBRICS: dict[str, Any] = {
    "rubrics": [
        {"name": "polite", "description": "It is polite.", "weight": 3},
        {"name": "brief", "description": "It is brief.", "levels": [{"score": 1, "description": "one sentence"}]},
    ]
}


def grade(score: float, verdict: str | None = "yes", rationale: str = "because") -> str:
    given = {"rationale": rationale, "score": score} | ({"verdict": verdict} if verdict else {})
    return json.dumps(given)


def judged(
    name: str, llm: ScriptedLlm, expected: list[Invocation], actual: list[Invocation] | None = None, **options: Any
) -> CriterionScore:
    case = EvalCase(eval_id="case", conversation=tuple(expected))
    return scored(criterion(name, **{"threshold": 0.8} | options), llm, actual or expected, case=case)


def read(folder: Path, content: dict[str, Any]) -> tuple[Criterion, ...]:
    path = folder / "test_config.json"
    path.write_text(json.dumps(content, indent=1))
    return build(load_criteria_file(path, workspace=folder).specs)


@pytest.mark.parametrize("name", JUDGED)
@pytest.mark.parametrize(("verdict", "score", "passed"), [("yes", 0.9, True), ("yes", 0.5, False), ("no", 0.0, False)])
def test_a_turn_has_the_judges_grade_and_a_verdict_of_no_is_worth_nothing(name, verdict, score, passed):
    given = 0.9 if verdict == "no" else score
    found = judged(name, ScriptedLlm(lambda _: grade(given, verdict)), [turn("17 euros")])
    assert (found.score, found.passed) == (score, passed)
    assert "because" in found.reason


def test_a_partial_match_counts_as_it_is_graded():
    assert judged("semantic_match_score", ScriptedLlm(lambda _: grade(0.6, "partial")), [turn("x")]).score == 0.6
    assert judged("safety_score", ScriptedLlm(lambda _: grade(0.6, "partial")), [turn("x")]).status == "error"


@pytest.mark.parametrize("name", JUDGED)
def test_every_turn_is_held_to_the_threshold(name):
    llm = ScriptedLlm(lambda request: grade(0.3 if "bad" in str(texts_in(request)) else 1))
    found = judged(name, llm, [turn("good"), turn("bad"), turn("good")])
    assert [one.score for one in found.turns] == [1, 0.3, 1]
    assert (found.score, found.passed) == (0.3, False)


def test_each_judge_sees_what_adk_rust_shows_it():
    seen = {}
    for name in JUDGED:
        llm = ScriptedLlm(lambda _: grade(1))
        judged(name, llm, [turn("17 euros")], [turn("It is 17 €.")])
        (request,) = llm.asked
        seen[name] = texts_in(request)
    prompt = turn().user_content.text
    assert seen == {
        "semantic_match_score": {"reference": "17 euros", "answer": "It is 17 €."},
        "safety_score": {"answer": "It is 17 €."},
        "hallucination_score": {"user_prompt": prompt, "answer": "It is 17 €.", "reference": "17 euros"},
    }


def test_a_turn_without_a_reference_is_left_out_of_the_semantic_match_alone():
    llm = ScriptedLlm(lambda _: grade(1))
    assert judged("semantic_match_score", llm, [turn()], [turn("x")]).status is ScoreStatus.NOT_APPLICABLE
    assert llm.asked == []
    assert judged("hallucination_score", llm, [turn()], [turn("x")]).score == 1
    assert "reference" not in texts_in(llm.asked[0])


@pytest.mark.parametrize("name", [*JUDGED, "rubric_quality_score"])
def test_an_agent_without_a_word_gets_nothing_and_no_judge_is_asked(name):
    options = RUBRICS if name == "rubric_quality_score" else {}
    llm = ScriptedLlm(lambda _: grade(1))
    found = judged(name, llm, [turn("x")], [turn()], **options)
    assert (found.score, found.passed, llm.asked) == (0, False, [])


@pytest.mark.parametrize(
    "reply", ["SAFE: YES\nSCORE: 1.0", '{"score": 1}', grade(1.5), grade(-0.1), grade(1, "SAFE"), ""]
)
def test_an_answer_that_cannot_be_used_is_asked_for_again_and_is_then_no_score(reply):
    llm = ScriptedLlm(lambda _: reply)
    found = judged("safety_score", llm, [turn("x")])
    assert (found.status, found.score, len(llm.asked)) == (ScoreStatus.ERROR, None, 2)


def test_an_outage_in_one_turn_voids_the_case():
    llm = ScriptedLlm(lambda request: AWAY if texts_in(request)["answer"] == "b" else grade(1))
    found = judged("safety_score", llm, [turn("a"), turn("b")])
    assert (found.status, found.score) == (ScoreStatus.ERROR, None)


def test_rubrics_are_asked_one_by_one_and_weighed():
    def answer(request: LlmRequest) -> str:
        return grade(1 if "polite" in texts_in(request)["rubric"] else 0.2, None)

    llm = ScriptedLlm(answer)
    found = judged("rubric_quality_score", llm, [turn("Hello.")], **RUBRICS)
    assert found.score == pytest.approx((3 * 1 + 0.2) / 4)
    assert len(llm.asked) == 2
    assert [(one.rubric_id, one.score, one.weight) for one in found.turns[0].rubrics] == [
        ("polite", 1, 3),
        ("brief", 0.2, 1),
    ]
    assert "one sentence" in texts_in(llm.asked[1])["rubric"]
    lost = judged(
        "rubric_quality_score",
        ScriptedLlm(lambda request: AWAY if "polite" in texts_in(request)["rubric"] else grade(1, None)),
        [turn("Hello.")],
        **RUBRICS,
    )
    assert lost.status is ScoreStatus.ERROR


def test_a_prompt_of_the_users_own_is_filled_once():
    llm = ScriptedLlm(lambda _: grade(1))
    own = "{expected}\n\n{actual}"
    judged("semantic_match_score", llm, [turn("{actual}")], [turn("17")], custom_prompt=own)
    assert texts_in(llm.asked[0]) == {"expected": "{actual}", "actual": "17"}
    judged("semantic_match_score", llm, [turn("{actual}")], [turn("17")], custom_prompt=f"Same? {own} {{x}}")
    assert llm.asked[1].messages[0].text.startswith("Same? <expected-")
    assert llm.asked[1].messages[0].text.endswith("{x}")


def test_more_samples_count_by_their_mean():
    llm = ScriptedLlm(lambda request: grade(1.0 if request.sample else 0.4))
    options = {"judge_model_options": {"num_samples": 3}}
    assert judged("safety_score", llm, [turn("x")], **options).score == pytest.approx(0.8)
    assert len(llm.asked) == 3


def test_a_criteria_file_of_adk_rust_is_read_with_the_judge_it_names(tmp_path):
    config = {
        "semantic_match_score": 0.8,
        "semantic_match_config": {"judge_model": "gemini-2.5-pro", "custom_prompt": None},
        "rubric_quality_score": 0.7,
        "rubric_config": RUBRICS,
        "safety_score": 0.95,
        "hallucination_score": 0.9,
        "custom": [],
    }
    made = read(tmp_path, config)
    assert [(one.name, one.threshold) for one in made] == [
        ("semantic_match_score", 0.8),
        ("rubric_quality_score", 0.7),
        ("safety_score", 0.95),
        ("hallucination_score", 0.9),
    ]
    assert {one.models() for one in made} == {("gemini-2.5-pro",)}
    assert {one.judge_model_options.num_samples for one in made} == {1}
    (default,) = read(tmp_path, {"safety_score": 0.95, "safety_config": None})
    assert default.models() == ("gemini-2.5-flash",)
    assert criterion_digest(default) != criterion_digest(made[2]), "another judge is another measure"


@pytest.mark.parametrize(
    ("added", "line"),
    [
        ({"rubric_config": None}, 2),
        ({"rubric_config": {"rubrics": []}}, 2),
        ({"rubric_config": {"rubrics": RUBRICS["rubrics"] * 2}}, 2),
        ({"rubric_config": {"rubrics": [{"name": "a", "description": "b", "weight": 0}]}}, 2),
        ({"rubric_config": {"rubrics": [{"name": "a", "description": "b", "weight": -1}]}}, 2),
        ({"rubric_config": [1]}, 3),
        ({"rubric_config": RUBRICS, "saftey_score": 1}, 0),
    ],
)
def test_what_cannot_be_scored_is_refused_at_its_line(tmp_path, added, line):
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, {"rubric_quality_score": 0.7, **added})
    (problem, *_) = refused.value.problems
    assert problem.line == (line or len((tmp_path / "test_config.json").read_text().splitlines()) - 1)
