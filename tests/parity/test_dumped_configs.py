"""Configurations as google-adk 2.13 writes them, with every option and every null, are accepted and mean the same."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.config.criteria_files import load_criteria_file
from agent_eval_action.criteria import CRITERIA, build

THRESHOLDS = {"response_evaluation_score": 3.0}
RUBRICS = [{"rubricId": "polite", "rubricContent": {"textProperty": "The answer is polite."}}]
CUSTOM = {"my_metric": {"codeConfig": {"name": "shop.metrics.tone"}}}
SIMULATOR = {"type": "llm_backed", "modelConfiguration": {"temperature": 0.5}}

DUMP = """
import json, sys, warnings
warnings.simplefilter("ignore")
from google.adk.evaluation import eval_metrics as kinds
from google.adk.evaluation.eval_config import EvalConfig

asked = json.load(sys.stdin)
judge = {"judgeModelConfig": {"temperature": 0.1}} if asked["judge"] else {}
KINDS = {
    "tool_trajectory_avg_score": kinds.ToolTrajectoryCriterion,
    "final_response_match_v2": kinds.LlmAsAJudgeCriterion,
    "hallucinations_v1": kinds.HallucinationsCriterion,
    "per_turn_user_simulator_quality_v1": kinds.LlmBackedUserSimulatorCriterion,
    **{name: kinds.RubricsBasedCriterion for name in asked["names"] if name.startswith("rubric_based_")},
}
criteria = {}
for name in asked["names"]:
    options = {"threshold": asked["thresholds"].get(name, 0.5)}
    kind = KINDS.get(name, kinds.BaseCriterion)
    if kind is kinds.RubricsBasedCriterion:
        options["rubrics"] = asked["rubrics"]
    if "judge_model_options" in kind.model_fields:
        options["judgeModelOptions"] = judge
    criteria[name] = kind.model_validate(options)
config = EvalConfig.model_validate(
    {"customMetrics": asked["custom"], "userSimulatorConfig": asked["simulator"]}
)
config.criteria = criteria
print(config.model_dump_json(by_alias=asked["alias"], indent=2))
"""


def dumped(python: Path, **asked: Any) -> str:
    defaults = {"thresholds": THRESHOLDS, "rubrics": RUBRICS, "custom": None, "simulator": None, "judge": False}
    done = subprocess.run(
        [python, "-W", "ignore", "-c", DUMP],
        input=json.dumps({**defaults, **asked}),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def adk_names(python: Path) -> list[str]:
    listing = (
        "import json; from google.adk.evaluation.eval_metrics import PrebuiltMetrics;"
        "print(json.dumps([one.value for one in PrebuiltMetrics]))"
    )
    done = subprocess.run(
        [python, "-W", "ignore", "-c", listing], capture_output=True, text=True, check=True, timeout=120
    )
    names: list[str] = json.loads(done.stdout)
    return names


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize("alias", [False, True])
@pytest.mark.parametrize("judge", [False, True])
def test_every_criterion_as_google_adk_dumps_it(tmp_path, adk213_python, alias, judge):
    names = adk_names(adk213_python)
    assert set(names) <= set(CRITERIA)
    path = tmp_path / "test_config.json"
    path.write_text(dumped(adk213_python, names=names, alias=alias, judge=judge))
    assert "null" in path.read_text()
    config = load_criteria_file(path, workspace=tmp_path)
    built = build(config.specs)
    assert [criterion.name for criterion in built] == names
    assert config.user_simulator_config is None
    assert not any(spec.custom for spec in config.specs)
    for criterion in built:
        options = getattr(criterion, "judge_model_options", None)
        if options is not None:
            assert options.judge_model_config == ({"temperature": 0.1} if judge else None)


def test_a_dumped_custom_metric_and_simulated_user(tmp_path, adk213_python):
    path = tmp_path / "test_config.json"
    text = dumped(adk213_python, names=["my_metric"], alias=True, custom=CUSTOM, simulator=SIMULATOR)
    path.write_text(text)
    config = load_criteria_file(path, workspace=tmp_path)
    (criterion,) = build(config.specs)
    assert criterion.name == "my_metric"
    assert config.user_simulator_config is not None
    assert config.user_simulator_config.model_configuration == {"temperature": 0.5}
