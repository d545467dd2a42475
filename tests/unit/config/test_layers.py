"""INPUT_* variables and flags: spellings, what counts as given, and what is said about the rest."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["INPUT_FAIL-ON", "INPUT_FAIL_ON"])
def test_both_spellings_of_an_input_are_read(workspace, name):
    resolved = workspace.resolve(environ={name: " Fail "})
    assert resolved.settings.fail_on == "fail"
    assert {option: where.label for option, where in resolved.origins.items()} == {"fail_on": name}


def test_two_spellings_may_agree_and_may_not_differ(workspace):
    agreed = workspace.resolve(environ={"INPUT_FAIL-ON": "fail", "INPUT_FAIL_ON": "fail "})
    assert agreed.settings.fail_on == "fail"
    assert workspace.refused(environ={"INPUT_FAIL-ON": "fail", "INPUT_FAIL_ON": "inconclusive"}) == [
        "INPUT_FAIL-ON: and INPUT_FAIL_ON say different things: 'fail' and 'inconclusive' — set one of them"
    ]


@pytest.mark.parametrize("empty", ["", "  ", "\n"])
def test_an_empty_input_is_none(workspace, empty):
    resolved = workspace.resolve(environ={"INPUT_REPEATS": empty, "INPUT_FAIL-ON": empty, "INPUT_FAIL_ON": "fail"})
    assert resolved.settings.repeats == 1
    assert resolved.settings.fail_on == "fail"


def test_flags_nobody_typed_are_none(workspace):
    resolved = workspace.resolve(repeats=None, agent=(), env=[], config=None)
    assert resolved.origins == {}


def test_every_wrong_input_and_flag_is_reported_at_once(workspace):
    problems = workspace.refused(environ={"INPUT_REPEATS": "many", "INPUT_MAX-TIME": "45m"}, max_time="x", retries="-1")
    assert problems == [
        'INPUT_REPEATS: must be a whole number from 1 to 1000 (got "many")',
        '--max-time: must be a time like 45m, 90s, 1h30m or a number of seconds (got "x")',
        '--retries: must be a whole number from 0 to 100 (got "-1")',
    ]


def test_a_misspelt_input_is_a_warning_and_a_foreign_one_is_silence(workspace):
    resolved = workspace.resolve(
        environ={"INPUT_REPEAT": "3", "INPUT_WHO-TO-GREET": "x", "INPUT_CONCURENCY": "", "REPEATS": "3"}
    )
    assert [str(problem) for problem in resolved.warnings] == [
        "INPUT_REPEAT: is no input — did you mean `INPUT_REPEATS`?"
    ]


def test_paths_of_inputs_start_from_the_workspace_and_of_flags_from_here(workspace):
    (workspace.root / "sub").mkdir()
    said = workspace.resolve(cwd="sub", environ={"INPUT_OUT": "o"}, baseline="b.json").settings
    assert said.out == workspace.root / "o"
    assert said.baseline.path == workspace.root / "sub" / "b.json"


def test_a_path_object_is_as_good_as_its_text(workspace):
    assert workspace.resolve(out=Path("x")).settings.out == workspace.root / "x"


def test_lists_by_input_are_one_per_line_or_by_comma(workspace):
    workspace.agent("a")
    workspace.agent("b")
    for text in ("a,b", "a\nb\n"):
        agents = workspace.resolve(environ={"INPUT_AGENT": text}).settings.agents
        assert [agent.name for agent in agents] == ["a", "b"]


def test_a_flag_that_is_no_option_is_a_defect_of_ours(workspace):
    with pytest.raises(KeyError):
        workspace.resolve(repeat="3")
