"""A custom metric called by google-adk and by us: the function gets the same arguments, and its score is ours."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.config.criteria_files import load_criteria_file
from agent_eval_action.criteria import build
from agent_eval_action.criteria.base import Sample, ScoringContext
from agent_eval_action.environments.runtime import AgentRuntimeSpec
from agent_eval_action.folders import OutputFolder
from agent_eval_action.processes.metric_functions import MetricFunctions
from agent_eval_action.results.evalset import ConversationScenario, EvalCase, Invocation, Span
from support.turns import recorded, turn

FOLDER = Path(__file__).with_name("custom_metrics")
CONFIG = {
    "criteria": {"mine": {"threshold": 0.25, "tone": {"of": ["voice"]}, "camelCase": 1}},
    "custom_metrics": {"mine": {"code_config": {"name": "custom_metrics.adk_custom_metric.telling"}}},
}


def conversation() -> tuple[list[Invocation], list[Invocation]]:
    call = {"content": {"role": "model", "parts": [{"function_call": {"id": "1", "name": "f", "args": {"x": 1.5}}}]}}
    details = {"agent_details": {"root": {"name": "root", "instructions": "be kind", "tool_declarations": []}}}
    actual = [recorded(call, app_details=details, duration=1.5), turn("bye", invocation_id="b", model_duration=0.25)]
    actual[0] = actual[0].model_copy(update={"spans": (Span(kind="tool", name="f", start=0, seconds=1),)})
    return actual, [turn("done", {"name": "f", "args": {"x": 2}}), turn("bye")]


def dumped(turns: list[Invocation]) -> list[dict[str, Any]]:
    return [one.model_dump(mode="json", exclude_none=True, exclude={"spans"}) for one in turns]


@pytest.mark.exhaustive
@pytest.mark.parametrize("simulated", [False, True])
async def test_the_function_is_called_as_google_adk_calls_it(adk213_python, tmp_path, simulated):
    actual, expected = conversation()
    scenario = ConversationScenario(starting_prompt="hi", conversation_plan="talk", user_persona="NOVICE")
    plan = scenario.model_dump(mode="json", exclude_none=True)
    asked = {"config": CONFIG, "actual": dumped(actual), "expected": dumped(expected), "scenario": None}
    if simulated:
        asked |= {"expected": None, "scenario": plan}
    theirs_file, ours_file = tmp_path / "theirs.json", tmp_path / "ours.json"
    done = subprocess.run(  # noqa: ASYNC221 - nothing else waits
        [str(adk213_python), "-W", "ignore", "-m", "custom_metrics.adk_custom_metric"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        cwd=FOLDER.parent,
        env={**os.environ, "GOOGLE_TOLD_FILE": str(theirs_file)},
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]

    config = tmp_path / "test_config.json"
    config.write_text(json.dumps(CONFIG))
    (mine,) = build(load_criteria_file(config, workspace=tmp_path).specs)
    case = EvalCase(eval_id="case", conversation=tuple(expected))
    if simulated:
        case = EvalCase(eval_id="case", conversation_scenario=scenario)
    functions = MetricFunctions(
        AgentRuntimeSpec(
            path=FOLDER,
            workspace=FOLDER.parent,
            logs=OutputFolder.at(tmp_path),
            name="metrics",
            cache=OutputFolder.at(tmp_path / "cache"),
            python=adk213_python,
            environ={"PATH": "/usr/bin:/bin", "GOOGLE_TOLD_FILE": str(ours_file)},
        )
    )
    try:
        said = await mine.score(Sample(case, tuple(actual), context=ScoringContext(functions=functions)))
    finally:
        await functions.stop()
    assert said.score == json.loads(done.stdout)["score"], said.reason
    assert said.passed
    assert json.loads(ours_file.read_text()) == json.loads(theirs_file.read_text())
