"""The option table is one: its names, keys, flags and inputs are unique, and everything that takes one knows it."""

from __future__ import annotations

import re

import pytest
from pydantic import SecretStr

from agent_eval_action.config.loader import resolve
from agent_eval_action.config.models import (
    ADVISORY,
    AgentDefaults,
    AgentSettings,
    BaselineSettings,
    LlmOptions,
    Policy,
    Settings,
)
from agent_eval_action.config.options import AGENT_OPTIONS, OPTIONS
from agent_eval_action.config.types import ShardOption
from agent_eval_action.criteria import CRITERIA


@pytest.mark.parametrize("attribute", ["name", "key", "flag", "input"])
def test_no_two_options_share_a_spelling(attribute):
    given = [getattr(option, attribute) for option in OPTIONS if getattr(option, attribute)]
    assert len(given) == len(set(given))


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_an_option_is_described_by_a_sentence(option):
    assert re.fullmatch(r"[A-Z].*\.", option.help)
    assert "\n" not in option.help + option.shown
    assert "{" not in option.shown
    assert option.value_type.label
    assert option.info.has_flag or option.key or option.info.action_default or option.name == "merge"  # a command
    assert re.fullmatch(r"[a-z][a-z_]*", option.name)
    assert (option.key is None) == (option.info.scope == "command")


def test_every_field_of_the_settings_is_an_option_except_what_is_found():
    sections = {"agent_defaults": AgentDefaults, "baseline": BaselineSettings, "llm": LlmOptions, "policy": Policy}
    fields = {(section, name) for section, model in sections.items() for name in model.model_fields}
    fields |= {(name,) for name in Settings.model_fields} - {(section,) for section in sections}
    assert {option.field for option in OPTIONS} == fields - {("workspace",), ("start",), ("agents",)}
    assert {option.name for option in AGENT_OPTIONS} == {*AgentDefaults.model_fields, "evals"}
    found = {"path", "name", "evals", "module"}  # `module` by AgentEvaluator
    assert set(AgentSettings.model_fields) == {*AgentDefaults.model_fields, *found}


GIVEN = {
    "whole number": ("7", 7),
    "whole number, or one per model": ("7", {"*": 7}),
    "duration": ("33s", 33.0),
    "number": ("0.6", 0.6),
    "number or percent": ("60%", 0.6),
    "text": ("x y", "x y"),
    "text or list": ("x, y", ("x", "y")),
    "name": ("x", "x"),
    "names, or NAME: value": ("A=b", {"A": "b"}),
    "text or lines": ("x, y\nz", ("x, y", "z")),
    "pattern or list": ("x+", ("x+",)),
    "address": ("http://[::1]:8000/x", "http://[::1]:8000/x"),
    "command": ("python 'a server.py' --port={port}", ("python", "a server.py", "--port={port}")),
    "module:function": ("package.module:reply", "package.module:reply"),
    "headers by name": (
        "Authorization: Bearer ${TOKEN}=\nX-Other: a:b",
        {"Authorization": "Bearer ${TOKEN}=", "X-Other": "a:b"},
    ),
    "shard": ("3/8", ShardOption(number=3, count=8)),
}
"""What an input gives to an option with a value of this kind, and what the settings then have."""


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_a_value_given_by_its_input_arrives_in_its_field(option, tmp_path):
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "agent.py").touch()
    words = option.value_type.metavar.split("|") if "|" in option.value_type.metavar else []
    if option.name in ("agent", "config", "criteria", "user_simulator", "evals", "paths", "python", "driver"):
        text = {"agent": "agent", "driver": "adk"}.get(option.name, "agent/agent.py")
        if option.name in ("config", "user_simulator", "criteria"):
            (tmp_path / "x.yaml").write_text("model: m" if option.name == "user_simulator" else "repeats: 1")
            text = "x.yaml"
        wanted = None
    elif option.value_type.label in ("path", "mapping"):
        text = {"gate_criteria": "x.mode=off", "gate_sets": "x=off", "llm_prices": "m=1/2"}.get(option.name, "folder")
        wanted = tmp_path / text if text == "folder" else None
    elif option.value_type.label == "path or list":
        text, wanted = "a,b", (tmp_path / "a", tmp_path / "b")
    elif option.value_type.label in GIVEN:
        text, wanted = GIVEN[option.value_type.label]
    else:
        text = next(word for word in words if word != str(option.default).lower())
        wanted = text == "true" if isinstance(option.default, bool) else text
    settings = resolve(flags={}, environ={option.variables[1]: text}, cwd=tmp_path).settings
    value = option.of_settings(settings)
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    assert value == wanted or (wanted is None and (value != option.default or option.name == "driver"))


def test_what_advises_by_default_is_a_criterion_that_lower_is_better_for():
    assert {CRITERIA[name].goal for name in ADVISORY} == {"minimize"}
