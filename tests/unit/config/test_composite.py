"""Kinds with an inside: eval patterns, criteria, interpreters, environment names, rules per criterion."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from agent_eval_action.config.types import CRITERIA, ENV, EVALS, PYTHON, RULES, SETS, THRESHOLD_ON, Refused, Where


def where(base: Path = Path("/base"), *, text: bool = False, search_path: str | None = None) -> Where:
    return Where(base, Path("x"), 1, text=text, search_path=search_path)


def flaws(kind, value, at: Where) -> list[tuple[tuple, str]]:
    with pytest.raises(Refused) as caught:
        kind.read(value, at)
    return [(flaw.at, flaw.message) for flaw in caught.value.flaws]


def test_eval_patterns_keep_where_they_start_from():
    found = EVALS.read(["a/*.json", "b"], where())
    assert [(pattern.pattern, pattern.where.base) for pattern in found] == [
        ("a/*.json", Path("/base")),
        ("b", Path("/base")),
    ]
    assert flaws(EVALS, ["a", 3], where()) == [((1,), "must be text")]
    assert flaws(EVALS, [], where()) == [((), "names no eval file")]


def test_criteria_are_an_existing_file_or_a_mapping(tmp_path):
    file = tmp_path / "test_config.json"
    file.write_text("{}")
    assert CRITERIA.read("test_config.json", where(tmp_path)) == file
    assert CRITERIA.read({"a": 1}, where()) == {"a": 1}
    assert flaws(CRITERIA, {}, where()) == [((), "names no criterion")]
    assert flaws(CRITERIA, 0.8, where()) == [((), "must be a file or a mapping of criteria")]
    with pytest.raises(Refused) as caught:
        CRITERIA.read("tests_config.json", where(tmp_path))
    assert caught.value.flaws[0].hint == "did you mean `test_config.json`?"


def test_an_interpreter_is_a_file_a_folder_or_a_command_on_the_path(tmp_path):
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    command = tmp_path / "bin" / "python3.99"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    at = where(tmp_path, search_path=str(command.parent))
    assert PYTHON.read(".venv", at) == tmp_path / ".venv" / "bin" / "python"
    assert PYTHON.read(".venv/bin/python", at) == tmp_path / ".venv" / "bin" / "python"
    assert PYTHON.read("python3.99", at) == command
    assert PYTHON.read("python3.98", at) == tmp_path / "python3.98"
    assert PYTHON.read("python3.99", where(tmp_path)) == tmp_path / "python3.99"


def test_an_interpreters_link_is_not_followed(tmp_path):
    (tmp_path / "real").write_text("")
    (tmp_path / "python").symlink_to(tmp_path / "real")
    assert PYTHON.read("./python", where(tmp_path)).name == "python"


@pytest.mark.parametrize(
    ("value", "at"),
    [
        (["A", "B=x,y=z"], where()),
        ({"A": None, "B": "x,y=z"}, where()),
        ("A\nB=x,y=z\n", where(text=True)),
        (("A", "B=x,y=z"), where(text=True)),
        (("A,A", "\nB=x,y=z"), where(text=True)),
    ],
)
def test_environment_names_pass_and_values_are_set(value, at):
    assert ENV.read(value, at) == {"A": None, "B": "x,y=z"}


def test_names_alone_may_be_separated_by_commas_and_an_assignment_holds_them():
    assert ENV.read("A, B", where(text=True)) == {"A": None, "B": None}
    assert ENV.read("B=x, y", where(text=True)) == {"B": "x, y"}


def test_wrong_names_are_refused_and_values_never_shown():
    with pytest.raises(Refused) as caught:
        ENV.read({"A B": "s3cret", "C": 3, "1D": None}, where())
    assert [flaw.message for flaw in caught.value.flaws] == [
        "is not the name of an environment variable",
        "C must be text",
        "is not the name of an environment variable",
    ]
    assert not any("s3cret" in str(flaw) for flaw in caught.value.flaws)


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
    (flaw,) = (found for found in flaws(ENV, value, where(text=text)))
    assert "variable of the CI job" in flaw[1]
    validator = jsonschema.Draft202012Validator(ENV.schema)
    assert text or not validator.is_valid(value)
    assert validator.is_valid(["MY_GITHUB_TOKEN", "GITHUBBER", "GH_TOKENS"])


def test_rules_are_kept_as_given_so_that_the_rest_is_inherited():
    given = {"tokens": {"max_rise": "10%"}, "rouge": {"mode": "off", "max_drop": None}}
    assert RULES.read(given, where()) == {"tokens": {"max_rise": 0.1}, "rouge": {"mode": "off", "max_drop": None}}


def test_rules_in_text_read_like_assignments():
    said = "tokens.max_rise=10%\nrouge.mode=off, rouge.max_drop=none"
    assert RULES.read(said.replace("\n", ", "), where(text=True)) == {
        "tokens": {"max_rise": 0.1},
        "rouge": {"mode": "off", "max_drop": None},
    }
    assert RULES.read(("a.b.mode=advisory",), where(text=True)) == {"a.b": {"mode": "advisory"}}
    assert flaws(RULES, "tokens", where(text=True)) == [((), "must be like token_usage_v1.max_rise=10%")]


def test_every_wrong_rule_is_named_with_its_place():
    given = {"a": {"max_dorp": 1, "mode": "loud"}, "b": {}, "c": 0.5}
    assert flaws(RULES, given, where()) == [
        (("a", "max_dorp"), "unknown rule 'max_dorp'"),
        (("a", "mode"), "must be one of blocking, advisory, off"),
        (("b",), "must have rules: mode, threshold_on, max_drop, max_rise"),
        (("c",), "must have rules: mode, threshold_on, max_drop, max_rise"),
    ]


def test_a_threshold_may_count_for_regressions_alone():
    assert THRESHOLD_ON.read("regression", where()) == "regression"


def test_modes_of_sets_are_a_mapping_or_lines():
    assert SETS.read({"smoke": "advisory"}, where()) == {"smoke": "advisory"}
    assert SETS.read("smoke=advisory\nslow=off", where(text=True)) == {"smoke": "advisory", "slow": "off"}
    assert flaws(SETS, {"smoke": "quiet"}, where())[0][0] == ("smoke",)
    assert "must be like smoke=advisory" in flaws(SETS, "smoke", where(text=True))[0][1]
    assert "must map eval sets to a mode" in flaws(SETS, [1], where())[0][1]
