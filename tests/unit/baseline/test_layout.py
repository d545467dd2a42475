"""The bytes of the file: valid, stable, small diffs, a bounded trajectory a case, and every score."""

from __future__ import annotations

import difflib
import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_eval_action.baseline.records import CASE_BYTES, baseline_text, case_text, from_result, shrink_to_limit, size
from agent_eval_action.gate.findings import difference_from_baseline
from agent_eval_action.gate.pairs import compare
from agent_eval_action.results.decision import ChangeKind
from agent_eval_action.results.history import CaseRecord, CriterionRecord, Record, kept_name, rounded
from support.records import stored
from support.results import QUALITY, attempt, calls, case, info, run, simple


def only_record(result):
    (record,) = from_result(result).cases
    return record


def read_back(baseline):
    return Record.model_validate(json.loads(baseline_text(baseline)))


def test_what_is_written_is_read_back():
    criteria = [info("tokens", None, goal="minimize"), info()]
    turns = (calls(("roll", {"sides": 17, "of": {"b": [1, "é"], "a": None}})), calls())
    baseline = from_result(
        run(case("würfeln 骰子", attempt({QUALITY: 1.0, "tokens": 12.5}, *turns)), criteria=criteria)
    )
    assert read_back(baseline) == baseline
    assert "würfeln 骰子" in baseline_text(baseline)


def test_an_empty_baseline_is_read_back():
    baseline = from_result(run())
    assert read_back(baseline) == baseline


def test_one_changed_score_is_one_changed_line():
    names = ("quality", "words")
    criteria = [info(name) for name in names]

    def lines(score):
        cases = [
            case(f"c{n}", attempt({"quality": score if n == 3 else 1.0, "words": 0.5}, calls(("roll", {"n": n}))))
            for n in range(8)
        ]
        return baseline_text(from_result(run(*cases, criteria=criteria))).splitlines()

    changed = [line for line in difflib.unified_diff(lines(1.0), lines(0.0), n=0, lineterm="") if line[0] in "+-"]
    assert len([line for line in changed if not line.startswith(("+++", "---"))]) == 2


def test_a_new_case_touches_no_line_of_the_others():
    few = baseline_text(from_result(run(simple("a", 1.0), simple("c", 1.0)))).splitlines()
    more = baseline_text(from_result(run(simple("a", 1.0), simple("b", 1.0), simple("c", 1.0)))).splitlines()
    assert [line for line in difflib.ndiff(few, more) if line.startswith("-")] == []


@pytest.mark.parametrize("hidden", ["\u202e", "\u2066", "\u200b", "\u2028", "\ufeff", "\x7f", "\x85", "\n", "\x1b"])
def test_characters_a_diff_would_not_show_are_written_as_escapes(hidden):
    baseline = from_result(run(simple(f"pay{hidden}roll", 1.0)))
    assert hidden not in baseline_text(baseline).replace("\n", "" if hidden == "\n" else "\n")
    assert read_back(baseline) == baseline


def hostile():
    deep: list[object] = []
    for _ in range(400):
        deep = [deep]
    graded = [attempt({QUALITY: 0.5 + n / 7919}) for n in range(200)]
    many = {f"criterion_{n:03}": 0.6 + n / 3 for n in range(120)}
    yield "turns", case("a", attempt({QUALITY: 1.0}, *(calls(("roll", {"sides": n})) for n in range(1_000)))), ()
    yield "argument", case("a", attempt({QUALITY: 1.0}, calls(("save", {"text": "x" * 10_000_000})))), ()
    yield "calls", case("a", attempt({QUALITY: 1.0}, calls(*(("roll", {"n": n}) for n in range(2_000))))), ()
    yield "nested", case("a", attempt({QUALITY: 1.0}, calls(("f", {"deep": deep})))), ()
    yield "keys", case("a", attempt({QUALITY: 1.0}, calls(("f", {"k" * 5_000 + str(n): n for n in range(50)})))), ()
    yield "tool name", case("a", attempt({QUALITY: 1.0}, calls(("f" * 100_000, {})))), ()
    yield "name", case("é\x7f" * 50_000, attempt({QUALITY: 1.0})), ()
    yield "criteria", case("a", attempt(many)), tuple(info(name) for name in many)
    yield "criterion name", case("a", attempt({"c" * 9_000: 1.0})), (info("c" * 9_000),)
    yield "scores", case("a", *graded), ()
    yield (
        "all of it",
        case("\x7f" * 9_000, *(attempt(many, *(calls(("r", {"n": "\x1b" * 900})),) * 90) for _ in range(9))),
        tuple(info(name) for name in many),
    )


HOSTILE = {name: (one, criteria) for name, one, criteria in hostile()}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_trajectory_takes_no_more_than_is_left_of_two_kilobytes_and_scores_are_kept_whole(name):
    one, criteria = HOSTILE[name]
    record = only_record(run(one, criteria=criteria))
    kept = record.trajectory
    assert size(record) <= CASE_BYTES or kept is None or not kept.turns
    assert shrink_to_limit(record) == record, "what was cut stays counted"
    for criterion, counted in record.criteria.items():
        scores = Counter(rounded(score) for score in scores_of(one, criterion))
        assert counted.scores == tuple(sorted(scores.items()))
    names = {name for attempt in one.attempts for name in {kept_name(score.criterion) for score in attempt.scores}}
    assert record.criteria.keys() == names
    assert read_back(from_result(run(one, criteria=criteria))).cases == (record,)


def scores_of(one, criterion):
    return [
        score.score for attempt in one.attempts for score in attempt.scores if kept_name(score.criterion) == criterion
    ]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_shortened_record_is_still_compared_with_all_there_was(name):
    one, criteria = HOSTILE[name]
    result = run(one, criteria=criteria)
    compared = compare(stored(from_result(result)), result)
    kinds = {pair.kind for pair in compared.pairs}
    assert kinds == {ChangeKind.SAME}
    for pair in compared.pairs:
        now = tuple(turn.calls for turn in one.attempts[0].turns)
        kept = compared.trajectories[pair.key]
        assert difference_from_baseline(kept, now) is None


def test_a_change_beyond_what_is_kept_is_still_seen():
    def trajectory(last):
        turns = [*(calls(("roll", {"sides": n})) for n in range(1_000)), calls(("roll", {"sides": last}))]
        return case("a", attempt({QUALITY: 1.0}, *turns))

    kept = only_record(run(trajectory(1))).trajectory
    assert kept.cut > 900
    assert difference_from_baseline(kept, tuple(t.calls for t in trajectory(1).attempts[0].turns)) is None
    difference = difference_from_baseline(kept, tuple(t.calls for t in trajectory(2).attempts[0].turns))
    assert difference == {"change": "unknown", "old": len(kept.turns)}


def test_a_change_at_the_end_of_a_huge_argument_is_still_seen():
    def saved(tail):
        return (calls(("save", {"id": 7, "text": "x" * 5_000 + tail})),)

    kept = only_record(run(case("a", attempt({QUALITY: 1.0}, *saved("a"))))).trajectory
    assert difference_from_baseline(kept, tuple(t.calls for t in saved("a"))) is None
    difference = difference_from_baseline(kept, tuple(t.calls for t in saved("b")))
    assert (difference["turn"], difference["change"]) == (1, "replaced")


def test_the_order_of_arguments_does_not_show():
    def written(args):
        return baseline_text(from_result(run(case("a", attempt({QUALITY: 1.0}, calls(("roll", args)))))))

    assert written({"b": {"d": 1, "c": 2}, "a": 0}) == written({"a": 0, "b": {"c": 2, "d": 1}})


NAMES = st.text(max_size=400)
ARGS = st.dictionaries(
    st.text(max_size=80),
    st.recursive(st.none() | st.integers() | st.text(max_size=300), lambda inner: st.lists(inner, max_size=5)),
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(
    NAMES, st.lists(st.lists(st.tuples(NAMES, ARGS), max_size=6), max_size=40), st.dictionaries(NAMES, st.floats(0, 1))
)
def test_any_record_fits_and_is_read_back(name, turns, scores):
    one = case(name, attempt(scores, *(calls(*turn) for turn in turns)))
    baseline = from_result(run(one, criteria=[info(criterion) for criterion in scores]))
    for record in baseline.cases:
        assert size(record) <= CASE_BYTES or record.trajectory is None or not record.trajectory.turns
        assert shrink_to_limit(record) == record
    assert read_back(baseline) == baseline


def test_the_size_that_is_bounded_is_the_size_in_the_file():
    one = CriterionRecord(digest="x", n=1, scores=((1.0, 1),))
    records = [CaseRecord(agent="a", eval_set="s", case=f"c{n}", digest="d", criteria={"q": one}) for n in range(50)]
    empty = from_result(run())
    full = empty.model_copy(update={"cases": tuple(records)})
    assert len(baseline_text(full)) - len(baseline_text(empty)) <= sum(size(record) for record in records) + 8
    assert json.loads("{" + case_text(records[0]).strip()[1:])["case"] == "c0"
