"""Merging: defaults < file < INPUT_* < flags, whatever the values and whatever their order."""

from __future__ import annotations

import os
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_eval_action.config.loader import resolve
from agent_eval_action.config.models import CriterionPolicy, Policy
from agent_eval_action.config.options import BY_NAME, OPTIONS
from agent_eval_action.errors import ConfigError

# Values as YAML has them; as text each is its str().
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "repeats": st.integers(1, 1000),
    "concurrency": st.integers(1, 10_000),
    "retries": st.integers(0, 100),
    "workers": st.integers(1, 1024),
    "max_time": st.integers(1, 100_000) | st.integers(1, 500).map(lambda n: f"{n}m"),
    "timeout_s": st.floats(0.001, 1000, allow_nan=False),
    "fail_on": st.sampled_from(["fail", "inconclusive", "never"]),
    "threshold_on": st.sampled_from(["case", "suite", "off"]),
    "max_drop": st.floats(0, 10, allow_nan=False) | st.just("none"),
    "max_rise": st.floats(0, 10, allow_nan=False) | st.integers(0, 500).map(lambda n: f"{n}%"),
    "out": st.sampled_from(["o", "a/b", "a/../x"]),
}
LAYER = st.fixed_dictionaries({}, optional=VALUES)
ON_DISK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def config_of(values: dict[str, Any]) -> str:
    data: dict[str, Any] = {}
    for name, value in values.items():
        section, _, key = str(BY_NAME[name].key).rpartition(".")
        (data.setdefault(section, {}) if section else data)[key] = value
    return yaml.safe_dump(data, sort_keys=False) if data else "agent: dice\n"


def inputs_of(values: dict[str, Any], dashed: bool = True) -> dict[str, str]:
    return {BY_NAME[name].variables[0 if dashed else 1]: str(value) for name, value in values.items()}


def flags_of(values: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}


@ON_DISK
@given(file=LAYER, inputs=LAYER, flags=LAYER, dashed=st.booleans())
def test_the_last_layer_that_says_something_wins(workspace, file, inputs, flags, dashed):
    workspace.agent("dice")
    workspace.write("agent-eval.yaml", config_of(file))
    merged = workspace.resolve(environ=inputs_of(inputs, dashed), **flags_of(flags))
    alone = workspace.resolve(**flags_of({**file, **inputs, **flags}))
    ignore = {"agents", "agent_defaults"} if not file else set()
    assert merged.settings.model_dump(exclude=ignore) == alone.settings.model_dump(exclude=ignore)
    for name in VALUES:
        expected = f"--{name}".replace("_", "-") if name in flags else None
        if expected is None and name in inputs:
            expected = BY_NAME[name].variables[0 if dashed else 1]
        if expected:
            assert merged.origins[name].label == expected
        else:
            assert (name in merged.origins) == (name in file)


@ON_DISK
@given(file=LAYER, inputs=LAYER, flags=LAYER, random=st.randoms(use_true_random=False))
def test_order_says_nothing(workspace, file, inputs, flags, random):
    def shuffled(values: dict[str, Any]) -> dict[str, Any]:
        return dict(random.sample(list(values.items()), len(values)))

    workspace.agent("dice")
    workspace.write("agent-eval.yaml", config_of(file))
    first = workspace.resolve(environ=inputs_of(inputs), **flags_of(flags)).settings
    workspace.write("agent-eval.yaml", config_of(shuffled(file)))
    again = workspace.resolve(environ=inputs_of(shuffled(inputs)), **flags_of(shuffled(flags))).settings
    assert again == first


@ON_DISK
@given(values=LAYER)
def test_what_is_written_down_is_read_back(workspace, values):
    workspace.agent("dice")
    written = workspace.resolve(agent=["dice"], **flags_of(values)).settings
    policy = written.policy
    workspace.write(
        "agent-eval.yaml",
        yaml.safe_dump(
            {
                "agents": [
                    {
                        "path": "dice",
                        "workers": written.agents[0].workers or 1,
                        "timeout_s": written.agents[0].timeout_s,
                    }
                ],
                **{name: getattr(written, name) for name in ("repeats", "concurrency", "retries", "max_time")},
                "out": os.fspath(written.out),
                "gate": {
                    "fail_on": written.fail_on,
                    "threshold_on": policy.threshold_on,
                    "max_drop": policy.max_drop,
                    "max_rise": policy.max_rise,
                },
            }
        ),
    )
    read = workspace.resolve().settings
    (workspace.root / "agent-eval.yaml").unlink()
    same = {"config", "agents", "only_agents", "agent_defaults"}
    assert read.model_dump(exclude=same) == written.model_dump(exclude=same)
    assert read.agents[0].timeout_s == written.agents[0].timeout_s


def test_defaults_are_those_of_the_table(workspace):
    found = workspace.resolve()
    shown = found.settings
    assert found.origins == {}
    assert found.notes == ("no configuration file: defaults",)
    for name in ("repeats", "concurrency", "max_time", "retries", "fail_on", "case", "resume"):
        assert getattr(shown, name) == BY_NAME[name].default, name
    for name in ("baseline", "out", "cache_dir"):
        assert BY_NAME[name].of_settings(shown) == workspace.root / BY_NAME[name].default
    for name in ("threshold_on", "max_drop", "max_rise"):
        assert getattr(shown.policy, name) == BY_NAME[name].default
    for name in ("driver", "recording", "python", "criteria", "env", "workers", "timeout_s", "initial_session_file"):
        assert getattr(shown.agent_defaults, name) == BY_NAME[name].default, name
    assert shown.policy == Policy()


PLACES = {"out": "out: {}", "cache_dir": "cache_dir: {}", "baseline": "baseline: {{path: {}}}"}


@pytest.mark.parametrize("place", ["../x", "/elsewhere", "a/../../x", "a/b/../../../x/y", "/"])
@pytest.mark.parametrize("option", PLACES)
def test_a_file_places_nothing_outside_of_the_workspace(workspace, option, place):
    workspace.write("agent-eval.yaml", f"repeats: 1\n{PLACES[option].format(place)}\n")
    (said,) = workspace.refused()
    assert said.startswith("agent-eval.yaml:2: ")
    assert f"must stay inside the workspace {workspace.root}" in said
    assert f"--{option}".replace("_", "-") in said


@pytest.mark.parametrize("option", PLACES)
def test_whoever_starts_the_run_may_name_a_place_elsewhere(workspace, tmp_path, option):
    flag = workspace.resolve(**{option: str(tmp_path / "a" / ".." / "x")})
    by_input = workspace.resolve(environ={BY_NAME[option].variables[0]: str(tmp_path / "x")})
    assert (
        BY_NAME[option].of_settings(flag.settings) == BY_NAME[option].of_settings(by_input.settings) == tmp_path / "x"
    )


def test_rules_of_single_criteria_change_rule_by_rule_and_inherit_the_rest(workspace):
    workspace.write(
        "agent-eval.yaml",
        "gate: {max_drop: 0.1, criteria: {rouge: {mode: advisory, max_drop: none}, tokens: {max_rise: 10%}}}\n",
    )
    policy = workspace.resolve(
        environ={"INPUT_GATE-CRITERIA": "rouge.mode=off"}, gate_criteria=["tokens.threshold_on=suite"]
    ).settings.policy
    assert policy.criteria == {
        "rouge": CriterionPolicy(mode="off", max_drop=None),
        "tokens": CriterionPolicy(max_drop=0.1, max_rise=0.1, threshold_on="suite"),
    }


def test_a_flag_also_wins_over_what_single_criteria_inherit(workspace):
    workspace.write("agent-eval.yaml", "gate: {max_drop: 0.1, criteria: {rouge: {mode: advisory}}}\n")
    assert workspace.resolve(max_drop="0.3").settings.policy.criteria["rouge"].max_drop == 0.3


def test_rules_of_a_criterion_there_is_none_of_are_refused_where_they_are_written(workspace):
    workspace.write("agent-eval.yaml", "gate:\n  criteria: {token_usge_v1: {max_rise: 10%}}\n")
    resolved = workspace.resolve()
    resolved.refuse_unknown_rules(["token_usge_v1"])
    with pytest.raises(ConfigError) as caught:
        resolved.refuse_unknown_rules(["token_usage_v1"])
    assert str(caught.value.problems[0]) == (
        f"{workspace.root}/agent-eval.yaml:2: gate.criteria: there is no criterion token_usge_v1"
        " — did you mean `token_usage_v1`?"
    )


def test_nothing_is_read_from_the_process(workspace, monkeypatch):
    monkeypatch.setenv("INPUT_REPEATS", "7")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(workspace.root.parent))
    found = workspace.resolve().settings
    assert (found.repeats, found.workspace) == (1, workspace.root)


def test_settings_are_frozen(workspace):
    with pytest.raises(ValueError, match="frozen"):
        workspace.resolve().settings.repeats = 3


def test_strict_sets_every_severe_choice_and_an_option_beside_it_wins(tmp_path):
    severe = {option.name: option.info.strict for option in OPTIONS if option.info.strict is not None}
    assert {"fail_on", "on_weakened", "new_cases", "withheld"} <= severe.keys()
    (tmp_path / "agent-eval.yaml").write_text("strict: true\n")
    found = resolve(flags={}, environ={}, cwd=tmp_path).settings
    assert {name: BY_NAME[name].of_settings(found) for name in severe} == severe
    (tmp_path / "agent-eval.yaml").write_text("strict: true\ngate:\n  on_weakened: warn\n")
    assert resolve(flags={}, environ={}, cwd=tmp_path).settings.policy.on_weakened == "warn"
    assert resolve(flags={}, environ={}, cwd=tmp_path).settings.policy.new_cases == "block"
    by_input = resolve(flags={}, environ={"INPUT_FAIL-ON": "fail"}, cwd=tmp_path).settings
    assert by_input.fail_on == "fail"
    assert resolve(flags={"strict": "false"}, environ={}, cwd=tmp_path).settings.policy.new_cases == "advise"
