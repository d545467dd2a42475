"""Numbers for people: no minus nothing, no percent that rounds a failure away."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.criteria import CRITERIA
from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.messages import KIND_LABELS, OUTCOME_LABELS
from agent_eval_action.results.decision import ChangeKind, CriterionChange, PairChange, Stat, Unit, Verdict


@pytest.mark.parametrize("name", ["cost_awareness", "tokens_of_empathy", "latency_tolerance", "call_count"])
def test_a_number_is_written_by_its_unit_and_never_by_the_name_of_its_criterion(name: str) -> None:
    row = PairChange(
        agent="a", eval_set="s", case="c", criterion=name, kind=ChangeKind.WORSE, change=-0.05,
        baseline=Stat(n=1, mean=0.8, low=0.8, high=0.8), current=Stat(n=1, mean=0.75, low=0.75, high=0.75),
    )  # fmt: skip
    assert fmt.pair_text(row) == "0.80 → 0.75"
    assert fmt.signed(row.change, row.unit) == f"{fmt.MINUS}0.05"
    assert fmt.pair_text(row.model_copy(update={"unit": "usd"})) == "$0.8000 → $0.7500"


@pytest.mark.parametrize("name", sorted(CRITERIA))
def test_every_criterion_carries_its_unit_into_the_result(name: str) -> None:
    """Scores have a scale that ends; what is counted, timed or paid has a unit."""
    kind = CRITERIA[name]
    assert (kind.unit == "score") == (kind.goal == "maximize")
    assert {"token": "tokens", "usd": "usd"}.get(name.split("_", maxsplit=1)[0], kind.unit) == kind.unit


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.8333333, "score", "0.83"),
        (1.0, "score", "1.00"),
        (-0.5, "score", f"{fmt.MINUS}0.50"),
        (-0.0004, "score", f"{fmt.MINUS}0.0004"),
        (0.001, "score", "0.001"),
        (1e-12, "score", "1e-12"),
        (100.0, "score", "100"),
        (1234.5, "score", "1,234.50"),
        (12_345_678.0, "score", "1.235e+07"),
        (None, "score", "–"),
        (1234.5678, "tokens", "1,235"),
        (2.5, "calls", "2.5"),
        (1.256, "seconds", "1.26 s"),
        (0.01234, "usd", "$0.0123"),
        (1e300, "score", "1e+300"),
    ],
)
def test_values(value: float | None, unit: Unit, text: str) -> None:
    assert fmt.number(value, unit) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.05, "score", "+0.05"),
        (-0.05, "score", f"{fmt.MINUS}0.05"),
        (0.0, "score", "0.00"),
        (-0.0, "score", "0.00"),
        (-0.0004, "score", "0.00"),
        (-0.4, "tokens", "0"),
        (126.0, "tokens", "+126"),
        (None, "score", "–"),
    ],
)
def test_changes_carry_their_sign_and_nothing_else_does(value: float | None, unit: Unit, text: str) -> None:
    assert fmt.signed(value, unit) == text


@given(
    st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["score", "tokens", "calls", "seconds", "usd"])
)
def test_every_number_is_short_and_no_zero_is_signed(value: float, unit: Unit) -> None:
    for text in (fmt.number(value, unit), fmt.signed(value, unit)):
        assert len(text) <= 28
        if not any(digit in text for digit in "123456789"):
            assert not text.startswith(("+", fmt.MINUS))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (-3, "0.0 s"),
        (9.4, "9.4 s"),
        (34.2, "34 s"),
        (60, "1 min 0 s"),
        (3_725, "1 h 2 min"),
        (259_200, "3 days"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert fmt.duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (59, "under a minute"),
        (1_252, "20 min"),
        (7_199, "1 h"),
        (172_799, "47 h"),
        (172_800, "2 days"),
        (1e9, "11,574 days"),
    ],
)
def test_ages(seconds: float, text: str) -> None:
    assert fmt.age(seconds) == text


def test_counts_and_plurals() -> None:
    assert fmt.plural(1, "case") == "1 case"
    assert fmt.plural(1_200, "case") == "1,200 cases"
    assert fmt.plural(2, "criterion", "criteria") == "2 criteria"
    assert fmt.count(10**5_000) == "over 1,000,000,000,000,000"


def pair(**fields: Any) -> PairChange:
    return PairChange(agent="a", eval_set="score", case="c", criterion="x", kind=ChangeKind.SAME, **fields)


def test_limits() -> None:
    assert fmt.limits(CriterionChange(criterion="x", threshold=0.8, max_drop=0.05)) == "≥ 0.8, max drop 0.05"
    assert fmt.limits(pair(unit="tokens", goal="minimize", threshold=5_000)) == "≤ 5,000"
    assert fmt.limits(pair()) == "–"


def test_worse_depends_on_the_goal() -> None:
    assert fmt.is_worse(pair(change=-0.1))
    assert fmt.is_worse(pair(change=0.1, goal="minimize"))
    assert fmt.is_better(pair(change=-0.1, goal="minimize"))
    assert not fmt.is_worse(pair())
    assert not fmt.is_better(pair(change=0.0))


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_two_numbers_look_different_exactly_when_they_are(one: float, other: float) -> None:
    shown = fmt.numbers(one, other)
    assert (shown[0] == shown[1]) == (one == other)


def test_a_pair_shows_the_sides_it_has() -> None:
    one = Stat(n=1, mean=0.5, low=0.5, high=0.5)
    assert fmt.pair_text(pair(baseline=one, current=one)) == "0.50 → 0.50"
    assert fmt.pair_text(pair(baseline=one)) == "0.50"
    assert fmt.pair_text(pair(current=one)) == "0.50"
    assert fmt.pair_text(pair()) == "–"


def test_every_kind_and_outcome_has_a_label() -> None:
    assert set(KIND_LABELS) == set(ChangeKind)
    assert set(OUTCOME_LABELS) == set(Verdict)
