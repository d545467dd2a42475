"""Divides a plan over the jobs of a CI: which cases each of them measures, and its part of the run's limits."""

from __future__ import annotations

import hashlib
import heapq
import json
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from agent_eval_action.baseline.history_session import HistorySession
from agent_eval_action.config.models import Settings
from agent_eval_action.config.types import MOST_SHARDS, ShardOption
from agent_eval_action.errors import UsageError
from agent_eval_action.gate.next_step import Attempts, RerunSuite, RerunSuspects, Run, RunControl
from agent_eval_action.results.base import Frozen
from agent_eval_action.results.history import kept_key
from agent_eval_action.results.run_result import ArmName, CaseKey, Provenance, Shard, ShardCase
from agent_eval_action.run.merge import JoinedShards
from agent_eval_action.run.plan import Plan

_RECORD_SHOWN: Final = 12
_LIMITS: Final = ("concurrency", "max_calls", "max_tokens", "max_extra_runs")
_RATES: Final = ("requests_per_minute", "tokens_per_minute")


@dataclass(frozen=True, slots=True)
class CaseSeconds:
    """What an attempt of each case takes by main's history, guessed where that does not say.

    ``record``: the commit whose record says it, "" for none. ``known``: how many cases it knows.
    """

    seconds: Mapping[CaseKey, float]
    record: str = ""
    known: int = 0

    @classmethod
    def of_history(
        cls, plan: Plan, session: HistorySession, skipped: Collection[str] = (), record: str = ""
    ) -> CaseSeconds:
        """Read them from the records up to ``record``, by default all.

        A case that main does not know takes as long as the median of its set, or of the suite. Without any history
        every case counts the same. Raises UsageError where the record is not there any more.
        """
        records = session.found.records
        if record:
            at = [number for number, each in enumerate(records) if (each.commit or "").startswith(record)]
            if not at:
                hint = "begin again with `agent-eval plan`"
                raise UsageError(f"main's history has no record of {record}, by which the suite was divided", hint=hint)
            records = records[at[-1] :]
            session = replace(session, found=replace(session.found, records=records))
        pooled = session.history(plan.suite(skipped)).pooled
        recorded = {case.key: case.seconds for case in pooled.cases} if pooled else {}
        known: dict[CaseKey, float] = {}
        for key, _ in plan.digests():
            if (measured := recorded.get(kept_key(key))) is not None:
                known[key] = measured
        seconds: dict[CaseKey, float] = {}
        for planned in plan.sets:
            keys = [planned.case_key(item) for item in planned.cases]
            usual = _median([known[key] for key in keys if key in known], _median(list(known.values()), 1.0))
            seconds |= {key: known.get(key, usual) for key in keys}
        newest = (records[0].commit or "") if records else ""
        return cls(seconds, newest[:_RECORD_SHOWN], len(known))


def _median(values: Sequence[float], otherwise: float) -> float:
    return statistics.median(values) if values else otherwise


def divide(seconds: Mapping[CaseKey, float], count: int) -> dict[CaseKey, int]:
    """Return the shard, from 1, of every case: the longest first, each to the shard with the least so far."""
    shards = [(0.0, 0, number) for number in range(1, count + 1)]
    chosen: dict[CaseKey, int] = {}
    for key in sorted(seconds, key=lambda key: (-seconds[key], key)):
        taken, cases, number = heapq.heappop(shards)
        chosen[key] = number
        heapq.heappush(shards, (taken + seconds[key], cases + 1, number))
    return chosen


def shard_seconds(seconds: Mapping[CaseKey, float], chosen: Mapping[CaseKey, int]) -> dict[int, float]:
    """Return how long the cases of each shard take, one after another."""
    found: dict[int, float] = {}
    for key, number in chosen.items():
        found[number] = found.get(number, 0.0) + seconds[key]
    return found


def shards_needed(seconds: Mapping[CaseKey, float], target: float, sessions: int) -> int:
    """Return the fewest shards of which none takes longer than ``target`` seconds, as far as dividing can help.

    ``sessions`` are those of the whole run, of which each shard gets its part.
    """
    most = max(1, min(MOST_SHARDS, len(seconds)))
    longest = max(seconds.values(), default=0.0)
    times = {count: expected_seconds(seconds, divide(seconds, count), count, sessions) for count in range(1, most + 1)}
    goal = max(target, longest)
    return next((count for count, time in times.items() if time <= goal), min(times, key=lambda n: (times[n], n)))


def expected_seconds(
    seconds: Mapping[CaseKey, float], chosen: Mapping[CaseKey, int], count: int, sessions: int
) -> float:
    """Return how long the slowest shard is expected to take with its part of the sessions."""
    longest: dict[int, float] = {}
    for key, number in chosen.items():
        longest[number] = max(longest.get(number, 0.0), seconds[key])
    return max(
        (
            max(longest[number], taken / part_of(sessions, number, count))
            for number, taken in shard_seconds(seconds, chosen).items()
        ),
        default=0.0,
    )


def part_of(total: int, number: int, count: int) -> int:
    """Return the part of a whole number that a shard gets, at least 1; the first shards get what is left over."""
    return max(1, total // count + (number <= total % count))


def share_limits(settings: Settings, shard: ShardOption, spent: Spent | None = None) -> Settings:
    """Return the settings of a shard: its part of sessions, rates and budgets, so that all together keep the run's.

    ``spent``: what the run has spent already.
    """

    def part(limit: int, gone: int = 0) -> int:
        return part_of(max(limit - gone, 0), shard.number, shard.count)

    llm = settings.llm
    spent = spent or Spent()
    gone = {"max_calls": spent.calls, "max_tokens": spent.tokens}
    limits = {name: value for name in _LIMITS if (value := getattr(settings, name)) is not None}
    update: dict[str, Any] = {name: part(value, gone.get(name, 0)) for name, value in limits.items()}
    if settings.max_cost is not None:
        update["max_cost"] = max(settings.max_cost - spent.usd, 0.0) / shard.count
    rates: dict[str, Any] = {name: {model: part(rate) for model, rate in getattr(llm, name).items()} for name in _RATES}
    rates["concurrency"] = part(llm.concurrency)
    return settings.model_copy(update={**update, "llm": llm.model_copy(update=rates)})


def configuration_digest(provenance: Mapping[str, Provenance], code: str, base: str) -> str:
    """Return the digest of what all shards of a run must have in common beside their plan and commit.

    ``code``: of the files that git tracks, which a step of the job may have changed. ``base``: the base commit, where
    its agent is measured as well.
    """
    agents = [[name, made.settings, made.judges] for name, made in sorted(provenance.items())]
    return hashlib.sha256(json.dumps([agents, code, base]).encode()).hexdigest()[:16]


def refuse_combinations(settings: Settings) -> None:
    """Raise UsageError for options that cannot be used together."""
    shard, merge = settings.shard, settings.merge
    if shard and merge:
        raise UsageError("a shard measures and merge decides: give one of the two")
    if settings.wave and not shard:
        raise UsageError("--wave says what several shards make: give --shard as well", hint="--shard 1/3 --wave FILE")
    if merge and settings.resume:
        raise UsageError("merge keeps what the shards have measured already: give no --resume")
    if settings.wave and settings.resume:
        raise UsageError("a wave is made as a whole: give no --resume")
    if any(settings.out in (path, *path.parents) for path in merge):
        hint = "name another folder with --out, or give --out to each shard"
        raise UsageError(f"the results of shards lie in {settings.out}, where merge writes its own", hint=hint)


class Spent(Frozen):
    """What a run has spent before a wave."""

    calls: int = 0
    tokens: int = 0
    usd: float = 0.0


class WaveCase(ShardCase):
    """What a wave runs of a case: ``runs`` and, in turn with them, ``beside`` of this change's agent.

    ``made_head`` and ``made_base``: how many repeats either agent has made before.
    """

    runs: int = Field(default=0, ge=0)
    beside: int = Field(default=0, ge=0)
    made_head: int = Field(default=0, ge=0)
    made_base: int = Field(default=0, ge=0)


class Wave(Frozen):
    """The file that ``agent-eval next-wave`` writes: which attempts each of ``count`` jobs makes next, and why."""

    schema_version: Literal[1] = 1
    wave: int = Field(ge=2)
    count: int = Field(ge=1, le=MOST_SHARDS)
    plan: str
    step: Literal["rerun", "suite", "control"]
    why: str = ""
    errors_answer: bool = False
    spent: Spent = Spent()
    cases: tuple[WaveCase, ...] = ()

    def step_of(self, number: int) -> Run:
        """Return what one job runs."""
        own = [case for case in self.cases if case.shard == number]
        runs: Attempts = tuple((case.key, case.runs) for case in own if case.runs)
        if self.step == "control":
            beside: Attempts = tuple((case.key, case.beside) for case in own if case.beside)
            return RunControl(runs, self.why, beside, self.errors_answer)
        return (RerunSuspects if self.step == "rerun" else RerunSuite)(runs, self.why)

    def made(self) -> dict[tuple[CaseKey, ArmName], int]:
        """Return how many repeats were made before, by case and arm."""
        arms: tuple[ArmName, ArmName] = ("head", "base")
        return {
            (case.key, arm): made
            for case in self.cases
            for arm, made in zip(arms, (case.made_head, case.made_base), strict=True)
        }

    def attempts_of(self, number: int) -> int:
        """Return how many attempts one job makes."""
        return sum(case.runs + case.beside for case in self.cases if case.shard == number)


@dataclass(frozen=True, slots=True)
class ShardPart:
    """What one shard measures: its part of a plan, and for a later wave the step that it takes."""

    plan: Plan
    number: int
    count: int
    digest: str
    cases: tuple[ShardCase, ...]
    wave: Wave | None = None

    @classmethod
    def of_plan(cls, plan: Plan, shard: ShardOption, seconds: CaseSeconds) -> ShardPart:
        """Return a shard of the first pass."""
        chosen = divide(seconds.seconds, shard.count)
        own = {key for key, number in chosen.items() if number == shard.number}
        cases = tuple(ShardCase(**key._asdict(), shard=chosen[key]) for key, _ in plan.digests())
        return cls(plan.part(own), shard.number, shard.count, plan.digest(), cases)

    @classmethod
    def of_wave(cls, plan: Plan, shard: ShardOption, wave: Wave, path: Path) -> ShardPart:
        """Return a shard of a later wave. Raises UsageError where the wave is of another plan."""
        if wave.plan != plan.digest():
            raise UsageError(f"{path} is of other cases or criteria than this checkout has")
        if wave.count != shard.count:
            raise UsageError(f"{path} is for {wave.count} shards, and this is shard {shard}")
        own = {case.key for case in wave.cases if case.shard == shard.number}
        cases = tuple(ShardCase(**case.key._asdict(), shard=case.shard) for case in wave.cases)
        return cls(plan.part(own, repeats=0), shard.number, shard.count, wave.plan, cases, wave)

    @property
    def step(self) -> Run | None:
        """What is run instead of a first pass; None in the first wave."""
        return self.wave.step_of(self.number) if self.wave else None

    @property
    def made(self) -> dict[tuple[CaseKey, ArmName], int]:
        """How many repeats of a case other jobs have made before, by case and arm."""
        return self.wave.made() if self.wave else {}

    def block(self, configuration: str) -> Shard:
        """Return what the results say of their part."""
        return Shard(
            number=self.number,
            count=self.count,
            wave=self.wave.wave if self.wave else 1,
            plan=self.digest,
            configuration=configuration,
            cases=self.cases,
        )


def wave_of(
    step: Run, joined: JoinedShards, seconds: Mapping[CaseKey, float], sessions: int, target: float
) -> Wave | None:
    """Divide a step over as many jobs as keep it within ``target`` seconds; None where a single one does.

    ``sessions`` are those of the whole run. The attempts of a case stay together, so that whatever drifts meets both
    agents alike.
    """
    runs = dict(step.attempts)
    beside = dict(step.beside) if isinstance(step, RunControl) else {}
    times = step_seconds(step, seconds)
    count = shards_needed(times, target, sessions)
    if count == 1:
        return None
    chosen = divide(times, count)
    uses = joined.meter.spent
    made = joined.collector.next_repeat
    return Wave(
        wave=joined.next_wave,
        count=count,
        plan=joined.collector.plan.digest(),
        step="rerun" if isinstance(step, RerunSuspects) else "suite" if isinstance(step, RerunSuite) else "control",
        why=step.why,
        errors_answer=isinstance(step, RunControl) and step.errors_answer,
        spent=Spent(calls=uses.calls, tokens=uses.tokens, usd=uses.usd),
        cases=tuple(
            WaveCase(
                **key._asdict(),
                shard=chosen[key],
                runs=runs.get(key, 0),
                beside=beside.get(key, 0),
                made_head=made(key),
                made_base=made(key, "base"),
            )
            for key in sorted(chosen)
        ),
    )


def step_seconds(step: Run, seconds: Mapping[CaseKey, float]) -> dict[CaseKey, float]:
    """Return how long the attempts of a step take, by case."""
    found: dict[CaseKey, float] = {}
    for key, runs in (*step.attempts, *(step.beside if isinstance(step, RunControl) else ())):
        found[key] = found.get(key, 0.0) + runs * seconds.get(key, 1.0)
    return found
