"""Numbers for people: no minus nothing, no percent that rounds a failure away."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.model.decision import ChangeKind, CriterionChange, Outcome, PairChange, Stat
from agent_eval_action.reports import format as fmt


@pytest.mark.parametrize(
    ("criterion", "unit"),
    [
        ("tool_trajectory_avg_score", "score"),
        ("response_match_score", "score"),
        ("token_usage_v1", "tokens"),
        ("tool_call_count_v1", "calls"),
        ("inference_call_count_v1", "calls"),
        ("invocation_duration_v1", "seconds"),
        ("model_seconds", "seconds"),
        ("cost_usd", "usd"),
        ("accounting_accuracy", "score"),
        ("", "score"),
    ],
)
def test_the_unit_is_in_the_name(criterion: str, unit: str) -> None:
    assert fmt.unit_of(criterion) == unit


@pytest.mark.parametrize(
    ("value", "criterion", "text"),
    [
        (0.8333333, "s", "0.833"),
        (1.0, "s", "1.000"),
        (-0.5, "s", f"{fmt.MINUS}0.500"),
        (-0.0001, "s", "0.000"),
        (None, "s", "–"),
        (1234.5678, "tokens", "1,235"),
        (2.5, "calls", "2.5"),
        (1.256, "model_seconds", "1.26 s"),
        (0.01234, "usd", "$0.0123"),
        (1e300, "s", "1e+300"),
    ],
)
def test_values(value: float | None, criterion: str, text: str) -> None:
    assert fmt.number(value, criterion) == text


@pytest.mark.parametrize(
    ("value", "criterion", "text"),
    [
        (0.05, "s", "+0.050"),
        (-0.05, "s", f"{fmt.MINUS}0.050"),
        (0.0, "s", "0.000"),
        (-0.0, "s", "0.000"),
        (-0.0004, "s", "0.000"),
        (-0.4, "tokens", "0"),
        (126.0, "tokens", "+126"),
        (None, "s", "–"),
    ],
)
def test_changes_carry_their_sign_and_nothing_else_does(value: float | None, criterion: str, text: str) -> None:
    assert fmt.signed(value, criterion) == text


@given(
    st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["score", "tokens", "calls", "seconds", "usd"])
)
def test_every_number_is_short_and_no_zero_is_signed(value: float, criterion: str) -> None:
    for text in (fmt.number(value, criterion), fmt.signed(value, criterion)):
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


@given(st.integers(1, 10_000), st.data())
def test_percent_says_all_and_none_only_when_it_is(whole: int, data: st.DataObject) -> None:
    part = data.draw(st.integers(0, whole))
    assert (fmt.percent(part, whole) == "100 %") == (part == whole)
    assert (fmt.percent(part, whole) == "0 %") == (part == 0)
    assert "100.0" not in fmt.percent(part, whole)


def test_counts_and_plurals() -> None:
    assert fmt.plural(1, "case") == "1 case"
    assert fmt.plural(1_200, "case") == "1,200 cases"
    assert fmt.plural(2, "criterion", "criteria") == "2 criteria"
    assert fmt.count(10**5_000) == "over 1,000,000,000,000,000"


def test_limits() -> None:
    assert fmt.limits("s", "maximize", 0.8, "max drop 0.05") == "≥ 0.8, max drop 0.05"
    assert fmt.limits("tokens", "minimize", 5_000) == "≤ 5,000"
    assert fmt.limits("s", "maximize", None) == "–"


def test_worse_depends_on_the_goal() -> None:
    assert fmt.is_worse(-0.1, "maximize")
    assert fmt.is_worse(0.1, "minimize")
    assert fmt.is_better(-0.1, "minimize")
    assert not fmt.is_worse(None, "maximize")
    assert not fmt.is_better(0.0, "maximize")


def test_what_blocks_is_read_first() -> None:
    rows = [
        CriterionChange(criterion="a", status="pass"),
        CriterionChange(criterion="b", status="advisory"),
        CriterionChange(criterion="c", status="advisory", failing=1),
        CriterionChange(criterion="d", status="error"),
        CriterionChange(criterion="e", status="fail"),
        CriterionChange(criterion="f", status="fail", change=-0.1),
        CriterionChange(criterion="g", status="not_applicable"),
    ]
    assert [row.criterion for row in sorted(rows, key=fmt.by_severity)] == ["f", "e", "d", "c", "a", "b", "g"]


def test_a_pair_shows_the_sides_it_has() -> None:
    one = Stat(n=1, mean=0.5, low=0.5, high=0.5)
    pair = PairChange(agent="a", eval_set="s", case="c", criterion="x", kind=ChangeKind.SAME)
    assert fmt.pair_text(pair.model_copy(update={"baseline": one, "current": one})) == "0.500 → 0.500"
    assert fmt.pair_text(pair.model_copy(update={"baseline": one})) == "0.500"
    assert fmt.pair_text(pair.model_copy(update={"current": one})) == "0.500"
    assert fmt.pair_text(pair) == "–"


def test_every_kind_and_outcome_has_a_label() -> None:
    assert set(fmt.KIND_LABELS) == set(ChangeKind)
    assert set(fmt.OUTCOME_LABELS) == set(Outcome)
