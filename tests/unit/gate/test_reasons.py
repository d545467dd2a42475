"""Why scores of main do not count, in the words of what changed; how a baseline begins, by where it is kept."""

from __future__ import annotations

import pytest

from agent_eval_action.baseline.pooling import pool
from agent_eval_action.baseline.records import from_result, record_of
from agent_eval_action.config.models import Policy
from agent_eval_action.gate import compare, decide
from agent_eval_action.results.decision import ChangeKind, Verdict
from agent_eval_action.results.history import Accepted, History
from support.messages import headline, notes
from support.records import suite_of
from support.results import info, run, simple

JUDGE = "hallucinations_v1"


def judged(judge="gemini-2.5-flash", digest="one", score=1.0, **more):
    return run(simple("a", *[score] * 5, criterion=JUDGE), criteria=(info(JUDGE, judge=judge, digest=digest, **more),))


def decided(main, now, *, by_file=False, **given):
    record = from_result(main) if by_file else record_of(main)
    history = pool((record,), suite_of(now), **given)
    return decide(compare(history, now), now, Policy())


@pytest.mark.parametrize("by_file", [False, True])
def test_another_judge_is_named_and_the_threshold_holds(by_file):
    decision = decided(judged(), judged("gemini-3-flash", "two"), by_file=by_file)
    said = "judge gemini-2.5-flash → gemini-3-flash: `hallucinations_v1` falls back to its threshold in 1 case: `a`"
    assert said in notes(decision)
    assert decision.outcome is Verdict.PASS
    assert [pair.kind for pair in decision.pairs] == [ChangeKind.CHANGED]
    assert decided(judged(), judged("gemini-3-flash", "two", 0.1), by_file=by_file).outcome is Verdict.FAIL


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scoring_version": "2"}, "scoring version 1 → 2"),
        ({"options": {"num_samples": 5}}, "num_samples none → 5"),
        ({"options": {"rubrics": ["x" * 300]}}, "rubrics none → "),
    ],
)
def test_another_version_or_option_is_named(change, words):
    decision = decided(judged(), judged(digest="two", **change))
    assert any(note.startswith(words) and "falls back to its threshold" in note for note in notes(decision))


def test_long_options_that_differ_at_their_end_are_distinguished():
    old, new = (judged(digest=end, options={"prompt": "x" * 5_000 + end}) for end in ("a", "b"))
    assert any("prompt" in note and "falls back" in note for note in notes(decided(old, new)))


def test_a_history_of_older_definitions_counts_again_when_they_come_back():
    records = (record_of(judged("other", "two")), record_of(judged()))
    now = judged()
    history = pool(records, suite_of(now))
    decision = decide(compare(history, now), now, Policy())
    assert [(pair.kind, pair.baseline.n) for pair in decision.pairs if pair.baseline] == [(ChangeKind.SAME, 5)]


def test_a_record_of_before_the_fields_is_read_and_says_that_something_changed():
    record = from_result(judged()).model_copy(update={"criteria": {}})
    now = judged("gemini-3-flash", "two")
    history = pool((record,), suite_of(now))
    decision = decide(compare(history, now), now, Policy())
    why = "the criterion's options changed since the baseline: `hallucinations_v1`"
    assert any(why in note for note in notes(decision))


def test_an_accepted_change_says_its_reason_before_and_after_its_merge():
    accepted = Accepted(id="1", case="a", reason="it is shorter now")
    now = judged(score=0.6)
    decision = decided(judged(), now, accepts=(accepted,))
    assert any("its change was accepted (it is shorter now)" in note for note in notes(decision))
    records = (record_of(now, accepted=(accepted,)), record_of(judged()))
    history = pool(records, suite_of(now))
    decision = decide(compare(history, now), now, Policy())
    assert [pair.kind for pair in decision.pairs] == [ChangeKind.SAME]
    assert any(
        "since its change was accepted (it is shorter now): `a › hallucinations_v1`" in n for n in notes(decision)
    )


@pytest.mark.parametrize(
    ("store", "words"),
    [("file", "agent-eval baseline update"), ("branch", "the next run on the main branch"), ("rerun", "beside a run")],
)
def test_how_a_baseline_begins_is_reported_for_where_it_is_kept(store, words):
    for source in ("default", "evals/test_config.json:3"):
        now = run(simple("a", 1.0), criteria=(info(source=source),))
        decision = decide(compare(History(store=store), now), now, Policy())
        said = " ".join((headline(decision), *notes(decision)))
        assert words in said
        assert store == "file" or "baseline update" not in said
