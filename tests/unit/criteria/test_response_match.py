"""response_match_score: reasons, hostile texts, a free event loop during long work. Its numbers: tests/parity."""

from __future__ import annotations

import asyncio
import threading

import pytest

from agent_eval_action.criteria import answers as deterministic_text
from agent_eval_action.criteria import warm_up
from agent_eval_action.criteria.answers import rouge_1, tokenizer
from agent_eval_action.results.run_result import ScoreStatus
from support.turns import criterion, sample, score, turn

MATCH = criterion("response_match_score", threshold=0.8)


@pytest.mark.parametrize(
    ("reference", "answer", "points", "reason"),
    [
        ("The die shows 17.", "the DIE shows, 17", 1, "turn 1: the words of the reference"),
        ("a b c d", "a b x y", 0.5, "turn 1: 0.50 of the words shared: expected “a b c d”, got “a b x y”"),
        ("a b", None, 0, "turn 1: no answer; expected “a b”"),
        ("a b", "", 0, "turn 1: no answer; expected “a b”"),
        (None, "a b", 0, "turn 1: the case has no reference answer for this turn"),
        (None, None, 0, "turn 1: the case has no reference answer for this turn"),
        ("…", "!", 0, "turn 1: 0.00 of the words shared: expected “…”, got “!”"),
    ],
)
def test_a_score_says_what_was_expected(reference, answer, points, reason):
    found = score(MATCH, [turn(reference)], [turn(answer)])
    assert found.score == pytest.approx(points)
    assert found.passed is (points >= 0.8)
    assert found.reason == reason


def test_a_turn_tells_precision_and_recall():
    found = score(MATCH, [turn("one two three four")], [turn("one two")])
    assert found.turns[0].details == {"precision": 1.0, "recall": 0.5}


def test_the_reason_stays_short():
    found = score(MATCH, [turn("word " * 2_000_000)], [turn("other\n\n" * 1_000_000)])
    assert found.score == 0
    assert len(found.reason) < 500
    assert "\n" not in found.reason


def test_a_missing_turn_has_no_score():
    found = score(MATCH, [turn("a"), turn("b")], [turn("a")])
    assert (found.status, found.score) == (ScoreStatus.ERROR, None)


@pytest.mark.exhaustive(after=3)
@pytest.mark.parametrize(
    "text",
    [
        "a" + "\u0301\u0316" * 1_500_000,  # normalising this run at once would take hours
        "\u0301\u0316" * 40 + "x",
        "ab" * 2_000_000,
        "漢字" * 1_000_000,
        "ﷺ" * 200_000,
        "Σ'" * 1_000_000,
        "".join(map(chr, [*range(0xD800), *range(0xE000, 0x30000)])),
    ],
    ids=["marks", "short marks", "one word", "ideographs", "ligatures", "sigmas", "every character"],
)
def test_hostile_texts_are_scored(text):
    assert rouge_1(text, text) == (1.0, 1.0) or not tokenizer().count(text)
    assert rouge_1("reference", text) == (0.0, 0.0)


def test_the_tables_of_the_tokenizer_are_bounded(monkeypatch):
    monkeypatch.setattr(deterministic_text, "_STEMS_LIMIT", 10)
    monkeypatch.setattr(deterministic_text, "_TABLE_LIMIT", 10)
    cutter = deterministic_text.Tokenizer()
    counts = cutter.count(" ".join(f"words{number}ing" for number in range(50)) + "äöüßéèêáàâ漢字かな")
    assert counts.total() == 54
    assert cutter._stem.cache_info().currsize <= 10
    assert len(cutter._spacing) <= 10


def test_megabytes_are_scored_beside_the_event_loop(monkeypatch):
    warm_up()
    threads = []
    count = deterministic_text.Tokenizer.count

    def noted(self, text):
        threads.append(threading.current_thread())
        return count(self, text)

    monkeypatch.setattr(deterministic_text.Tokenizer, "count", noted)
    asyncio.run(MATCH.score(sample([turn("short")], [turn("shorter")])))
    assert set(threads) == {threading.main_thread()}
    threads.clear()
    asyncio.run(MATCH.score(sample([turn("short")], [turn("long " * 100_000)])))
    assert threading.main_thread() not in threads
    assert threads
