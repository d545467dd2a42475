"""custom_metrics: what a config may say, what the function is given, and how little of its answer is taken on trust."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.config.criteria_files import load_criteria_file
from agent_eval_action.criteria import build, criterion_digest, criterion_info
from agent_eval_action.criteria.base import Criterion, Sample, ScoringContext
from agent_eval_action.errors import ConfigError
from agent_eval_action.results.evalset import ConversationScenario, EvalCase, FunctionReply
from agent_eval_action.results.run_result import ScoreStatus
from support.turns import sample, turn

TURNS = [turn("hello"), turn("bye")]


@dataclass
class ScriptedFunctions:
    """The user's functions as a test has them."""

    reply: FunctionReply
    called: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    async def call(self, function: str, arguments: Mapping[str, Any], source: str = "") -> FunctionReply:
        assert not source
        self.called.append((function, json.loads(json.dumps(dict(arguments)))))
        return self.reply


def config(folder: Path, options: Any = 0.5, **custom: Any) -> Path:
    entry = {"code_config": {"name": "shop.metrics.tone"}, **custom}
    path = folder / "test_config.json"
    path.write_text(json.dumps({"criteria": {"tone": options}, "custom_metrics": {"tone": entry}}, indent=1))
    return path


def made(folder: Path, options: Any = 0.5, **custom: Any) -> Criterion:
    (criterion,) = build(load_criteria_file(config(folder, options, **custom), workspace=folder).specs)
    return criterion


def scored(criterion: Criterion, reply: FunctionReply, looked_at: Sample | None = None) -> Any:
    functions = ScriptedFunctions(reply)
    looked_at = looked_at or sample([turn("hello"), turn("good bye")], TURNS)
    with_functions = Sample(looked_at.case, looked_at.actual, context=ScoringContext(functions=functions))
    return asyncio.run(criterion.score(with_functions)), functions.called


def value(score: Any, status: str = "PASSED", turns: Any = ()) -> FunctionReply:
    return FunctionReply({"score": score, "status": status, "turns": list(turns)})


def test_name_scale_and_options_are_the_metrics_own(tmp_path):
    info = {"metric_name": "tone", "metric_value_info": {"interval": {"min_value": -1, "max_value": 10}}}
    tone = made(tmp_path, {"threshold": 7, "voice": {"of": ["mine"]}, "camelCase": 1}, metric_info=info)
    assert (tone.name, tone.threshold, tone.scale) == ("tone", 7, (-1, 10))
    assert criterion_info(tone).options == {"voice": {"of": ["mine"]}, "camelCase": 1}
    assert made(tmp_path, -1e9).threshold == -1e9  # no interval: any number is a score


@pytest.mark.parametrize("threshold", ["NaN", "Infinity", "null"])
def test_a_threshold_has_to_be_a_number(tmp_path, threshold):
    path = config(tmp_path, {"threshold": "HERE"})
    path.write_text(path.read_text().replace('"HERE"', threshold))
    with pytest.raises(ConfigError) as raised:
        build(load_criteria_file(path, workspace=tmp_path).specs)
    assert "threshold" in str(raised.value.problems[0])


def test_a_threshold_outside_the_interval_is_refused(tmp_path):
    info = {"metric_name": "tone", "metric_value_info": {"interval": {"min_value": 0, "max_value": 1}}}
    with pytest.raises(ConfigError):
        made(tmp_path, 2, metric_info=info)


@pytest.mark.parametrize("name", ["tone", "shop/metrics.py:tone", "shop..tone", "", "shop.metrics.tone()"])
def test_a_function_that_is_no_path_is_refused_where_it_is_written(tmp_path, name):
    with pytest.raises(ConfigError) as raised:
        made(tmp_path, code_config={"name": name})
    (problem,) = raised.value.problems
    assert problem.line == 8
    assert problem.json_path == "$.custom_metrics.tone.code_config.name"
    assert "package.module.function" in problem.message


def test_another_function_is_another_metric(tmp_path):
    one = criterion_digest(made(tmp_path))
    assert one == criterion_digest(made(tmp_path, 0.7))
    assert one != criterion_digest(made(tmp_path, code_config={"name": "shop.metrics.other"}))
    assert one != criterion_digest(made(tmp_path, {"threshold": 0.5, "voice": 1}))


def test_the_function_gets_the_case_as_adk_gives_it(tmp_path):
    rubric = {"rubric_id": "a", "rubric_content": {"text_property": "is kind"}}
    own = {"rubric_id": "b", "rubric_content": {"text_property": "is short"}}
    case = EvalCase.model_validate(
        {"eval_id": "case", "conversation": [turn("one", rubrics=[own]), turn("two")], "rubrics": [rubric]}
    )
    _, called = scored(made(tmp_path, {"threshold": 0.5, "voice": 1}), value(1.0), Sample(case, tuple(TURNS)))
    ((function, arguments),) = called
    assert function == "shop.metrics.tone"
    criterion = {"threshold": 0.5, "voice": 1}
    assert arguments["metric"] == {"name": "tone", "function": "shop.metrics.tone", "criterion": criterion}
    assert [one["final_response"]["parts"][0]["text"] for one in arguments["actual"]] == ["hello", "bye"]
    assert [one["final_response"]["parts"][0]["text"] for one in arguments["expected"]] == ["one", "two"]
    assert [[r["rubric_id"] for r in one["rubrics"]] for one in arguments["actual"]] == [["a", "b"], ["a"]]
    assert arguments["scenario"] is None


def test_a_simulated_case_has_a_scenario_and_no_reference(tmp_path):
    scenario = ConversationScenario(starting_prompt="hi", conversation_plan="talk")
    _, called = scored(
        made(tmp_path), value(1.0), Sample(EvalCase(eval_id="c", conversation_scenario=scenario), tuple(TURNS))
    )
    assert called[0][1]["expected"] is None
    assert called[0][1]["scenario"] == {"starting_prompt": "hi", "conversation_plan": "talk"}


def test_the_threshold_decides_and_not_what_the_function_says_of_itself(tmp_path):
    turns = [{"score": 0.2, "status": "FAILED"}, {"score": None, "status": "NOT_EVALUATED"}]
    said, _ = scored(made(tmp_path), value(0.6, "FAILED", turns))
    assert (said.status, said.score, said.passed) == (ScoreStatus.SCORED, 0.6, True)
    assert said.reason == "shop.metrics.tone gave 0.6; it says failed itself, but the threshold decides"
    assert [one.score for one in said.turns] == [0.2, None]


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (FunctionReply(error="cannot import shop.metrics.tone", traceback="trace"), "cannot import shop.metrics.tone"),
        (value(None, "NOT_EVALUATED"), "shop.metrics.tone gave no score (its status: NOT_EVALUATED)"),
        (value("nan"), "its score is nan, not a number"),
        (value(float("nan")), "its score is nan, not a number"),
        (value(True), "its score is True, not a number"),
        (value(1.0, "PASSED", [{"score": 1.0}]), "it gave scores for 1 turn, and there are 2"),
        (value(1.0, "PASSED", [{"score": 1.0}, {"score": "x"}]), "its score is x, not a number"),
        (FunctionReply(), "'NoneType' object is not subscriptable"),
        (FunctionReply({"score": 1.0}), "'status'"),
        (FunctionReply([1]), "list indices"),
    ],
)
def test_no_score_is_an_error_that_names_the_function_and_its_place(tmp_path, reply, told):
    said, _ = scored(made(tmp_path), reply)
    assert (said.status, said.score, said.passed) == (ScoreStatus.ERROR, None, None)
    assert told in said.reason
    assert "shop.metrics.tone" in said.reason
    assert said.reason.endswith(f"(configured at {tmp_path / 'test_config.json'}:8)")


def test_a_score_outside_the_interval_is_no_score(tmp_path):
    info = {"metric_name": "tone", "metric_value_info": {"interval": {"min_value": 0, "max_value": 1}}}
    said, _ = scored(made(tmp_path, metric_info=info), value(1.5))
    assert said.status is ScoreStatus.ERROR
    assert "gave 1.5, and its interval goes from 0 to 1" in said.reason


def test_turns_that_are_missing_or_no_process_are_errors(tmp_path):
    said, called = scored(made(tmp_path), value(1.0), sample([turn("a"), turn("b")], [turn("a")]))
    assert said.status is ScoreStatus.ERROR
    assert called == []
    without = asyncio.run(made(tmp_path).score(sample([turn("a")], [turn("a")])))
    assert without.status is ScoreStatus.ERROR
    assert "no process for metric functions" in without.reason
