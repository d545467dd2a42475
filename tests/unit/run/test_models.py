from __future__ import annotations

from dataclasses import replace

import pytest

from agent_eval_action import criteria
from agent_eval_action.config.criteria import CriterionSpec
from agent_eval_action.criteria import criterion_info
from agent_eval_action.errors import ConfigError, CredentialsError
from agent_eval_action.results.evalset import ConversationScenario, EvalCase
from agent_eval_action.run.plan import ModelRequirement, Plan, check_models, model_requirements
from tests.unit.run.conftest import planned_set

KEY = {"GOOGLE_API_KEY": "k"}
MATCH = "final_response_match_v2"


def judged(*cases: EvalCase, **options: object) -> Plan:
    spec = CriterionSpec(MATCH, {"threshold": 1.0, "judge_model_options": options})
    (built,) = criteria.build([spec])
    infos = (criterion_info(built, "evals/test_config.json"),)
    return Plan((replace(planned_set(*cases), criteria=(built,), infos=infos),))


def test_a_judge_is_wanted_by_its_criterion_with_its_options() -> None:
    case = EvalCase(eval_id="a", conversation=())
    plan = judged(case, judge_model="gemini-3-flash", judge_model_config={"temperature": 0})
    assert model_requirements(plan) == (
        ModelRequirement(MATCH, "gemini-3-flash", {"temperature": 0}, "evals/test_config.json"),
    )


def test_the_simulator_is_wanted_where_a_user_is_simulated() -> None:
    scenario = ConversationScenario(starting_prompt="Hello", conversation_plan="Say it.")
    plan = judged(EvalCase(eval_id="a", conversation_scenario=scenario))
    assert [one.purpose for one in model_requirements(plan)] == [MATCH, "user_simulator"]
    assert [one.purpose for one in model_requirements(judged(EvalCase(eval_id="a", conversation=())))] == [MATCH]


def test_a_missing_credential_names_the_criterion_the_file_and_what_to_set() -> None:
    with pytest.raises(CredentialsError) as raised:
        check_models([ModelRequirement(MATCH, "gemini-2.5-flash", {}, "evals/test_config.json")], {})
    assert "evals/test_config.json: final_response_match_v2: no credentials for the model `gemini-2.5-flash`" in str(
        raised.value
    )
    assert "GOOGLE_API_KEY" in str(raised.value)


@pytest.mark.parametrize(
    "wanted",
    [ModelRequirement(MATCH, "anthropic/claude"), ModelRequirement(MATCH, "gemini-2.5-flash", {"temprature": 0})],
    ids=["model", "option"],
)
def test_what_is_configured_wrongly_is_no_matter_of_credentials(wanted: ModelRequirement) -> None:
    with pytest.raises(ConfigError):
        check_models([wanted], {})


def test_what_can_be_asked_is_not_refused() -> None:
    check_models([ModelRequirement(MATCH, "gemini-2.5-flash", {"temperature": 0})], KEY)
