"""What a run will ask, from its plan alone."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

from agent_eval_action import criteria
from agent_eval_action.config.criteria import CriterionSpec
from agent_eval_action.llm.budget import Prices
from agent_eval_action.results.evalset import ConversationScenario, EvalCase
from agent_eval_action.run.plan import Plan, PlannedCase, PlannedSet, estimate_plan

FLASH = "gemini-2.5-flash"
MATCH = CriterionSpec("final_response_match_v2", {"threshold": 0.5, "judge_model_options": {"num_samples": 5}})


def scored_by(planned: PlannedSet, *specs: CriterionSpec) -> PlannedSet:
    """The set, scored by these alone."""
    built = criteria.build(specs)
    return replace(planned, criteria=built, infos=tuple(criteria.criterion_info(one) for one in built))


@pytest.fixture
def kit(scripted: type[Any]) -> Any:
    """The conftest's builders."""
    return sys.modules[scripted.__module__]


def test_votes_of_every_turn_of_every_repeat_are_foreseen(kit: Any) -> None:
    plan = kit.plan(*(kit.case(f"c{n}") for n in range(40)))
    assert estimate_plan(plan, Prices()).sentence == "", "no criterion asks a model"
    judged = Plan((scored_by(plan.sets[0], MATCH),), repeats=2)
    found = estimate_plan(judged, Prices())
    assert (found.calls, found.most_calls) == (40 * 2 * 2 * 3, 40 * 2 * 2 * 5)


def test_a_simulated_users_turns_are_foreseen_at_most(kit: Any) -> None:
    plan = kit.plan(kit.case("a"))
    scenario = ConversationScenario(starting_prompt="Hello", conversation_plan="Ask.")
    item = PlannedCase(EvalCase(eval_id="s", conversation_scenario=scenario), "digest-s")
    played = Plan((replace(plan.sets[0], cases=(item,)),))
    assert estimate_plan(played, Prices()).most_calls == plan.sets[0].simulator.max_allowed_invocations
    assert estimate_plan(played, Prices(), recorded={"bot"}).most_calls == 0, "a recording's user is asked nothing"


def test_a_criterion_asks_nothing_of_cases_it_does_not_apply_to(kit: Any) -> None:
    spec = CriterionSpec("per_turn_user_simulator_quality_v1", {"threshold": 0.5})
    plan = Plan((scored_by(kit.plan(kit.case("fixed")).sets[0], spec),))
    assert estimate_plan(plan, Prices()).most_calls == 0


@pytest.mark.parametrize(
    ("name", "calls", "most"),
    [("hallucinations_v1", 4, 4), ("rubric_based_multi_turn_trajectory_quality_v1", 3, 5)],
    ids=["two calls a turn, no votes", "one question a conversation"],
)
def test_what_a_criterion_asks_by_its_kind(kit: Any, name: str, calls: int, most: int) -> None:
    rubric = {"rubricId": "a", "rubricContent": {"textProperty": "It is."}}
    options = {"threshold": 0.5} | ({"rubrics": [rubric]} if name.startswith("rubric") else {})
    judged = Plan((scored_by(kit.plan(kit.case("a")).sets[0], CriterionSpec(name, options)),))
    found = estimate_plan(judged, Prices())
    assert (found.calls, found.most_calls) == (calls, most)
