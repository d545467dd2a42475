"""Kinds with an inside: eval patterns, criteria, interpreters, environment names, rules per criterion."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
from pydantic import TypeAdapter

from agent_eval_action.config.models import Rules, Sets, ThresholdOn
from agent_eval_action.config.types import PYTHON, CriteriaSource, Evals, Variables
from support.option_values import issues, origin, read


def flaws(kind, value, where) -> list[tuple[tuple, str]]:
    return [(issue.at, issue.message) for issue in issues(kind, value, where)]


def test_eval_patterns_keep_where_they_start_from():
    found = read(Evals, ["a/*.json", "b"], origin())
    assert [(pattern.pattern, pattern.origin.base) for pattern in found] == [
        ("a/*.json", Path("/base")),
        ("b", Path("/base")),
    ]
    assert flaws(Evals, ["a", 3], origin()) == [((1,), "must be text")]
    assert flaws(Evals, [], origin()) == [((), "names no eval file")]


def test_criteria_are_an_existing_file_or_a_mapping(tmp_path):
    file = tmp_path / "test_config.json"
    file.write_text("{}")
    assert read(CriteriaSource, "test_config.json", origin(tmp_path)) == file
    (spec,) = read(CriteriaSource, {"a": 1}, origin())
    assert (spec.name, spec.options) == ("a", {"threshold": 1})
    assert flaws(CriteriaSource, {}, origin()) == [((), "names no criterion")]
    assert flaws(CriteriaSource, 0.8, origin()) == [((), "must be a file or a mapping of criteria")]
    (issue,) = issues(CriteriaSource, "tests_config.json", origin(tmp_path))
    assert issue.hint == "did you mean `test_config.json`?"


def test_an_interpreter_is_a_file_a_folder_or_a_command_on_the_path(tmp_path):
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    command = tmp_path / "bin" / "python3.99"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    at = origin(tmp_path, search_path=str(command.parent))
    assert read(PYTHON, ".venv", at) == tmp_path / ".venv" / "bin" / "python"
    assert read(PYTHON, ".venv/bin/python", at) == tmp_path / ".venv" / "bin" / "python"
    assert read(PYTHON, "python3.99", at) == command
    assert read(PYTHON, "python3.98", at) == tmp_path / "python3.98"
    assert read(PYTHON, "python3.99", origin(tmp_path)) == tmp_path / "python3.99"


def test_an_interpreters_link_is_not_followed(tmp_path):
    (tmp_path / "real").write_text("")
    (tmp_path / "python").symlink_to(tmp_path / "real")
    assert read(PYTHON, "./python", origin(tmp_path)).name == "python"


@pytest.mark.parametrize(
    ("value", "at"),
    [
        (["A", "B=x,y=z"], origin()),
        ({"A": None, "B": "x,y=z"}, origin()),
        ("A\nB=x,y=z\n", origin(text=True)),
        (("A", "B=x,y=z"), origin(text=True)),
        (("A,A", "\nB=x,y=z"), origin(text=True)),
    ],
)
def test_environment_names_pass_and_values_are_set(value, at):
    assert read(Variables, value, at) == {"A": None, "B": "x,y=z"}


def test_names_alone_may_be_separated_by_commas_and_an_assignment_holds_them():
    assert read(Variables, "A, B", origin(text=True)) == {"A": None, "B": None}
    assert read(Variables, "B=x, y", origin(text=True)) == {"B": "x, y"}


def test_wrong_names_are_refused_and_values_never_shown():
    found = issues(Variables, {"A B": "s3cret", "C": 3, "1D": None}, origin())
    assert [issue.message for issue in found] == [
        "is not the name of an environment variable",
        "C must be text",
        "is not the name of an environment variable",
    ]
    assert not any("s3cret" in str(flaw) for flaw in found)


@pytest.mark.parametrize("name", ["GITHUB_TOKEN", "ACTIONS_RUNTIME_TOKEN", "RUNNER_TEMP", "INPUT_X", "GH_TOKEN"])
@pytest.mark.parametrize(
    ("written", "text"),
    [
        (lambda name: {name: None}, False),
        (lambda name: {name: "v"}, False),
        (lambda name: [name], False),
        (lambda name: f"A\n{name}", True),
        (lambda name: f"{name}=v", True),
    ],
)
def test_a_variable_of_the_job_is_refused_and_the_schema_marks_it(written, text, name):
    value = written(name)
    (flaw,) = (found for found in flaws(Variables, value, origin(text=text)))
    assert "variable of the CI job" in flaw[1]
    validator = jsonschema.Draft202012Validator(TypeAdapter(Variables).json_schema())
    assert text or not validator.is_valid(value)
    assert validator.is_valid(["MY_GITHUB_TOKEN", "GITHUBBER", "GH_TOKENS"])


def given_rules(value, where) -> dict[str, dict]:
    """The rules that were given, without what is inherited later."""
    return {name: rules.model_dump(exclude_unset=True) for name, rules in read(Rules, value, where).items()}


def test_rules_are_kept_as_given_so_that_the_rest_is_inherited():
    given = {"tokens": {"max_rise": "10%"}, "rouge": {"mode": "off", "max_drop": None}}
    assert given_rules(given, origin()) == {"tokens": {"max_rise": 0.1}, "rouge": {"mode": "off", "max_drop": None}}


def test_rules_in_text_read_like_assignments():
    said = "tokens.max_rise=10%\nrouge.mode=off, rouge.max_drop=none"
    assert given_rules(said.replace("\n", ", "), origin(text=True)) == {
        "tokens": {"max_rise": 0.1},
        "rouge": {"mode": "off", "max_drop": None},
    }
    assert given_rules(("a.b.mode=advisory",), origin(text=True)) == {"a.b": {"mode": "advisory"}}
    assert flaws(Rules, "tokens", origin(text=True)) == [((), "must be like token_usage_v1.max_rise=10%")]


def test_every_wrong_rule_is_named_with_its_place():
    given = {"a": {"max_dorp": 1, "mode": "loud"}, "b": {}, "c": 0.5}
    assert flaws(Rules, given, origin()) == [
        (("a", "mode"), "must be one of blocking, advisory, off"),
        (("a", "max_dorp"), "unknown key `max_dorp`"),
        (("b",), "must have rules: mode, threshold_on, max_drop, max_rise"),
        (("c",), "must have rules: mode, threshold_on, max_drop, max_rise"),
    ]


def test_a_threshold_may_count_for_regressions_alone():
    assert read(ThresholdOn, "regression", origin()) == "regression"


def test_modes_of_sets_are_a_mapping_or_lines():
    assert read(Sets, {"smoke": "advisory"}, origin()) == {"smoke": "advisory"}
    assert read(Sets, "smoke=advisory\nslow=off", origin(text=True)) == {"smoke": "advisory", "slow": "off"}
    assert flaws(Sets, {"smoke": "quiet"}, origin())[0][0] == ("smoke",)
    assert "must be like smoke=advisory" in flaws(Sets, "smoke", origin(text=True))[0][1]
    assert "must be a mapping" in flaws(Sets, [1], origin())[0][1]
