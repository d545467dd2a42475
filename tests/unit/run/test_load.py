"""From discovered files to the plan: which cases of a set are taken, and criteria shared by several sets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_eval_action.config.criteria import CriterionSpec
from agent_eval_action.config.discovery import DiscoveredSet, Discovery
from agent_eval_action.config.models import AgentSettings
from agent_eval_action.errors import UsageError
from agent_eval_action.run.loader import Loader

TURN = {"user_content": {"parts": [{"text": "hi"}]}, "final_response": {"parts": [{"text": "ho"}]}}


def found(folder: Path, criteria: tuple[CriterionSpec, ...] | None = None) -> Discovery:
    agent = AgentSettings(path=folder, name="a", criteria=criteria)
    sets = []
    for name in ("x", "y"):
        file = folder / f"{name}.evalset.json"
        cases = [{"eval_id": f"{name}_{case}", "conversation": [TURN]} for case in ("one", "two", "three")]
        file.write_text(json.dumps({"eval_set_id": name, "eval_cases": cases}))
        sets.append(DiscoveredSet(agent=agent, path=file, key=name))
    return Discovery(tuple(sets))


def taken(loader: Loader, discovery: Discovery) -> list[str]:
    return [item.case.eval_id for planned in loader.plan(discovery, 1).sets for item in planned.cases]


def test_a_case_is_taken_when_any_pattern_matches_it(tmp_path):
    loader = Loader(tmp_path, ("x_t*", "*_one"))
    assert taken(loader, found(tmp_path)) == ["x_one", "x_two", "x_three", "y_one"]


def test_patterns_that_match_nothing_are_an_error(tmp_path):
    with pytest.raises(UsageError, match=r"no case matches z\*, w"):
        Loader(tmp_path, ("z*", "w")).plan(found(tmp_path), 1)
    with pytest.raises(UsageError, match="did you mean `x_three`"):
        Loader(tmp_path, ("x_thre",)).plan(found(tmp_path), 1)


def test_criteria_of_the_configuration_are_built_once_for_every_set(tmp_path):
    specs = (CriterionSpec("response_match_score", {"threshold": 0.5}, at=("criteria", "response_match_score")),)
    first, second = Loader(tmp_path).plan(found(tmp_path, specs), 1).sets
    assert first.criteria is second.criteria
    assert first.criteria[0].threshold == 0.5
