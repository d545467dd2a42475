"""What is told of code that a change breaks: which runs it takes, how sure it is, and what is never blamed on code."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from agent_eval_action.config.models import Policy
from agent_eval_action.gate import compare, decide
from agent_eval_action.gate.next_step import (
    _RUNS,
    CASES,
    LEVEL,
    NOT_STARTED,
    RAISED,
    broken_code,
    next_check,
)
from agent_eval_action.gate.pairs import GateRules
from agent_eval_action.results.run_result import AttemptError, AttemptSummary, CaseResult, ErrorKind, RunResult
from agent_eval_action.stats import Stratum, lower_than_reference, passes
from support.messages import sentence
from support.records import stored
from support.results import case, info, run

Answers = Callable[[str, str], ErrorKind | None]
"""The error of an attempt of a case on an arm; None: it is answered."""


def attempt(repeat: int, kind: ErrorKind | None, *, purpose: str = "first", arm: str = "head") -> AttemptSummary:
    error = AttemptError(kind=kind, message=f"{kind}: it broke") if kind is not None else None
    return AttemptSummary.model_validate({"repeat": repeat, "purpose": purpose, "arm": arm, "error": error})


def looped(names: list[str], answers: Answers) -> RunResult:
    """A run with everything that the check asks for made, as the loop makes it."""
    cases = {name: case(name, attempt(0, answers(name, "head"))) for name in names}
    for _ in range(20):
        result = run(*cases.values(), criteria=[info()])
        step = next_check(result, GateRules(), control=True)
        if step is None:
            return result
        for key, runs in step.attempts:
            cases[key.case] = more(cases[key.case], answers, runs, "base")
        for key, runs in step.interleaved:
            cases[key.case] = more(cases[key.case], answers, runs, "head")
    raise AssertionError("it never has enough")


def more(one: CaseResult, answers: Answers, runs: int, arm: str) -> CaseResult:
    field = "control" if arm == "base" else "attempts"
    made = getattr(one, field)
    new = [attempt(len(made) + n, answers(one.case, arm), purpose="control", arm=arm) for n in range(runs)]
    return one.model_copy(update={field: (*made, *new)})


def names(count: int) -> list[str]:
    return [f"case_{number:02}" for number in range(count)]


def test_always_failing_here_and_never_on_the_base_is_sure_in_every_row_of_the_plan():
    for least, fresh, base in _RUNS:
        strata = [Stratum(passes(base, base), passes(0, fresh))] * least
        assert lower_than_reference(strata) <= LEVEL


@pytest.mark.parametrize("kind", sorted(RAISED))
@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 30])
def test_what_fails_in_every_attempt_where_the_base_never_does_is_broken(kind: ErrorKind, count: int):
    result = looped(names(count), lambda _, arm: kind if arm == "head" else None)
    broken = broken_code(result)
    assert len(broken) == min(count, CASES)
    (finding,) = [
        finding
        for finding in decide(compare(stored(None), result), result, Policy()).findings
        if finding.severity == "blocks"
    ]
    assert finding.severity == "blocks"
    assert "`case_00`" in sentence(finding)
    assert "it broke" in sentence(finding)


@pytest.mark.parametrize("kind", sorted(NOT_STARTED))
def test_an_agent_that_does_not_start_is_broken_once_the_base_answers(kind: ErrorKind):
    result = looped(names(9), lambda _, arm: kind if arm == "head" else None)
    assert len(broken_code(result)) == 9
    assert sum(len(one.control) for one in result.sets[0].cases) == 3
    (finding,) = [
        finding
        for finding in decide(compare(stored(None), result), result, Policy()).findings
        if finding.severity == "blocks"
    ]
    assert "does not start" in sentence(finding)


NOT_OF_CODE = (
    *(ErrorKind.RATE_LIMITED, ErrorKind.UNAVAILABLE, ErrorKind.CREDENTIALS),
    *(ErrorKind.USER, ErrorKind.SCORING, ErrorKind.STOPPED),
)


@pytest.mark.parametrize("kind", NOT_OF_CODE)
def test_what_no_code_can_help_is_never_asked_about_and_never_blamed(kind: ErrorKind):
    result = looped(names(3), lambda _, arm: kind if arm == "head" else None)
    assert not any(one.control for one in result.sets[0].cases)
    assert not broken_code(result)


@pytest.mark.parametrize("kind", sorted(RAISED | NOT_STARTED))
def test_a_failure_of_the_base_too_is_not_blamed_on_the_change(kind: ErrorKind):
    assert not broken_code(looped(names(4), lambda _, __: kind))


@pytest.mark.parametrize("trouble", [ErrorKind.RATE_LIMITED, ErrorKind.UNAVAILABLE, ErrorKind.CREDENTIALS])
def test_trouble_of_the_base_is_no_evidence_against_the_change(trouble: ErrorKind):
    result = looped(names(4), lambda _, arm: ErrorKind.EXCEPTION if arm == "head" else trouble)
    assert not broken_code(result)


def test_what_main_has_broken_before_hides_nothing_that_the_change_breaks():
    def answers(name: str, arm: str) -> ErrorKind | None:
        return ErrorKind.EXCEPTION if arm == "head" or name < "case_02" else None

    broken = broken_code(looped(names(4), answers))
    assert [one.key.case for one in broken] == ["case_02", "case_03"]


def test_nothing_is_asked_without_a_base_or_beyond_the_limit():
    result = run(case("a", attempt(0, ErrorKind.EXCEPTION)), criteria=[info()])
    assert next_check(result, GateRules(), control=False) is None
    assert next_check(result, GateRules(extra_runs=12), control=True) is None
    assert next_check(result, GateRules(extra_runs=13), control=True) is not None
    assert next_check(result, GateRules(Policy(sets={"set": "advisory"})), control=True) is None


@pytest.mark.exhaustive(after=6)
@pytest.mark.parametrize("rate", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("count", [1, 2, 5, 30])
def test_an_agent_that_raises_as_often_as_mains_is_hardly_ever_blamed(rate: float, count: int):
    draw = random.Random(f"{rate} {count}")  # noqa: S311 - draws test cases

    def answers(_: str, __: str) -> ErrorKind | None:
        return ErrorKind.EXCEPTION if draw.random() < rate else None

    runs = 1_500
    blamed = sum(bool(broken_code(looped(names(count), answers))) for _ in range(runs))
    assert blamed <= 3 * LEVEL * runs
