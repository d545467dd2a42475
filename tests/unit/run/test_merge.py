"""A merged run is the run that one job would have made, and what is missing of it is named."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from agent_eval_action.llm.budget import Meter
from agent_eval_action.reports.messages import Messages
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.decision import Verdict
from agent_eval_action.results.run_result import (
    AttemptError,
    AttemptSummary,
    ErrorKind,
    RunResult,
    RunStatus,
    ShardProblem,
    ShardTrouble,
)
from agent_eval_action.run.plan import Plan
from agent_eval_action.run.shards import ShardPart, ShardResult, join_shards
from support.simulated_runs import (
    CONDITIONS,
    MergeOfShards,
    WholeRun,
    World,
    gate_of,
    given,
    join,
    parts_of,
    plan_of,
    shard_result,
)

LATER = "2026-02-02T00:00:00"


def world_of(seed: int) -> World:
    drawn = random.Random(seed)  # noqa: S311 - draws suites
    plan = plan_of(drawn.randint(1, 14), drawn.randint(1, 3), drawn.choice([1, 1, 1, 2]))
    plan = Plan(tuple(planned for planned in plan.sets if planned.cases), plan.repeats)
    worse, errors = drawn.choice([0.0, 0.0, 0.1, 0.3, 1.0]), drawn.choice([0.0, 0.0, 0.05])
    return World(plan, seed, drawn.choice([0.0, 0.05, 0.3]), worse, errors)


def any_split(world: World, drawn: random.Random) -> list[ShardPart]:
    count = drawn.randint(1, 16)
    return parts_of(world.plan, {key: drawn.randint(1, count) for key, _ in world.plan.digests()}, count)


def comparable(result: RunResult) -> RunResult:
    return result.model_copy(update={"merge": None})


def same_as_whole(seed: int) -> Verdict:
    """Assert that the merge of some split is the whole run; return the verdict of both."""
    world, drawn = world_of(seed), random.Random(f"split {seed}")  # noqa: S311 - draws splits
    gate = gate_of(world)
    whole = WholeRun(world, gate).result()
    results = [given(shard_result(world, part)) for part in any_split(world, drawn)]
    drawn.shuffle(results)
    merged = MergeOfShards(world, gate, results, waves=drawn.random() < 0.5, shuffle=drawn.shuffle).result()
    assert merged.merge is not None
    assert merged.merge.problems == ()
    assert comparable(merged) == whole
    assert whole.decision is not None
    return whole.decision.outcome


def test_a_merged_run_is_the_run_of_one_job() -> None:
    found = {same_as_whole(seed) for seed in range(40)}
    assert {Verdict.PASS, Verdict.FAIL} <= found, "every kind of verdict is compared"


@pytest.mark.exhaustive
@pytest.mark.parametrize("hundred", range(10))
def test_a_thousand_merged_runs_are_runs_of_one_job(hundred: int) -> None:
    found = {same_as_whole(seed) for seed in range(40 + 100 * hundred, 140 + 100 * hundred)}
    assert {Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE} <= found


# --- what is missing ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world() -> World:
    return World(plan_of(12, 2), seed=1, noise=0.0)


@pytest.fixture(scope="module")
def shards(world: World) -> list[RunResult]:
    """Three of them, of four cases each."""
    keys = [key for key, _ in world.plan.digests()]
    chosen = {key: 1 + number % 3 for number, key in enumerate(sorted(keys))}
    return [shard_result(world, part) for part in parts_of(world.plan, chosen, 3)]


def changed(result: RunResult, **fields: object) -> RunResult:
    """The result with other fields of its shard."""
    assert result.shard is not None
    return result.model_copy(update={"shard": result.shard.model_copy(update=fields)})


def broken(shards: list[RunResult], how: str) -> list[ShardResult]:
    """Three shards, of which something is wrong with the second."""
    first, second, third = shards
    other_commit = CONDITIONS.model_copy(update={"commit": "d" * 40})
    replaced: Mapping[str, list[RunResult]] = {
        "missing": [],
        "a copy of the first": [first],
        "other commit": [second.model_copy(update={"conditions": other_commit})],
        "other plan": [changed(second, plan="another")],
        "other configuration": [changed(second, configuration="another")],
        "not a shard": [second.model_copy(update={"shard": None})],
    }
    return [given(each, f"{number}.json") for number, each in enumerate((first, *replaced[how], third))]


@pytest.mark.parametrize(
    ("how", "kind", "cases"),
    [
        ("missing", ShardTrouble.MISSING, 4),
        ("a copy of the first", ShardTrouble.MISSING, 4),
        ("other commit", ShardTrouble.OTHER_COMMIT, 4),
        ("other plan", ShardTrouble.OTHER_PLAN, 4),
        ("other configuration", ShardTrouble.OTHER_CONFIGURATION, 4),
        ("not a shard", ShardTrouble.MISSING, 4),
    ],
)
def test_what_a_shard_leaves_out_is_named_and_decides_nothing(
    world: World, shards: list[RunResult], how: str, kind: ShardTrouble, cases: int
) -> None:
    gate = gate_of(world)
    merged = MergeOfShards(world, gate, broken(shards, how)).result()
    assert merged.merge is not None
    problem = next(each for each in merged.merge.problems if each.cases)
    assert (problem.kind, problem.number, problem.count, problem.cases) == (kind, 2, 3, cases)
    assert problem.undecided
    assert merged.status is RunStatus.INCOMPLETE
    assert merged.totals.attempts == 8
    assert merged.decision is not None
    assert merged.decision.outcome is Verdict.INCONCLUSIVE
    reason = str(Messages.for_decision(merged.decision).headline(merged.decision))
    assert "shard 2 of 3" in reason
    assert problem.named[0].case in reason
    unmeasured = {
        CaseKey(owner.agent, owner.eval_set, case.case)
        for owner in merged.sets
        for case in owner.cases
        if any(attempt.error and attempt.error.kind is ErrorKind.STOPPED for attempt in case.attempts)
    }
    assert len(unmeasured) == cases
    assert set(problem.named) <= unmeasured


def test_a_file_that_was_cut_off_is_named(world: World, shards: list[RunResult]) -> None:
    cut = ShardProblem(kind=ShardTrouble.UNREADABLE, source="2/results.json", detail="it was cut off")
    joined = join_shards([given(shards[0]), given(shards[2])], [cut], world.plan, CONDITIONS, Meter())
    assert not joined.complete
    assert {problem.kind for problem in joined.problems} == {ShardTrouble.UNREADABLE, ShardTrouble.MISSING}


@pytest.mark.parametrize("status", [RunStatus.TIMED_OUT, RunStatus.INTERRUPTED, RunStatus.LIMITED])
def test_a_shard_that_did_not_finish_keeps_what_it_has_and_names_the_rest(
    world: World, shards: list[RunResult], status: RunStatus
) -> None:
    owner, *others = shards[1].sets
    stopped = AttemptSummary(repeat=0, error=AttemptError(kind=ErrorKind.STOPPED, message="the run ended"))
    cases = (owner.cases[0].model_copy(update={"attempts": (stopped,)}), *owner.cases[1:])
    sets = (owner.model_copy(update={"cases": cases}), *others)
    unfinished = shards[1].model_copy(update={"status": status, "sets": sets})
    merged = MergeOfShards(world, gate_of(world), [given(each) for each in (shards[0], unfinished, shards[2])]).result()
    assert merged.merge is not None
    (problem,) = merged.merge.problems
    assert (problem.kind, problem.number, problem.cases) == (ShardTrouble.UNFINISHED, 2, 1)
    assert merged.totals.attempts == 11
    assert merged.decision is not None
    assert merged.decision.outcome is Verdict.INCONCLUSIVE


def test_of_two_results_of_a_shard_the_newer_one_counts_whatever_their_order(
    world: World, shards: list[RunResult]
) -> None:
    parts = [part for part in shards if part.shard and part.shard.number == 2]
    again = World(world.plan, seed=2, noise=0.0, errors=1.0)
    chosen = {case.key: case.shard for case in parts[0].shard.cases} if parts[0].shard else {}
    newer = shard_result(again, parts_of(world.plan, chosen, 3)[1], started_at=LATER)
    files = [*map(given, shards), given(newer, "newer.json")]
    for order in (files, files[::-1]):
        joined = join(order, world.plan)
        assert joined.complete
        assert [(problem.kind, problem.number) for problem in joined.problems] == [(ShardTrouble.SUPERSEDED, 2)]
        assert sum(1 for each in joined.used if each.source == "newer.json") == 1
    merged = MergeOfShards(world, gate_of(world), files).result()
    assert merged.decision is not None
    assert "an older result of shard 2 of 3, is set aside" in " ".join(
        str(Messages.for_decision(merged.decision).sentence(note)) for note in merged.decision.notes
    )


def test_of_two_configurations_that_of_most_shards_counts(world: World, shards: list[RunResult]) -> None:
    other = [changed(shards[0], configuration="another"), changed(shards[1], configuration="another"), shards[2]]
    joined = join(map(given, other), world.plan)
    assert [(problem.kind, problem.number) for problem in joined.problems] == [(ShardTrouble.OTHER_CONFIGURATION, 3)]


def test_shards_that_were_divided_differently_leave_no_case_out_unseen(world: World, shards: list[RunResult]) -> None:
    """A record of main that arrived in between divided the third shard otherwise: a case of it is nobody's."""
    keys = sorted(key for key, _ in world.plan.digests())
    chosen = {key: 1 + number % 3 for number, key in enumerate(keys)}
    lost = next(key for key, number in chosen.items() if number == 3)
    drifted = shard_result(world, parts_of(world.plan, {**chosen, lost: 1}, 3)[2])
    joined = join([given(shards[0]), given(shards[1]), given(drifted)], world.plan)
    assert not joined.complete
    assert [case for problem in joined.problems for case in problem.named] == [lost]


def test_a_result_that_is_no_longer_needed_is_only_noted(world: World, shards: list[RunResult]) -> None:
    stale = changed(shards[1], plan="another")
    merged = MergeOfShards(world, gate_of(world), [*map(given, shards), given(stale, "old.json")]).result()
    assert merged.decision is not None
    assert merged.decision.outcome is Verdict.PASS
    assert "shard_set_aside" in {note.code for note in merged.decision.notes}


def test_nothing_is_decided_of_no_result_at_all(world: World) -> None:
    merged = MergeOfShards(world, gate_of(world), []).result()
    assert merged.decision is not None
    assert merged.decision.outcome is Verdict.INCONCLUSIVE
    assert merged.merge is not None
    assert merged.merge.problems[0].cases == 12
