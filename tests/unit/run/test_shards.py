"""How a suite is divided over jobs, and what each of them gets of the run's limits."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_eval_action.config.models import LlmOptions, Settings
from agent_eval_action.config.types import ShardOption
from agent_eval_action.errors import UsageError
from agent_eval_action.llm.budget import Spend
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.run_result import Provenance
from agent_eval_action.run.shards import (
    CaseSeconds,
    ShardPart,
    configuration_digest,
    divide,
    expected_seconds,
    refuse_combinations,
    shard_seconds,
    shards_needed,
    share_limits,
)
from support.simulated_runs import plan_of

SETTINGS = Settings(workspace=Path("/w"), start=Path("/w"))


def seconds_of(*values: float) -> dict[CaseKey, float]:
    return {CaseKey("bot", "set", f"case_{number:05}"): value for number, value in enumerate(values)}


def shard(number: int, count: int) -> ShardOption:
    return ShardOption(number=number, count=count)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 500), max_size=60), st.integers(1, 16))
def test_every_case_is_in_one_shard_whatever_order_the_suite_has(values: list[float], count: int) -> None:
    known = seconds_of(*values)
    chosen = divide(known, count)
    assert chosen.keys() == known.keys()
    assert set(chosen.values()) <= set(range(1, count + 1))
    assert divide(dict(reversed(known.items())), count) == chosen
    times = shard_seconds(known, chosen)
    assert sum(times.values()) == pytest.approx(sum(values))
    # the shortest case of a shard came last, when no shard had less: the others had the mean of the rest at most
    for number, taken in times.items():
        least = min(known[key] for key, at in chosen.items() if at == number)
        assert taken - least <= (sum(values) - least) / count + 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_two_hundred_skewed_cases_are_balanced_over_eight_shards(seed: int) -> None:
    drawn = random.Random(seed)  # noqa: S311 - draws durations
    known = seconds_of(*(drawn.paretovariate(1.3) for _ in range(200)))
    times = shard_seconds(known, divide(known, 8))
    ideal = max([sum(known.values()) / 8, *known.values()])
    assert max(times.values()) <= 1.15 * ideal


def test_without_history_cases_are_counted() -> None:
    chosen = list(divide(seconds_of(*[1.0] * 10), 4).values())
    assert sorted(chosen.count(number) for number in range(1, 5)) == [2, 2, 3, 3]


def test_the_parts_of_a_plan_are_the_plan_with_all_repeats_of_a_case_together() -> None:
    plan = plan_of(11, 3, repeats=2)
    known = CaseSeconds(dict.fromkeys((key for key, _ in plan.digests()), 1.0))
    parts = [ShardPart.of_plan(plan, shard(number, 4), divide(known.seconds, 4)) for number in range(1, 5)]
    made = [planned.key for part in parts for planned in part.plan.attempts()]
    assert sorted(made) == sorted(planned.key for planned in plan.attempts())
    for part in parts:
        assert {planned.key.repeat for planned in part.plan.attempts()} == {0, 1}
        assert part.block.plan == plan.digest()
        assert {case.key for case in part.block.cases} == {key for key, _ in plan.digests()}


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 64), st.integers(1, 500), st.integers(1, 10_000))
def test_all_shards_together_have_the_limits_of_one_run(count: int, sessions: int, rate: int) -> None:
    llm = LlmOptions(concurrency=sessions, requests_per_minute={"m": rate}, tokens_per_minute={"*": rate * 100})
    whole = SETTINGS.model_copy(
        update={"concurrency": sessions, "max_calls": rate, "max_tokens": rate, "max_cost": 2.5, "llm": llm}
    )
    parts = [share_limits(whole, shard(number, count)) for number in range(1, count + 1)]
    for name, total in (("concurrency", sessions), ("max_calls", rate), ("max_tokens", rate)):
        shares = [getattr(part, name) for part in parts]
        assert min(shares) >= 1
        assert sum(shares) == max(total, count), "no more than one job, but for at least one each"
    assert sum(part.llm.concurrency for part in parts) == max(sessions, count)
    assert sum(part.llm.requests_per_minute["m"] for part in parts) == max(rate, count)
    assert sum(part.llm.tokens_per_minute["*"] for part in parts) == max(rate * 100, count)
    assert sum(part.max_cost or 0 for part in parts) == pytest.approx(2.5)


def test_a_wave_shares_what_is_left_of_the_budgets() -> None:
    whole = SETTINGS.model_copy(update={"max_calls": 100, "max_cost": 10.0})
    part = share_limits(whole, shard(1, 4), Spend(calls=60, usd=6.0))
    assert part.max_calls == 10
    assert part.max_cost == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("target", "sessions", "count"),
    [
        (1000, 1, 1),
        (300, 1, 4),
        (300, 2, 4),  # two sessions are one each from two shards on
        (10, 1, 20),  # no shard is faster than the longest case
        (300, 32, 1),
    ],
)
def test_as_many_shards_as_keep_each_within_the_target(target: float, sessions: int, count: int) -> None:
    known = seconds_of(*[50.0] * 20)
    assert shards_needed(known, target, sessions) == count
    if target >= 50:
        assert expected_seconds(known, divide(known, count), count, sessions) <= target


def test_a_configuration_is_that_of_agents_judges_and_tracked_files() -> None:
    made = {"bot": Provenance(settings="s", judges="j", code="c")}
    same = configuration_digest({"bot": Provenance(settings="s", judges="j", code="untracked files differ")}, "t", "")
    assert configuration_digest(made, "t", "") == same
    others = [
        configuration_digest({"bot": Provenance(settings="other", judges="j")}, "t", ""),
        configuration_digest({"bot": Provenance(settings="s", judges="other")}, "t", ""),
        configuration_digest(made, "other", ""),
        configuration_digest(made, "t", "base"),
    ]
    assert len({same, *others}) == 5


@pytest.mark.parametrize(
    "given_options",
    [
        {"shard": shard(1, 2), "merge": (Path("/w/s"),)},
        {"wave": Path("/w/wave.json")},
        {"merge": (Path("/w/s"),), "resume": Path("/w/o")},
        {"shard": shard(1, 2), "wave": Path("/w/wave.json"), "resume": Path("/w/o")},
        {"merge": (Path("/w/out/shards"),), "out": Path("/w/out")},
    ],
    ids=" ".join,
)
def test_options_that_contradict_each_other_are_refused(given_options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        refuse_combinations(SETTINGS.model_copy(update=given_options))
