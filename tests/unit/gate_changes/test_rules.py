"""Which value of a rule demands less of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agent_eval_action.config.models import (
    AgentDefaults,
    AgentSettings,
    CriterionPolicy,
    Policy,
    Settings,
)
from agent_eval_action.config.option_info import is_looser, is_rule
from agent_eval_action.config.options import AGENT_ENTRY, JUDGING_OPTIONS, OPTIONS
from agent_eval_action.gate_changes.changes import agent_changes, settings_in_force
from agent_eval_action.gate_changes.diff import setting_changes

STRICT_AND_LOOSE: list[tuple[type[BaseModel], str, Any, Any]] = [
    (CriterionPolicy, "mode", "blocking", "advisory"),
    (CriterionPolicy, "mode", "advisory", "off"),
    (CriterionPolicy, "threshold_on", "case", "regression"),
    (CriterionPolicy, "threshold_on", "regression", "suite"),
    (CriterionPolicy, "threshold_on", "suite", "off"),
    (CriterionPolicy, "max_drop", 0.05, 0.1),
    (CriterionPolicy, "max_drop", 0.05, None),
    (CriterionPolicy, "max_rise", 0.1, 0.2),
    (CriterionPolicy, "max_rise", 0.1, None),
    (Policy, "threshold_on", "case", "off"),
    (Policy, "max_drop", 0.05, None),
    (Policy, "max_rise", 0.1, None),
    (Policy, "on_weakened", "fail", "warn"),
    (Policy, "accept", "ignore", "honour"),
    (Policy, "new_cases", "block", "advise"),
    (Policy, "withheld", "fail", "neutral"),
    (Policy, "withheld", "neutral", "pass"),
    (Policy, "agents_see_evals", False, True),
    (Policy, "confidence", 0.95, 0.99),
    (Policy, "min_effect", 0.1, 0.2),
    (Settings, "fail_on", "inconclusive", "fail"),
    (Settings, "fail_on", "fail", "never"),
    (Settings, "repeats", 5, 1),
]


@pytest.mark.parametrize(("model", "rule", "strict", "loose"), STRICT_AND_LOOSE)
def test_a_rule_is_looser_in_one_direction(model, rule, strict, loose):
    assert is_looser(model, rule, strict, loose)
    assert not is_looser(model, rule, loose, strict)
    assert not is_looser(model, rule, strict, strict)


def test_every_rule_of_the_policy_has_a_direction():
    assert all(is_rule(CriterionPolicy, name) for name in CriterionPolicy.model_fields)
    assert {name for name in Policy.model_fields if not is_rule(Policy, name)} == {"criteria", "sets"}


def test_nobody_can_say_which_value_of_another_setting_is_looser():
    assert not is_looser(Settings, "reruns", "off", "on")
    assert not is_looser(Settings, "no_such_setting", 1, 2)


def settings(**values: Any) -> Settings:
    return Settings(workspace=Path("/w"), start=Path("/w"), **values)


def test_a_change_sets_for_itself_what_judges_nothing_and_no_option_more():
    assert {option.name for option in OPTIONS if not option.of_base} == {
        *("agent", "evals", "criteria", "user_simulator", "driver", "recording", "python", "env", "install_env"),
        *("url", "command", "function", "model", "headers"),
        *("initial_session_file", "workers", "paths"),
        *("out", "comment", "comment_detail", "comment_key", "report_url"),
        *(
            "config",
            "case",
            "resume",
            "shard",
            "wave",
            "merge",
            "github_token",
            "ca_bundle",
            "allow_pull_request_target",
        ),
    }
    judging = {option.field[0] for option in JUDGING_OPTIONS}
    assert Settings.model_fields.keys() - judging >= {"workspace", "start", "agents", "agent_defaults"}


def test_each_setting_in_force_is_whose_its_option_says():
    def made(side: str, seconds: float) -> Settings:
        agent = AgentSettings(path=Path("/w/bot"), name="bot", driver=side, timeout_s=seconds)
        defaults = AgentDefaults(driver=side, timeout_s=seconds)
        values = {"cache_dir": Path(side), "out": Path(side), "max_time": seconds, "redact": (side,)}
        return settings(agents=(agent,), agent_defaults=defaults, **values)

    in_force = settings_in_force(made("own", 1), made("base", 2))
    assert (in_force.cache_dir, in_force.out, in_force.max_time) == (Path("base"), Path("own"), 2)
    assert in_force.redact == ("base", "own")
    for agent in (in_force.agent_defaults, *in_force.agents):
        assert (agent.driver, agent.timeout_s) == ("own", 2)


def test_a_setting_that_may_loosen_is_advised_about_and_another_is_noted():
    own = settings(baseline={"remote": "mine"}, reruns="off", concurrency=7, out=Path("/w/elsewhere"))
    found = {item.data["rule"]: item.severity for item in setting_changes(own, settings())}
    assert found == {"baseline.remote": "advisory", "reruns": "advisory", "concurrency": "note"}
    assert {option.key for option in OPTIONS if option.info.may_loosen} == {
        *("baseline.path", "baseline.store", "baseline.branch", "baseline.remote"),
        *("cache_dir", "reruns", "llm.prices", "llm.openai_base_url"),
    }


def test_a_stricter_rule_is_noted_once_where_it_stands_and_a_looser_one_is_left_to_the_weakenings():
    def noted(own: Policy, base: Policy) -> list[tuple[str, str, str, str]]:
        found = setting_changes(settings(policy=own), settings(policy=base))
        return [(item.severity, item.data["rule"], item.data["old"], item.data["new"]) for item in found]

    loose, strict = {"quality": CriterionPolicy(max_drop=0.1)}, {"quality": CriterionPolicy(max_drop=0.05)}
    examples = [
        (Policy(max_drop=0.1), Policy(max_drop=0.05), "gate.max_drop", "0.1", "0.05"),
        (
            Policy(max_drop=0.2, criteria=loose),
            Policy(max_drop=0.2, criteria=strict),
            *("gate.criteria.quality.max_drop", "0.1", "0.05"),
        ),
        (Policy(sets={"s": "advisory"}), Policy(sets={"s": "blocking"}), "gate.sets.s", "advisory", "blocking"),
    ]
    for base, own, *told in examples:
        assert noted(own, base) == [("note", *told)]
        assert noted(base, own) == []
    base, own = (Policy(max_drop=drop, criteria={"quality": CriterionPolicy(max_drop=drop)}) for drop in (0.1, 0.05))
    assert [rule for _, rule, _, _ in noted(own, base)] == ["gate.max_drop"]


def test_every_difference_in_what_describes_an_agent_is_reported():
    then = AgentSettings(path=Path("/w/bot"), name="bot", env={"A": "1"}, workers=2)
    now = AgentSettings(
        path=Path("/w/new"),
        name="bot",
        driver="recorded",
        recording=Path("/w/rec"),
        url="http://localhost:1",
        command=("serve", "a b"),
        function="module:reply",
        model="m",
        headers={"X-Key": "${KEY}"},
        python=Path("/w/py"),
        env={"A": "2"},
        install_env={"B": None},
        workers=3,
    )
    found = {item.data["field"]: item.data["new"] for item in agent_changes([now], [then], {}, Path("/w"))}
    fields = [
        *("path", "driver", "recording", "url", "command", "function", "model", "headers", "python", "env"),
        "install_env",
    ]
    assert list(found) == fields
    assert found["command"] == {"text": "serve 'a b'"}
    renamed = then.model_copy(update={"name": "other"})
    assert [item.data["field"] for item in agent_changes([renamed], [then], {}, Path("/w"))] == ["name"]
    assert {name for name, option in AGENT_ENTRY.items() if option.info.describes_agent} == {"name", *fields}
