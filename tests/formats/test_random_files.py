"""Random files: nothing google-adk 2.13 loads is refused; what is refused has a line; what is read ADK could read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_eval_action.errors import EvalFileError
from agent_eval_action.formats import LoadedEvalFile, case_digest, load_eval_file
from support import eval_files
from support.eval_files import dump_eval_set

FUZZ = settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def load(path: Path) -> LoadedEvalFile | EvalFileError:
    try:
        return load_eval_file(path, workspace=path.parent)
    except EvalFileError as error:
        return error


def refused_on_purpose(value: Any, error: EvalFileError) -> bool:
    """The refusals that are ours: ids used twice (ADK refuses them when it runs), and sets that are {} or ""."""
    return value in ({}, "") or all("already used in this file" in problem.message for problem in error.problems)


def essence(loaded: LoadedEvalFile) -> list[Any]:
    """What the cases say, without ids that a loader of the list schemas makes up."""
    return [
        (case_digest(case), case.session_input, [turn.response_text for turn in case.turns])
        for case in loaded.eval_set.eval_cases
    ]


@FUZZ
@given(value=eval_files.damaged() | eval_files.free)
def test_nothing_adk_loads_is_refused(value, adk_loaders, tmp_path):
    path = tmp_path / "x.evalset.json"
    path.write_text(eval_files.text_of(value), encoding="utf-8")
    ours = load(path)
    answers = adk_loaders(path)
    sets = [answer["set"] for answer in answers.values() if "set" in answer]
    if isinstance(ours, EvalFileError):
        assert ours.problems
        assert all(problem.line for problem in ours.problems)
        assert not sets or refused_on_purpose(value, ours), ours
        return
    dumped = tmp_path / "dump.evalset.json"
    dumped.write_text(json.dumps(dump_eval_set(ours.eval_set)), encoding="utf-8")
    assert load(dumped).eval_set == ours.eval_set
    if not sets:  # read although ADK refuses the file: then it must read what we made of it
        assert "set" in adk_loaders(dumped)["adk_eval"], adk_loaders(dumped)["adk_eval"]
    written = tmp_path / "adk.evalset.json"
    if any("is given twice" in one.message for one in ours.warnings):
        return  # ADK keeps both and writes both under one name: what it dumps is not what it read
    for one in sets:
        written.write_text(json.dumps(one), encoding="utf-8")
        theirs = load(written)
        assert isinstance(theirs, LoadedEvalFile), theirs
        assert essence(theirs) == essence(ours)


@FUZZ
@given(text=st.text(max_size=60) | st.text(alphabet='{}[]",:\\u0d8 \n\ttruefalsn1e+-.#/', max_size=60))
def test_any_text_is_read_or_refused(text, tmp_path):
    path = tmp_path / "any.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    outcome = load(path)
    assert isinstance(outcome, LoadedEvalFile) or outcome.problems


@FUZZ
@given(data=st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data, tmp_path):
    path = tmp_path / "any.json"
    path.write_bytes(data)
    outcome = load(path)
    assert isinstance(outcome, LoadedEvalFile) or outcome.problems


@pytest.mark.parametrize("sample", ["SAMPLE_NEW", "TURNS", "SAMPLE_CASES"])
def test_the_undamaged_samples_are_loaded_by_adk(sample, adk_loaders, tmp_path):
    path = tmp_path / "x.evalset.json"
    path.write_text(eval_files.text_of(getattr(eval_files, sample)))
    assert adk_loaders.loaded(path)
    assert isinstance(load(path), LoadedEvalFile)
