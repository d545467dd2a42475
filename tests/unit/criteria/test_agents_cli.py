"""Metrics of agents-cli: what each is given, how it scores, and when it has no score."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.config.criteria_files import load_criteria_file
from agent_eval_action.criteria import build, criterion_digest
from agent_eval_action.criteria.base import Criterion, Sample, ScoringContext
from agent_eval_action.criteria.vertex import instance_of
from agent_eval_action.errors import ConfigError
from agent_eval_action.formats import load_eval_file
from agent_eval_action.llm.client import LlmError, LlmErrorKind, LlmRequest
from agent_eval_action.results.evalset import EvalCase, FunctionReply
from agent_eval_action.results.run_result import CriterionScore, ScoreStatus
from support.scripted_llm import ScriptedLlm
from support.turns import turn

SAMPLES = Path(__file__).parents[2] / "formats" / "samples" / "agents_cli"


def case(file: str, number: int = 0) -> EvalCase:
    return load_eval_file(SAMPLES / file, workspace=SAMPLES).eval_set.eval_cases[number]


HOURS = case("prompts-dataset.json")
ANSWER = turn("From ten to four.")


@dataclass
class ScriptedFunctions:
    reply: FunctionReply
    called: list[tuple[str, Mapping[str, Any], str]] = field(default_factory=list)

    async def call(self, function: str, arguments: Mapping[str, Any], source: str = "") -> FunctionReply:
        self.called.append((function, json.loads(json.dumps(arguments)), source))
        return self.reply


def metric(folder: Path, text: str) -> Criterion:
    path = folder / "eval_config.yaml"
    path.write_text(text)
    (made,) = build(load_criteria_file(path, workspace=folder).specs)
    return made


def score(
    made: Criterion, context: ScoringContext | None = None, *, of: EvalCase = HOURS, actual: Any = ANSWER
) -> CriterionScore:
    return asyncio.run(made.score(Sample(of, (actual,), context=context or ScoringContext())))


def test_the_instance_of_a_table_s_row_is_that_of_a_dataset(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("id,prompt,reference,context\nhours,When?,From ten to four.,shop\n")
    (row,) = load_eval_file(tmp_path / "q.csv", workspace=tmp_path).eval_set.eval_cases
    made = turn("From ten to four.", user_content=row.turns[0].user_content)
    assert instance_of(Sample(row, (made,))) == {
        "eval_case_id": "hours",
        "prompt": {"role": "user", "parts": [{"text": "When?"}]},
        "reference": {"response": {"role": "model", "parts": [{"text": "From ten to four."}]}},
        "context": "shop",
        "agent_data": instance_of(Sample(HOURS, (made,)))["agent_data"],
        "response": {"role": "model", "parts": [{"text": "From ten to four."}]},
    }
    assert score(metric(tmp_path, "metrics_to_run: [exact_match]\n"), of=row, actual=made).score == 1.0


def test_the_instance_of_a_prompt_has_the_case_and_the_answer() -> None:
    assert instance_of(Sample(HOURS, (ANSWER,))) == {
        "eval_case_id": "opening_hours",
        "prompt": {"role": "user", "parts": [{"text": "When are you open on Sunday?"}]},
        "reference": {"response": {"role": "model", "parts": [{"text": "From ten to four."}]}},
        "context": "Sunday: 10:00 to 16:00",
        "rubric_groups": {
            "tone": {
                "rubrics": [{"rubric_id": "polite", "content": {"property": {"description": "The answer is polite."}}}]
            }
        },
        "difficulty": 2,
        "agent_data": {
            "turns": [
                {
                    "turn_index": 0,
                    "turn_id": "turn_0",
                    "events": [
                        {"author": "agent", "content": {"role": "model", "parts": [{"text": "From ten to four."}]}}
                    ],
                }
            ]
        },
        "response": {"role": "model", "parts": [{"text": "From ten to four."}]},
    }


def test_the_answer_belongs_to_the_last_turn_of_a_conversation() -> None:
    turns = instance_of(Sample(case("conversation-dataset.json"), (ANSWER,)))["agent_data"]["turns"]
    assert [[event["author"] for event in turn["events"]] for turn in turns] == [
        ["user", "desk", "model", "tool", "model"],
        ["user", "agent"],
    ]


def test_a_trace_is_its_own_instance() -> None:
    recorded = case("trace-dataset.json")
    assert instance_of(Sample(recorded, recorded.recorded))["agent_data"] == recorded.metric_fields["agent_data"]


FUNCTION = "metrics_to_run: [Tone]\ncustom_metrics:\n- {name: Tone, custom_function_file: tone.py}\n"


@pytest.fixture
def function(tmp_path: Path) -> Criterion:
    (tmp_path / "tone.py").write_text("def evaluate(instance):\n    return 4\n")
    return metric(tmp_path, FUNCTION)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"score": 4.0, "explanation": "friendly"}, (4.0, "friendly")),
        ({"score": -120.5, "explanation": ""}, (-120.5, "tone gave -120.5")),
        ({"score": None}, (None, "tone gave no score")),
        ({"score": "a str"}, (None, "tone gave no score")),
        (None, (None, "tone gave no score")),
        ([], (None, "tone gave no score")),
    ],
)
def test_a_function_gives_a_score_of_any_range_or_none(function: Criterion, value: Any, expected: Any) -> None:
    functions = ScriptedFunctions(FunctionReply(value))
    scored = score(function, ScoringContext(functions=functions))
    assert (scored.score, scored.reason) == expected
    assert scored.status is (ScoreStatus.ERROR if expected[0] is None else ScoreStatus.SCORED)
    ((name, arguments, source),) = functions.called
    assert re.fullmatch("tone-[0-9a-f]{8}", name)
    assert arguments["instance"]["response"]["parts"] == [{"text": "From ten to four."}]
    assert source == "def evaluate(instance):\n    return 4\n"


def test_a_function_that_fails_and_an_answer_without_text_are_not_measured(function: Criterion) -> None:
    failed = score(
        function, ScoringContext(functions=ScriptedFunctions(FunctionReply(error="ValueError: no", traceback="…")))
    )
    assert (failed.status, failed.reason) == (ScoreStatus.ERROR, "ValueError: no")
    functions = ScriptedFunctions(FunctionReply({"score": 1.0}))
    silent = score(function, ScoringContext(functions=functions), actual=turn())
    assert silent.status is ScoreStatus.ERROR
    assert functions.called == []


def test_other_code_is_another_metric(function: Criterion, tmp_path: Path) -> None:
    (tmp_path / "tone.py").write_text("def evaluate(instance):\n    return 5\n")
    assert criterion_digest(metric(tmp_path, FUNCTION)) != criterion_digest(function)


PROMPT = """\
metrics_to_run: [help]
custom_metrics:
- name: help
  prompt_template: 'Rate {"a": 1} Q: {prompt} A: {response} R: {reference} C: {context} D: {difficulty} X: {nobody}'
  judge_model: gemini-2.5-pro
  judge_model_sampling_count: 3
  judge_model_system_instruction: Be strict.
  judge_model_generation_config: {temperature: 0.5}
"""


def test_a_judge_reads_the_prompt_filled_in_and_fenced_and_its_samples_are_averaged(tmp_path: Path) -> None:
    grades = iter([3, 4, 5])
    llm = ScriptedLlm(lambda _: json.dumps({"explanation": "so so", "score": next(grades)}))
    scored = score(metric(tmp_path, PROMPT), ScoringContext(llm=llm))
    assert scored.score == 4.0
    assert scored.details == {"samples": [3.0, 4.0, 5.0]}
    request: LlmRequest = llm.asked[0]
    assert (request.model, request.options, len(llm.asked)) == ("gemini-2.5-pro", {"temperature": 0.5}, 3)
    assert request.system.startswith("Be strict.\n")
    text = re.sub(r"-[0-9a-f]{24}>", ">", request.messages[0].text)
    assert text == (
        'Rate {"a": 1} Q: <prompt>\nWhen are you open on Sunday?\n</prompt> A: <response>\nFrom ten to four.\n'
        "</response> R: <reference>\nFrom ten to four.\n</reference> C: <context>\nSunday: 10:00 to 16:00\n</context> "
        "D: <difficulty>\n2\n</difficulty> X: {nobody}"
    )


def test_a_field_s_name_may_have_capitals(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("id,prompt,reference,Topic\nhours,When?,From ten to four.,shop\n")
    (row,) = load_eval_file(tmp_path / "q.csv", workspace=tmp_path).eval_set.eval_cases
    llm = ScriptedLlm(lambda _: json.dumps({"explanation": "", "score": 4}))
    config = "metrics_to_run: [help]\ncustom_metrics: [{name: help, prompt_template: 'About {Topic}: {response}'}]\n"
    assert score(metric(tmp_path, config), ScoringContext(llm=llm), of=row).score == 4.0
    assert "\nshop\n</Topic-" in llm.asked[0].messages[0].text


def test_a_judge_that_fails_once_gives_no_score(tmp_path: Path) -> None:
    good = json.dumps({"explanation": "", "score": 5})
    away = LlmError(LlmErrorKind.UNAVAILABLE, "503")
    llm = ScriptedLlm(lambda request: away if request.sample == 1 else good)
    scored = score(metric(tmp_path, PROMPT), ScoringContext(llm=llm))
    assert (scored.status, scored.reason) == (ScoreStatus.ERROR, "503")


def test_a_case_without_a_field_of_the_prompt_is_not_applicable(tmp_path: Path) -> None:
    llm = ScriptedLlm(lambda _: "")
    scored = score(metric(tmp_path, PROMPT), ScoringContext(llm=llm), of=case("prompts-dataset.json", 1))
    assert (scored.status, scored.reason) == (ScoreStatus.NOT_APPLICABLE, "the case has no context to fill in")
    assert llm.asked == []


@pytest.mark.parametrize(
    ("name", "answer", "expected"),
    [
        ("exact_match", "From ten to four.", 1.0),
        ("exact_match", "from ten to four.", 0.0),
        ("rouge_1", "ten to four", 2 * 0.75 / 1.75),
        ("rouge_l", "four to ten from", 0.25),
        ("ROUGE_L_SUM", "From ten to four.", 1.0),
        ("bleu", "From ten to four.", 1.0),
    ],
)
def test_computed_metrics(tmp_path: Path, name: str, answer: str, expected: float) -> None:
    made = metric(tmp_path, f"metrics_to_run: [{name}]\n")
    assert score(made, actual=turn(answer)).score == pytest.approx(expected)
    without = case("conversation-dataset.json").model_copy(update={"metric_fields": {"agent_data": {}}})
    assert score(made, of=without).status is ScoreStatus.NOT_APPLICABLE


def test_vertex_ai_is_asked_with_the_case_and_the_group_of_rubrics(tmp_path: Path) -> None:
    made = metric(
        tmp_path,
        "metrics_to_run: [FINAL_RESPONSE_QUALITY]\ncustom_metrics:\n"
        "- {name: FINAL_RESPONSE_QUALITY, metric_spec_parameters: {rubric_group_key: tone}}\n",
    )
    llm = ScriptedLlm(lambda _: json.dumps({"score": 0.5, "explanation": "half of it"}))
    assert score(made, ScoringContext(llm=llm)).score == 0.5
    (request,) = llm.asked
    assert request.model == "vertex_eval/final_response_quality_v2"
    assert request.options["parameters"] == {"rubric_group_key": "tone"}
    assert request.options["eval_case"]["rubric_groups"].keys() == {"tone"}


@pytest.mark.parametrize(
    ("name", "number", "reason"),
    [
        ("grounding", 1, "the case has no context"),
        ("final_response_reference_free", 1, "the case has no rubric_groups"),
    ],
)
def test_a_metric_of_vertex_ai_that_lacks_a_field_is_not_applicable(
    tmp_path: Path, name: str, number: int, reason: str
) -> None:
    scored = score(metric(tmp_path, f"metrics_to_run: [{name}]\n"), of=case("prompts-dataset.json", number))
    assert (scored.status, scored.reason) == (ScoreStatus.NOT_APPLICABLE, reason)


def test_a_metric_of_one_turn_does_not_apply_to_a_conversation(tmp_path: Path) -> None:
    scored = score(metric(tmp_path, "metrics_to_run: [general_quality_v1]\n"), of=case("conversation-dataset.json"))
    assert scored.status is ScoreStatus.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("metrics_to_run: [no_such]", "Vertex AI has no metric `no_such`"),
        ("metrics_to_run: [final_respons_quality]", "did you mean `final_response_quality`?"),
        ("metrics_to_run: []", "metrics_to_run is empty, so there is nothing to measure"),
        ("metrics_to_run: ['']", "should have at least 1 character"),
        (FUNCTION.replace("tone.py", "../../outside.py"), "cannot be read"),
        (FUNCTION.replace("custom_function_file", "custom_funktion"), "did you mean `custom_function`?"),
    ],
)
def test_a_config_that_is_wrong_is_refused_with_what_to_do(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        metric(tmp_path, text)
    assert problem in str(refused.value)
    assert "eval_config.yaml:" in str(refused.value)
