"""Scores on random inputs equal google-adk's own, per turn, per case, and pass or fail at the threshold."""

from __future__ import annotations

import re
import string
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_eval_action.results.evalset import Invocation
from agent_eval_action.results.run_result import CriterionScore
from support.turns import criterion, recorded, score, turn

RANDOM = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)

SCALARS = st.sampled_from([0, 1, 1.0, True, False, None, "1", "", "ä", -1, 2.5, 10**20, 0.1 + 0.2, 0.3])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=5,
)
CALLS = st.builds(
    lambda name, args: {"name": name, "args": args},
    st.sampled_from(["roll", "check", "Roll", "", "transfer_to_agent", "prüfen"]),
    st.dictionaries(st.sampled_from(["a", "b", "ü"]), VALUES, max_size=2),
)


@st.composite
def trajectories(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Expected and actual calls that have much in common: random ones would never match."""
    expected = draw(st.lists(CALLS, max_size=5))
    actual = draw(st.permutations(expected)) if draw(st.booleans()) else list(expected)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(actual)))
        change = draw(st.sampled_from(["insert", "drop", "replace", "repeat"]))
        if change == "insert":
            actual.insert(at, draw(CALLS))
        elif actual and change == "repeat":
            actual.insert(at, actual[at - 1])
        elif actual:
            actual[at - 1 : at or None] = [] if change == "drop" else [draw(CALLS)]
    return expected, actual


def same(ours: CriterionScore, theirs: dict[str, Any]) -> None:
    assert "error" not in theirs, theirs
    assert ours.score == pytest.approx(theirs["score"], abs=1e-9)
    assert [one.score for one in ours.turns] == pytest.approx([one["score"] for one in theirs["turns"]], abs=1e-9)
    assert ours.passed is (theirs["status"] == "PASSED")
    assert ours.reason


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize("ignore_args", [False, True])
@pytest.mark.parametrize("match_type", ["EXACT", "IN_ORDER", "ANY_ORDER", "in-order", " any order", 0, 1, 2])
def test_trajectory(adk, match_type, ignore_args):
    @settings(RANDOM, max_examples=40)
    @given(st.lists(trajectories(), min_size=1, max_size=3), st.sampled_from([0.0, 1 / 3, 0.5, 2 / 3, 1.0]))
    def check(turns: list[tuple[list[dict[str, Any]], list[dict[str, Any]]]], threshold: float) -> None:
        expected = [turn("", *want) for want, _ in turns]
        actual = [turn("", *got) for _, got in turns]
        options = {"threshold": threshold, "match_type": match_type, "ignore_args": ignore_args}
        ours = score(criterion("tool_trajectory_avg_score", **options), expected, actual)
        same(ours, adk("tool_trajectory_avg_score", options, expected, actual))

    check()


@RANDOM
@given(trajectories())
def test_trajectory_of_recorded_events(adk, calls):
    """The agent's side as events, several calls in one event, among texts."""
    want, got = calls
    parts = [{"function_call": one} for one in got]
    actual = recorded({"content": {"parts": [{"text": "so"}, *parts[:2]]}}, {"content": {"parts": parts[2:]}}, {})
    expected = turn("", *want)
    ours = score(criterion("tool_trajectory_avg_score", threshold=1), [expected], [actual])
    same(ours, adk("tool_trajectory_avg_score", 1, [expected], [actual]))


ENGLISH = st.sampled_from(
    re.split(
        " ",
        "The run rolls fly cook needs dice rolled "
        "running runs ran national nationality generously flies dying skies proceed a of to 17 "
        "17-sided U.S.A. don't e-mail x1 conditional relational hopefulness YES yes yy sky feed agreed plastered",
    )
)
# fmt: off
SCRIPTS = st.sampled_from(
    [
        "東京タワー", "ｶﾀｶﾅ", "カ゛", "ひらがな・ー", "한국어 한국어", "ประเทศไทย", "กำลังจะ",
        "ລາວ", "ភាសាខ្មែរ", "မြန်မာ", "العربية مَرْحَبًا", "עִבְרִית", "हिन्दी में",
        "Straße STRASSE ẞ", "İstanbul \u0131I", "ΣΊΣΥΦΟΣ ΣΑΣ'", "naïve naïve", "ﬁne ﬀ", "①②", "x²",
        "½", "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f3b2", "\u200b\u200d",
        "a\u0301\u0316b", "_snake_case_", "\ufeff", "々〆", "㍿", "ﷺ", "\u0e33\u0e31", "𠀀𠮷",
        "Ⅷ", "ǅ", "\u1e9e", "\u0345", "\u212a", "\u212b", "ﾞ", "\U0001d49c\U0001d4d1", "\u2028", "\x1c", "\u1100\u1161",
        "ꙮ", "߁",
    ]
)
# fmt: on
LETTERS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ASCII = st.text(string.ascii_letters + string.digits + "yys'-", min_size=1, max_size=12)
WORDS = st.one_of(ENGLISH, SCRIPTS, LETTERS, ASCII)


FORMS = st.sampled_from([str, str, str.upper, str.lower, str.title, "{}s".format, "{}ing".format, "{}ed".format])


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, str]:
    """A reference and an answer that share some of its words, cased and joined anew."""
    reference = draw(st.lists(WORDS, max_size=10))
    answer = [draw(FORMS)(word) for word in reference]
    answer = [word for word in answer if draw(st.integers(0, 3))] + draw(st.lists(WORDS, max_size=4))
    joiner = st.sampled_from([" ", "", "\n", ", ", "\u3000", "/"])
    return draw(joiner).join(reference), draw(joiner).join(answer)


@settings(RANDOM, max_examples=500)
@given(st.lists(answers(), min_size=1, max_size=3), st.sampled_from([0.0, 0.5, 0.8, 1.0]))
def test_response_match(adk, texts, threshold):
    expected = [turn(reference) for reference, _ in texts]
    actual = [turn(answer) for _, answer in texts]
    ours = score(criterion("response_match_score", threshold=threshold), expected, actual)
    same(ours, adk("response_match_score", threshold, expected, actual))


@settings(RANDOM, max_examples=40)
@given(st.lists(st.none() | st.lists(WORDS, max_size=3), min_size=1, max_size=3))
def test_response_match_with_absent_answers_and_several_parts(adk, turns):
    def made(words: list[str] | None) -> Invocation:
        return turn() if words is None else turn(final_response={"parts": [{"text": word} for word in words]})

    expected, actual = [made(words) for words in turns], [made(words and words[::-1]) for words in turns]
    ours = score(criterion("response_match_score", threshold=0.8), expected, actual)
    same(ours, adk("response_match_score", 0.8, expected, actual))


COUNTS = st.none() | st.integers(0, 10**6)
USAGE = st.fixed_dictionaries(
    {},
    optional={
        "prompt_token_count": COUNTS,
        "candidates_token_count": COUNTS,
        "thoughts_token_count": COUNTS,
        "cached_content_token_count": COUNTS,
        "tool_use_prompt_token_count": COUNTS,
        "total_token_count": COUNTS,
    },
)
EVENTS = st.fixed_dictionaries({}, optional={"usage_metadata": USAGE, "model_version": st.just("gemini")})


@pytest.mark.exhaustive(after=1)
@pytest.mark.parametrize("name", ["tool_call_count_v1", "inference_call_count_v1", "token_usage_v1"])
def test_efficiency(adk, name):
    @RANDOM
    @given(st.lists(st.lists(EVENTS, max_size=4), min_size=1, max_size=3))
    def check(turns: list[list[dict[str, Any]]]) -> None:
        actual = [recorded(*events) for events in turns]
        ours, theirs = score(criterion(name), actual, actual), adk(name, None, [], actual)
        assert [one.score for one in ours.turns] == [one["score"] for one in theirs["turns"]]
        if all(one["score"] is not None for one in theirs["turns"]):
            # Else ADK counts the unmeasured turn as 0 tokens: see test_differences.py.
            assert ours.score == pytest.approx(theirs["score"], abs=1e-9)
            reported = {key: value for key, value in (theirs["details"] or {}).items() if value is not None}
            reported.pop("total_tokens", None)
            assert ours.details == pytest.approx(reported, abs=1e-9)

    check()
