"""History means a case by its digest: whatever it, its file or its agent is called, scores and verdict stay."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_eval_action.baseline.pooling import Suite, pool
from agent_eval_action.baseline.records import from_result, record_of, update
from agent_eval_action.config.models import Policy
from agent_eval_action.gate import compare, decide
from agent_eval_action.git.repository import Commit
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.decision import ChangeKind, Decision, Verdict
from agent_eval_action.results.history import Accepted, History, Record
from agent_eval_action.results.run_result import AgentConditions, CaseResult, RunResult
from support.records import suite_of
from support.results import QUALITY, attempt, case, eval_set, run, run_of, simple

Scores = dict[int, tuple[float, ...]]
"""The scores of each case, by its digest."""

Names = dict[int, CaseKey]

RENAMED = st.sampled_from(["file", "cases", "agent", "everything"])


def names(count: int) -> Names:
    return {number: CaseKey(f"bot{number % 2}", f"set{number % 3}", f"case{number}") for number in range(count)}


def renamed(old: Names, what: str, rng: random.Random) -> Names:
    """Other names, among them names that other cases had."""

    def shuffled(values: set[str]) -> dict[str, str]:
        known = sorted(values)
        fresh = [*known[1:], f"new {known[0]}"]
        rng.shuffle(fresh)
        return dict(zip(known, fresh, strict=True))

    agents, sets, cases = (shuffled({key[place] for key in old.values()}) for place in range(3))
    return {
        number: CaseKey(
            agents[key.agent] if what in {"agent", "everything"} else key.agent,
            sets[key.eval_set] if what in {"file", "everything"} else key.eval_set,
            cases[key.case] if what in {"cases", "everything"} else key.case,
        )
        for number, key in old.items()
    }


def result_of(scores: Scores, called: Names) -> RunResult:
    sets: dict[tuple[str, str], list[CaseResult]] = {}
    for number, own in scores.items():
        attempts = [attempt({QUALITY: score}, repeat=n) for n, score in enumerate(own)]
        sets.setdefault(called[number][:2], []).append(case(called[number].case, *attempts, digest=f"digest {number}"))
    agents = tuple(AgentConditions(agent=name, path=name, models=("m",)) for name in sorted({a for a, _ in sets}))
    return run_of(
        *(eval_set(*cases, agent=agent, name=name) for (agent, name), cases in sorted(sets.items())), agents=agents
    )


def record(number: int, result: RunResult, **given: object) -> Record:
    return record_of(result, Commit(f"{number:040x}", (), 1000 + number), **given)  # type: ignore[arg-type]  # passed on as given


def history_of(records: list[Record], now: RunResult) -> History:
    return pool(list(reversed(records)), suite_of(now))


def verdict(history: History, now: RunResult) -> Decision:
    compared = compare(history, now)
    return decide(compared, now, Policy(threshold_on="case"))


def by_digest(decision: Decision, called: Names) -> dict[int, tuple[object, ...]]:
    numbers = {key: number for number, key in called.items()}
    return {numbers[pair.key]: (pair.kind, pair.change, pair.blocking, pair.baseline) for pair in decision.pairs}


SCORES = st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=1, max_size=3).map(tuple)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(SCORES, min_size=6, max_size=6), min_size=1, max_size=3),
    st.lists(SCORES, min_size=6, max_size=6),
    RENAMED,
    st.randoms(use_true_random=False),
)
def test_any_permutation_of_names_leaves_history_and_verdict_as_they_are(
    main: list[list[tuple[float, ...]]], head: list[tuple[float, ...]], what: str, rng: random.Random
) -> None:
    old = names(6)
    new = renamed(old, what, rng)
    records = [record(n, result_of(dict(enumerate(scores)), old)) for n, scores in enumerate(main)]
    here, there = (result_of(dict(enumerate(head)), called) for called in (old, new))
    plain, moved = history_of(records, here), history_of(records, there)
    for number in old:
        assert moved.pair(new[number], QUALITY) == plain.pair(old[number], QUALITY)
    before, after = verdict(plain, here), verdict(moved, there)
    assert after.outcome is before.outcome
    assert by_digest(after, new) == by_digest(before, old)
    assert not any(pair.kind in {ChangeKind.NEW, ChangeKind.REMOVED} for pair in after.pairs)


def test_the_control_of_this_test_names_that_are_not_followed_would_be_seen() -> None:
    """With other digests nothing can be followed: the same run is then all new, and everything of main removed."""
    old = names(2)
    main = record(1, result_of({0: (1.0,), 1: (1.0,)}, old))
    now = run(simple("x", 1.0))
    kinds = {pair.kind for pair in verdict(history_of([main], now), now).pairs}
    assert kinds == {ChangeKind.NEW, ChangeKind.REMOVED}


def test_a_rename_is_reported() -> None:
    old = {0: CaseKey("bot", "evals/a", "refund")}
    new = {0: CaseKey("bot", "evals/b", "money back")}
    history = history_of([record(1, result_of({0: (1.0,)}, old))], result_of({0: (1.0,)}, new))
    assert history.notes == (
        (
            "1 case was renamed and is compared with main's scores under the old name: "
            "bot / evals/a / refund → bot / evals/b / money back"
        ),
    )


def test_renames_on_main_are_followed_through_several_records() -> None:
    """Edited under its second name: scores of before the edit do not count, and are no removed case either."""
    first, second, third = (CaseKey("bot", "set", name) for name in ("one", "two", "three"))

    def made(number: int, key: CaseKey, digest: str, score: float, **given: object) -> Record:
        return record(number, run(case(key.case, attempt({QUALITY: score}), digest=digest), **given))

    records = [made(1, first, "d1", 0.1), made(2, second, "d1", 0.2), made(3, second, "d2", 0.3)]
    now = run(case("three", attempt({QUALITY: 1.0}), digest="d2"))
    history = history_of(records, now)
    assert history.pair(third, QUALITY).scores == ((0.3, 1),)
    assert {case.key for case in history.pooled.cases} == {third}
    back = run(case("three", attempt({QUALITY: 1.0}), digest="d1"))
    assert history_of(records, back).pair(third, QUALITY).scores == ((0.1, 1), (0.2, 1))


def test_an_acceptance_is_of_the_case_whatever_it_is_called_now() -> None:
    accepted = Accepted(id="one", case="a", criterion=QUALITY, reason="the tool was renamed")
    old, new = {0: CaseKey("bot", "set", "a")}, {0: CaseKey("bot", "set", "b")}
    records = [
        record(1, result_of({0: (1.0,)}, old)),
        record(2, result_of({0: (0.25,)}, old), accepted=[accepted]),
    ]
    pair = history_of(records, result_of({0: (0.25,)}, new)).pair(new[0], QUALITY)
    assert (pair.scores, pair.anew) == (((0.25, 1),), "the tool was renamed")


def test_what_a_record_withheld_stays_withheld_under_another_name() -> None:
    old, new = {0: CaseKey("bot", "set", "a")}, {0: CaseKey("bot", "set", "b")}
    bad = record(2, result_of({0: (0.0,)}, old), regressed=[(old[0], QUALITY)])
    history = history_of([record(1, result_of({0: (1.0,)}, old)), bad], result_of({0: (0.0,)}, new))
    assert history.pair(new[0], QUALITY).scores == ((1.0, 1),)
    assert history.pair(old[0], QUALITY).runs == 0


def test_a_case_that_takes_the_name_of_a_removed_one_leaves_it_removed() -> None:
    main = record(
        1, run(case("a", attempt({QUALITY: 1.0}), digest="d1"), case("b", attempt({QUALITY: 0.0}), digest="d2"))
    )
    now = run(case("b", attempt({QUALITY: 0.0}), digest="d1"))
    history = history_of([main], now)
    assert history.pair(CaseKey("bot", "set", "b"), QUALITY).scores == ((1.0, 1),)
    decision = verdict(history, now)
    assert decision.outcome is Verdict.FAIL
    assert {(pair.case, pair.kind) for pair in decision.pairs} == {
        ("b", ChangeKind.NEWLY_FAILING),
        ("b (removed)", ChangeKind.REMOVED),
    }


def test_two_renamed_agents_of_one_suite_are_not_guessed_and_hold_to_their_thresholds() -> None:
    old = {0: CaseKey("good", "set", "a"), 1: CaseKey("poor", "set", "a")}
    new = {0: CaseKey("x", "set", "a"), 1: CaseKey("y", "set", "a")}

    def made(called: Names, *scores: float) -> RunResult:
        sets = [
            eval_set(case("a", attempt({QUALITY: score}), digest="d"), agent=called[n].agent)
            for n, score in enumerate(scores)
        ]
        return run_of(*sets)

    now = made(new, 0.3, 0.6)
    history = history_of([record(1, made(old, 0.9, 0.6))], now)
    assert history.pair(new[0], QUALITY).incomparable == (
        "main has scores of this case from `good` and `poor`, and nothing says which of these agents it was"
    )
    decision = decide(compare(history, now), now, Policy())
    assert decision.outcome is Verdict.FAIL
    assert [(pair.agent, pair.blocking) for pair in decision.pairs if pair.kind is not ChangeKind.REMOVED] == [
        ("x", True),
        ("y", False),
    ]


def test_an_agent_that_is_only_skipped_gives_its_history_to_nobody() -> None:
    main = record(1, run_of(eval_set(simple("a", 1.0), agent="there")))
    now = run_of(eval_set(simple("a", 1.0), agent="new"))
    suite = suite_of(now)
    assert pool((main,), suite).pair(CaseKey("new", "set", "a"), QUALITY).runs == 1
    skipped = Suite(suite.cases, suite.criteria, frozenset({"there"}))
    assert pool((main,), skipped).pair(CaseKey("new", "set", "a"), QUALITY).runs == 0


@pytest.mark.parametrize("what", ["file", "cases", "agent", "everything"])
def test_a_stored_baseline_takes_the_new_names_and_keeps_the_scores(what: str) -> None:
    old = names(4)
    new = renamed(old, what, random.Random(1))  # noqa: S311 - an order, no secret
    scores: Scores = dict.fromkeys(range(4), (1.0, 0.25))
    stored = from_result(result_of(scores, old))
    made = update(stored, result_of(scores, new))
    assert (made.added, made.pruned) == ((), ())
    assert made.differs
    assert {one.key for one in made.record.cases} == set(new.values())
    assert pool((stored,), suite_of(result_of(scores, new))).pair(new[0], QUALITY).n == 2


def test_a_narrowed_update_takes_no_record_of_what_it_did_not_run() -> None:
    stored = from_result(run_of(eval_set(simple("a", 1.0), agent="one")))
    narrowed = run_of(eval_set(simple("a", 0.5), agent="two"), selection=("two",))
    assert {one.agent for one in update(stored, narrowed).record.cases} == {"one", "two"}
