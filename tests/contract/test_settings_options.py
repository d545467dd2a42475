"""The option table is one: its names, keys, flags and inputs are unique, and everything that takes one knows it."""

from __future__ import annotations

import re

import pytest

from agent_eval_action.config.assignment import AgentDefaults
from agent_eval_action.config.options import AGENT_OPTIONS, OPTIONS
from agent_eval_action.config.policy import ADVISORY, CriterionPolicy, Policy
from agent_eval_action.config.settings import Settings
from agent_eval_action.config.types import RULE_KINDS
from agent_eval_action.criteria import CRITERIA


@pytest.mark.parametrize("attribute", ["name", "key", "flag", "input"])
def test_no_two_options_share_a_spelling(attribute):
    given = [getattr(option, attribute) for option in OPTIONS if getattr(option, attribute)]
    assert len(given) == len(set(given))


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_an_option_is_said_in_one_sentence(option):
    assert re.fullmatch(r"[A-Z].*\.", option.help)
    assert "\n" not in option.help + option.shown
    assert option.has_flag or option.key or option.action_default
    assert re.fullmatch(r"[a-z][a-z_]*", option.name)
    assert (option.key is None) == (option.scope == "command")
    assert not option.shown or option.default is None or option.kind.choices or option.default != option.shown


def test_settings_have_a_field_for_every_option_and_none_besides():
    own = {"workspace", "start", "config", "agents", "only_agents", "agent_defaults", "policy"}
    held = {option.name for option in OPTIONS if option.scope != "agent"} - {"agent"} | {"evals"}
    plain = {"threshold_on", "confidence", "min_effect", "max_drop", "max_rise", "on_weakened", "accept"}
    plain |= {"new_cases", "withheld", "agents_see_evals"}
    policy = {*plain, "gate_criteria", "gate_sets"}
    assert set(Settings.model_fields) - own == held - policy - {"config"}
    assert set(Policy.model_fields) == {*plain, "criteria", "sets"}
    assert set(CriterionPolicy.model_fields) == set(RULE_KINDS)
    assert set(AgentDefaults.model_fields) == {option.name for option in AGENT_OPTIONS} - {"evals"}


def test_what_advises_by_default_is_a_criterion_that_lower_is_better_for():
    assert {CRITERIA[name].goal for name in ADVISORY} == {"minimize"}
