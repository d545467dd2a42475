"""Runs whose scores are drawn, not made: each attempt of a case scores the same whoever makes it, and when."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent_eval_action import criteria
from agent_eval_action.baseline.records import from_result
from agent_eval_action.config.criteria import CriterionSpec
from agent_eval_action.config.models import Settings
from agent_eval_action.config.types import ShardOption
from agent_eval_action.gate.next_step import Run, Stop
from agent_eval_action.llm.budget import Meter
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.evalset import Content, EvalCase, Invocation, Part
from agent_eval_action.results.history import History
from agent_eval_action.results.run_result import (
    ArmName,
    AttemptError,
    AttemptSummary,
    Base,
    Conditions,
    CriterionScore,
    Durations,
    ErrorKind,
    ModelUse,
    Purpose,
    RunResult,
    ScoreStatus,
    Usage,
)
from agent_eval_action.run.collector import ResultCollector
from agent_eval_action.run.orchestrator import RunGate
from agent_eval_action.run.plan import Plan, PlannedCase, PlannedSet
from agent_eval_action.run.shards import JoinedShards, ShardPart, ShardResult, join_shards, wave_of

COMMIT = "c" * 40
CONDITIONS = Conditions(tool_version="test", commit=COMMIT)
CONFIGURATION = "the same everywhere"
_SPECS = (
    CriterionSpec("tool_trajectory_avg_score", {"threshold": 1.0}),
    CriterionSpec("response_match_score", {"threshold": 0.8}),
)


def plan_of(cases: int, sets: int = 1, repeats: int = 1) -> Plan:
    """A plan of so many cases, in sets of about the same size."""
    built = criteria.build(_SPECS)
    infos = tuple(criteria.criterion_info(criterion, "test") for criterion in built)
    turn = Invocation(user_content=Content(role="user", parts=(Part(text="hello"),)))
    items = [PlannedCase(EvalCase(eval_id=f"case_{n:05}", conversation=(turn,)), f"digest {n}") for n in range(cases)]
    parts = [tuple(items[number::sets]) for number in range(sets)]
    return Plan(
        tuple(PlannedSet("bot", f"set_{n}", f"set_{n}.json", part, built, infos) for n, part in enumerate(parts)),
        repeats,
    )


@dataclass(frozen=True)
class World:
    """What attempts of each case come to: drawn from ``seed``, worse on the change's agent for cases in ``worse``."""

    plan: Plan
    seed: int
    noise: float = 0.05
    worse: float = 0.0
    errors: float = 0.0

    def attempt(self, key: CaseKey, arm: ArmName, repeat: int, purpose: Purpose) -> AttemptSummary:
        """The attempt, whoever makes it."""
        drawn = random.Random(f"{self.seed} {key} {arm} {repeat}")  # noqa: S311 - draws scores
        marks = {"repeat": repeat, "arm": arm, "purpose": purpose, "tries": 1 + (drawn.random() < 0.1)}
        if drawn.random() < self.errors:
            error = AttemptError(kind=ErrorKind.TIMEOUT, message="no answer")
            return AttemptSummary(error=error, **marks)
        of_case = random.Random(f"{self.seed} {key}")  # noqa: S311 - draws cases
        is_worse = arm == "head" and of_case.random() < self.worse
        rate = 0.2 if is_worse else 1 - self.noise
        scores = tuple(
            CriterionScore(
                criterion=info.name,
                status=ScoreStatus.SCORED,
                score=score,
                passed=score >= (info.threshold or 0),
                digest=info.digest,
            )
            for info in self.plan.sets[0].infos
            for score in [float(drawn.random() < rate)]
        )
        usage = Usage(model_calls=1, total_tokens=drawn.randrange(50), tool_calls=drawn.randrange(3))
        return AttemptSummary(scores=scores, usage=usage, durations=Durations(total=drawn.randrange(8) / 4), **marks)

    def measure(self, collector: ResultCollector) -> None:
        """Make the first pass of a collector's plan."""
        for planned in collector.plan.attempts():
            key = planned.key
            collector.restore(key.case_key, "head", self.attempt(key.case_key, "head", key.repeat, "first"))

    def take(self, collector: ResultCollector, step: Run) -> None:
        """Make the attempts of a step."""
        arm: ArmName = "base" if step.purpose == "control" else "head"
        for attempts, whose in ((step.attempts, arm), (step.interleaved, "head")):
            for key, runs in attempts:
                for _ in range(runs):
                    repeat = collector.next_repeat(key, whose)
                    collector.restore(key, whose, self.attempt(key, whose, repeat, step.purpose))

    def history(self, runs: int = 5) -> History:
        """What main has: so many runs of the base's agent."""
        collector = ResultCollector(replace(self.plan, repeats=runs))
        for key, _ in self.plan.digests():
            for repeat in range(runs):
                made = self.attempt(key, "base", repeat + 1_000, "first")
                collector.restore(key, "head", made.model_copy(update={"repeat": repeat, "arm": "head"}))
        result = collector.result(Meter(), 1.0, started_at="2026-01-01T00:00:00", conditions=CONDITIONS)
        return History(pooled=from_result(result), source="main")


def uses(calls: int) -> tuple[ModelUse, ...]:
    """What so many calls of a judge cost, in numbers that add up exactly."""
    return (ModelUse(purpose="judge", provider="google", model="m", calls=calls, input_tokens=calls, usd=calls / 4),)


@dataclass
class WholeRun:
    """A run that one job makes, as the orchestrator does: the first pass, then what the gate asks for."""

    world: World
    gate: RunGate
    meter: Meter = field(default_factory=Meter)
    base: Base | None = None
    cut_short: str = ""

    def result(self) -> RunResult:
        collector = ResultCollector(self.world.plan)
        self.world.measure(collector)
        self.meter.add_uses(uses(len(list(self.world.plan.digests()))))
        while True:
            result = self._result(collector)
            step = self.gate.next_step(result, control=True)
            if isinstance(step, Stop):
                self.cut_short = step.reason if step.limited else ""
                result = self._result(collector)
                return result.model_copy(update={"decision": self.gate.decide(result)})
            self.world.take(collector, step)
            if step.purpose == "control":
                self.base = Base(commit="b" * 40)

    def _result(self, collector: ResultCollector) -> RunResult:
        fields = {"conditions": CONDITIONS, "base": self.base, "cut_short": self.cut_short}
        return collector.result(self.meter, 1.0, started_at="2026-01-01T00:00:00", **fields)


def shard_result(
    world: World, part: ShardPart, *, started_at: str = "2026-01-01T00:00:00", **changes: object
) -> RunResult:
    """What one shard leaves. ``changes`` are fields of its result."""
    collector, meter = ResultCollector(part.plan, part.made), Meter()
    base = None
    if part.step is None:
        world.measure(collector)
        meter.add_uses(uses(len(list(part.plan.digests()))))
    else:
        world.take(collector, part.step)
        base = Base(commit="b" * 40) if part.step.purpose == "control" else None
    result = collector.result(meter, 1.0, started_at=started_at, conditions=CONDITIONS, base=base)
    block = part.block.model_copy(update={"configuration": CONFIGURATION})
    return result.model_copy(update={"shard": block, **changes})


def given(result: RunResult, source: str = "") -> ShardResult:
    """A result as if it had been read."""
    name = source or f"{result.shard.number if result.shard else 0}/results.json"
    return ShardResult(name, Path(), result, f"{name} {result.started_at}")


def parts_of(plan: Plan, chosen: Mapping[CaseKey, int], count: int) -> list[ShardPart]:
    """The shards of any split."""
    return [ShardPart.of_plan(plan, ShardOption(number=number, count=count), chosen) for number in range(1, count + 1)]


def join(results: Iterable[ShardResult], plan: Plan) -> JoinedShards:
    """Join them as the merge does."""
    return join_shards(list(results), [], plan, CONDITIONS, Meter())


@dataclass
class MergeOfShards:
    """What a merge comes to. ``waves``: every step is made by a matrix of further jobs, none by the merge itself."""

    world: World
    gate: RunGate
    results: Sequence[ShardResult]
    waves: bool = False
    shuffle: Callable[[list[ShardResult]], None] = lambda _: None

    def result(self) -> RunResult:
        results = list(self.results)
        joined = join(results, self.world.plan)
        while not isinstance(step := joined.next_step(self.gate, control=True), Stop):
            wave = wave_of(step, joined, {}, sessions=1, target=0.1) if self.waves else None
            if wave is None:  # from here on the merge makes the attempts itself
                self.waves = False
                self.world.take(joined.collector, step)
                if step.purpose == "control":
                    joined.base = Base(commit="b" * 40)
                continue
            for number in range(1, wave.count + 1):
                shard = ShardOption(number=number, count=wave.count)
                part = ShardPart.of_wave(self.world.plan, shard, wave, Path("wave.json"))
                results.append(given(shard_result(self.world, part), f"wave {wave.wave} {number}"))
            self.shuffle(results)
            joined = join(results, self.world.plan)
        joined.settle(step, "b" * 40)
        result = joined.result(joined.started_at, 1.0)
        result = result.model_copy(update={"merge": joined.block})
        return result.model_copy(update={"decision": self.gate.decide(result)})


def gate_of(world: World) -> RunGate:
    """The gate with its default rules."""
    settings = Settings(workspace=Path("/w"), start=Path("/w"))
    return RunGate(settings, world.history(), adaptive=True)
