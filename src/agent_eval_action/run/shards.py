"""Divide a plan between CI jobs by main's durations, and join their results by case."""

from __future__ import annotations

import heapq
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from agent_eval_action.baseline.history_session import HistorySession
from agent_eval_action.config.models import Settings
from agent_eval_action.config.types import MOST_SHARDS, ShardOption
from agent_eval_action.errors import UsageError
from agent_eval_action.gate.next_step import Run, Step, Stop
from agent_eval_action.llm.budget import Meter, Spend
from agent_eval_action.results.base import CaseKey, Frozen, json_digest
from agent_eval_action.results.findings import NAMED
from agent_eval_action.results.history import Record, kept_key
from agent_eval_action.results.run_result import (
    AgentConditions,
    ArmName,
    AttemptError,
    Base,
    Conditions,
    ErrorKind,
    Merge,
    Provenance,
    RunResult,
    RunStatus,
    Shard,
    ShardCase,
    ShardProblem,
    ShardTrouble,
)
from agent_eval_action.results.transcripts import TranscriptWriter
from agent_eval_action.run.base_agents import unavailable_fields
from agent_eval_action.run.collector import ResultCollector
from agent_eval_action.run.orchestrator import RunGate
from agent_eval_action.run.plan import Plan

_STATUS: Final[Mapping[RunStatus, str]] = {
    RunStatus.TIMED_OUT: "time ran out",
    RunStatus.INTERRUPTED: "interrupted",
    RunStatus.LIMITED: "it met a limit",
}


@dataclass(frozen=True, slots=True)
class ShardResult:
    """The result given for a shard: the displayed path of its file, its folder, and the file's digest."""

    source: str
    folder: Path
    result: RunResult
    digest: str

    @property
    def shard(self) -> Shard:
        if self.result.shard is None:
            raise ValueError(f"{self.source} is of no shard")
        return self.result.shard

    @property
    def age(self) -> tuple[str, str]:
        """Sort key: the start of the run."""
        return self.result.started_at, self.digest

    def problem(self, kind: ShardTrouble, detail: str = "", cases: Sequence[CaseKey] = ()) -> ShardProblem:
        """Return a problem of this result."""
        shard = self.result.shard
        place = {"number": shard.number, "count": shard.count, "wave": shard.wave} if shard else {}
        named = tuple(sorted(cases)[:NAMED])
        return ShardProblem(kind=kind, source=self.source, detail=detail, cases=len(cases), named=named, **place)


@dataclass
class JoinedShards:
    """One run joined from many shards, as far as they measured it.

    ``collector`` has their attempts, ``meter`` their spending. ``conditions``: the checkout's, with the shards' agents.
    ``lacking``: credentials that models lacked in the shards. ``used``: the joined results, in the order of their
    numbers.
    """

    collector: ResultCollector
    meter: Meter
    used: tuple[ShardResult, ...]
    problems: tuple[ShardProblem, ...]
    conditions: Conditions
    base: Base | None = None
    lacking: tuple[str, ...] = ()
    cut_short: str = ""

    @property
    def complete(self) -> bool:
        """Whether every attempt of the first pass was made."""
        return not any(problem.undecided for problem in self.problems)

    @property
    def started_at(self) -> str:
        return min((given.result.started_at for given in self.used), default="")

    @property
    def seconds(self) -> float:
        return sum(given.result.totals.seconds for given in self.used)

    @property
    def next_wave(self) -> int:
        return 1 + max((given.shard.wave for given in self.used), default=1)

    def result(self, started_at: str = "", seconds: float = 0.0) -> RunResult:
        """Return the run, without a decision."""
        return self.collector.result(
            self.meter,
            seconds,
            started_at=started_at,
            status=RunStatus.COMPLETE if self.complete else RunStatus.INCOMPLETE,
            conditions=self.conditions,
            base=self.base,
            cut_short=self.cut_short,
        )

    def next_step(self, gate: RunGate | None, *, control: bool) -> Step:
        """Return the gate's next step. ``control``: whether the base's agent can be run."""
        if gate is None or not self.complete:
            return Stop("nothing is run again")
        control = control and not (self.base and self.base.unavailable)
        step = gate.next_step(self.result(), control=control)
        exhausted = self.meter.exhausted_reason()
        return Stop(exhausted, limited=True) if exhausted and not isinstance(step, Stop) else step

    def settle(self, step: Stop, base_commit: str) -> None:
        """Record why nothing more is run. ``base_commit``: the commit of a possible control, "" if there is none."""
        self.cut_short = step.reason if step.limited else ""
        if self.base is None and base_commit and (self.cut_short or not self.complete):
            self.base = Base(commit=base_commit)

    def copy_transcripts(self, writer: TranscriptWriter) -> None:
        """Copy the attempts of all shards into this run's transcript. Raises OutputError."""
        for given in self.used:
            writer.copy(given.folder)

    @property
    def block(self) -> Merge:
        """The merged result's description of its shards."""
        return Merge(shards=len(self.used), problems=self.problems)


def join_shards(
    given: Sequence[ShardResult], unreadable: Sequence[ShardProblem], plan: Plan, conditions: Conditions, meter: Meter
) -> JoinedShards:
    """Join results, given in any order. ``plan`` and ``conditions`` are the checkout's.

    Results of another plan, commit or configuration are set aside, as are older results of the same shard. Problems
    name the cases that are then missing; ``unreadable`` are the files that could not be read.
    """
    problems = list(unreadable)
    used = _usable_results(sorted(given, key=lambda each: each.age), plan.digest(), conditions.commit, problems)
    # what lacked credentials in a shard
    criteria = {
        (owner.agent, owner.eval_set, info.name)
        for each in used
        for owner in each.result.sets
        for info in owner.criteria
        if info.unmeasured
    }
    plan = plan.with_unmeasured(
        criteria, {key for each in used for key, case in each.result.keyed_cases() if case.unmeasured}
    )
    collector = ResultCollector(plan)
    for each in used:  # oldest first, so that newer attempts replace older ones
        for key, case in each.result.keyed_cases():
            for summary in case.attempts:
                collector.restore(key, "head", summary)
            for summary in case.control:
                collector.restore(key, "base", summary)
    owners = {
        case.key: (case.shard, each.shard.count) for each in used if each.shard.wave == 1 for case in each.shard.cases
    }
    problems = list(_with_missing(problems, used, collector, owners))
    details = {problem.number: problem.detail for problem in problems if problem.undecided and problem.detail}
    not_made = {}
    for key in collector.unmade():
        number, count = owners.get(key, (0, 0))
        why = f"shard {number} of {count} did not measure it" if number else "no shard measured it"
        if number in details:
            why += f": {details[number]}"
        not_made[key] = AttemptError(kind=ErrorKind.STOPPED, message=why)
    collector.not_made = not_made
    in_order = sorted(used, key=lambda each: (each.shard.wave, each.shard.number, each.age))
    for each in in_order:
        meter.add_uses(each.result.totals.uses)
    known = {agent.agent: agent for each in reversed(in_order) for agent in reversed(each.result.conditions.agents)}
    agents = tuple(known[name] for name in dict.fromkeys(planned.agent for planned in plan.sets) if name in known)
    return JoinedShards(
        collector=collector,
        meter=meter,
        used=tuple(in_order),
        problems=tuple(sorted(problems, key=lambda p: (not p.undecided, p.wave, p.number, p.kind, p.source))),
        conditions=conditions.model_copy(update={"agents": agents}),
        base=_join_bases(in_order, plan),
        lacking=tuple(dict.fromkeys(text for each in in_order for text in each.result.conditions.lacking)),
    )


def _usable_results(
    given: Iterable[ShardResult], plan: str, commit: str | None, problems: list[ShardProblem]
) -> list[ShardResult]:
    """Return the results that can be joined, oldest first; add a problem for each of the others."""
    of_plan: list[ShardResult] = []
    for each in given:
        shard, made_at = each.result.shard, each.result.conditions.commit
        if shard is None:
            problems.append(each.problem(ShardTrouble.NO_SHARD))
        elif made_at != commit:
            detail = f"{(made_at or 'none')[:10]}, not {(commit or 'none')[:10]}"
            problems.append(each.problem(ShardTrouble.OTHER_COMMIT, detail))
        elif shard.plan != plan:
            problems.append(each.problem(ShardTrouble.OTHER_PLAN))
        else:
            of_plan.append(each)
    # the configuration of most shards; in a tie the newest
    newest = {
        (each.shard.wave, each.shard.count, each.shard.number, each.shard.configuration): each for each in of_plan
    }
    votes = Counter(each.shard.configuration for each in newest.values())
    ages = {each.shard.configuration: each.age for each in of_plan}
    chosen = max(votes, key=lambda name: (votes[name], ages[name]), default="")
    by_shard: dict[tuple[int, int, int], ShardResult] = {}
    for each in of_plan:
        place = each.shard.wave, each.shard.count, each.shard.number
        if each.shard.configuration != chosen:
            problems.append(each.problem(ShardTrouble.OTHER_CONFIGURATION))
            continue
        if place in by_shard:
            problems.append(by_shard[place].problem(ShardTrouble.SUPERSEDED))
        by_shard[place] = each
    return sorted(by_shard.values(), key=lambda each: each.age)


def _with_missing(
    problems: Sequence[ShardProblem],
    used: Sequence[ShardResult],
    collector: ResultCollector,
    owners: Mapping[CaseKey, tuple[int, int]],
) -> Iterator[ShardProblem]:
    """Yield the problems with the cases each leaves unmeasured, then the unmeasured cases without a problem.

    ``owners``: the number and the count of the shard that each case belongs to.
    """
    uncovered: defaultdict[tuple[int, int], list[CaseKey]] = defaultdict(list)
    for key in collector.unmade():
        uncovered[owners.get(key, (0, 0))].append(key)
    for problem in problems:
        blamed = problem.wave == 1 and problem.number and problem.kind is not ShardTrouble.SUPERSEDED
        cases = uncovered.pop((problem.number, problem.count), ()) if blamed else ()
        named = tuple(sorted(cases)[:NAMED])
        yield problem.model_copy(update={"cases": len(cases), "named": named}) if cases else problem
    for each in used:
        result = each.result
        if each.shard.wave > 1:
            continue
        cases = uncovered.pop((each.shard.number, each.shard.count), ())
        if result.status is not RunStatus.COMPLETE:
            yield each.problem(ShardTrouble.UNFINISHED, result.cut_short or _STATUS[result.status], cases)
        elif cases:
            yield each.problem(ShardTrouble.UNFINISHED, "its result does not have them", cases)
    for (number, count), keys in sorted(uncovered.items()):
        yield ShardProblem(
            kind=ShardTrouble.MISSING, number=number, count=count, cases=len(keys), named=tuple(sorted(keys)[:NAMED])
        )


def _join_bases(used: Iterable[ShardResult], plan: Plan) -> Base | None:
    bases = [(each, each.result.base) for each in used if each.result.base is not None]
    if not bases:
        return None
    agents: dict[str, AgentConditions] = {}
    reasons: dict[str, str] = {}
    for each, base in bases:
        agents |= {agent.agent: agent for agent in base.agents}
        own = {owner.agent for owner in each.result.sets}
        reasons |= dict.fromkeys(own, base.unavailable) if base.unavailable else base.unavailable_agents
    return Base(
        commit=next((base.commit for _, base in bases if base.commit), None),
        agents=tuple(agents.values()),
        lacking=tuple(sorted({name for _, base in bases for name in base.lacking})),
        absent=tuple(sorted({name for _, base in bases for name in base.absent})),
        **unavailable_fields(reasons, {planned.agent for planned in plan.sets}),
    )


_RECORD_SHOWN: Final = 12
_LIMITS: Final = ("concurrency", "max_calls", "max_tokens", "max_extra_runs")
_RATES: Final = ("requests_per_minute", "tokens_per_minute")
_NOTHING: Final = Spend()


@dataclass(frozen=True, slots=True)
class CaseSeconds:
    """The expected seconds of an attempt of each case by main's history, estimated where that has none.

    ``record``: the commit of the newest record used, "" if none. ``known``: the number of cases with a recorded time.
    """

    seconds: Mapping[CaseKey, float]
    record: str = ""
    known: int = 0

    @classmethod
    def of_history(
        cls, plan: Plan, session: HistorySession, skipped: Collection[str] = (), record: str = ""
    ) -> CaseSeconds:
        """Read them from the records up to the commit ``record``, by default from all.

        A case that main does not know gets the median of its set, or of the suite. Without any history all cases count
        equally. Raises UsageError if the record no longer exists.
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
        newest = (records[0].commit or "") if records else ""
        return cls.of_record(plan, pooled, newest[:_RECORD_SHOWN])

    @classmethod
    def of_record(cls, plan: Plan, pooled: Record | None, newest: str = "") -> CaseSeconds:
        """Read them from main's pooled history."""
        recorded = {case.key: case.seconds for case in pooled.cases} if pooled else {}
        measured = {key: recorded.get(kept_key(key)) for key, _ in plan.digests()}
        known = {key: seconds for key, seconds in measured.items() if seconds is not None}
        seconds: dict[CaseKey, float] = {}
        for planned in plan.sets:
            keys = [planned.case_key(item) for item in planned.cases]
            usual = statistics.median([known[key] for key in keys if key in known] or [*known.values()] or [1.0])
            seconds |= {key: known.get(key, usual) for key in keys}
        return cls(seconds, newest, len(known))


def divide(seconds: Mapping[CaseKey, float], count: int) -> dict[CaseKey, int]:
    """Return the shard number, from 1, of every case: longest first, each to the least loaded shard."""
    shards = [(0.0, 0, number) for number in range(1, count + 1)]
    chosen: dict[CaseKey, int] = {}
    for key in sorted(seconds, key=lambda key: (-seconds[key], key)):
        taken, cases, number = heapq.heappop(shards)
        chosen[key] = number
        heapq.heappush(shards, (taken + seconds[key], cases + 1, number))
    return chosen


def shard_seconds(seconds: Mapping[CaseKey, float], chosen: Mapping[CaseKey, int]) -> dict[int, float]:
    """Return the seconds that the cases of each shard take one after another."""
    found: defaultdict[int, float] = defaultdict(float)
    for key, number in chosen.items():
        found[number] += seconds[key]
    return found


def shards_needed(seconds: Mapping[CaseKey, float], target: float, sessions: int) -> int:
    """Return the fewest shards that each take at most ``target`` seconds, or the fastest number if none do.

    ``sessions``: those of the whole run, which the shards share.
    """
    most = max(1, min(MOST_SHARDS, len(seconds)))
    longest = max(seconds.values(), default=0.0)
    times = {count: expected_seconds(seconds, divide(seconds, count), count, sessions) for count in range(1, most + 1)}
    goal = max(target, longest)
    return next((count for count, time in times.items() if time <= goal), min(times, key=lambda n: (times[n], n)))


def expected_seconds(
    seconds: Mapping[CaseKey, float], chosen: Mapping[CaseKey, int], count: int, sessions: int
) -> float:
    """Return the expected seconds of the slowest shard, with its share of the sessions."""
    # no shard is faster than its longest case
    shared = (taken / part_of(sessions, number, count) for number, taken in shard_seconds(seconds, chosen).items())
    return max((*shared, *(seconds[key] for key in chosen)), default=0.0)


def part_of(total: int, number: int, count: int) -> int:
    """Return a shard's share of an integer, at least 1; the first shards get the remainder."""
    return max(1, total // count + (number <= total % count))


def share_limits(settings: Settings, shard: ShardOption, spent: Spend = _NOTHING) -> Settings:
    """Return the settings of a shard: its share of sessions, rates and budgets, so that all shards keep the run's.

    ``spent``: what the run has spent already.
    """

    def part(limit: int, gone: int = 0) -> int:
        return part_of(max(limit - gone, 0), shard.number, shard.count)

    llm = settings.llm
    gone = {"max_calls": spent.calls, "max_tokens": spent.tokens}
    limits = {name: value for name in _LIMITS if (value := getattr(settings, name)) is not None}
    update: dict[str, Any] = {name: part(value, gone.get(name, 0)) for name, value in limits.items()}
    if settings.max_cost is not None:
        update["max_cost"] = max(settings.max_cost - spent.usd, 0.0) / shard.count
    rates: dict[str, Any] = {name: {model: part(rate) for model, rate in getattr(llm, name).items()} for name in _RATES}
    rates["concurrency"] = part(llm.concurrency)
    return settings.model_copy(update={**update, "llm": llm.model_copy(update=rates)})


def configuration_digest(provenance: Mapping[str, Provenance], code: str, base: str) -> str:
    """Return the digest of everything that the shards of a run must share besides plan and commit.

    ``code``: the digest of the tracked files, which a step of the job may have changed. ``base``: the base commit if
    its agent is measured too.
    """
    agents = [[name, made.settings, made.judges] for name, made in sorted(provenance.items())]
    return json_digest([agents, code, base])


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


class WaveCase(ShardCase):
    """A wave's attempts of a case: ``runs``, and ``interleaved`` runs of this change's agent in turn with them.

    ``made_head`` and ``made_base``: the numbers of repeats that each side has made before.
    """

    runs: int = Field(default=0, ge=0)
    interleaved: int = Field(default=0, ge=0)
    made_head: int = Field(default=0, ge=0)
    made_base: int = Field(default=0, ge=0)


class Wave(Frozen):
    """The file that ``agent-eval next-wave`` writes: the next attempts of each of ``count`` jobs, and the reason.

    ``spent``: what the run has spent before.
    """

    schema_version: Literal[1] = 1
    wave: int = Field(ge=2)
    count: int = Field(ge=1, le=MOST_SHARDS)
    plan: str
    step: Literal["rerun", "suite", "control"]
    why: str = ""
    errors_answer: bool = False
    spent: Spend = _NOTHING
    cases: tuple[WaveCase, ...] = ()

    def attempts_of(self, number: int) -> int:
        """Return the number of attempts of one job."""
        return sum(case.runs + case.interleaved for case in self.cases if case.shard == number)


@dataclass(frozen=True, slots=True)
class ShardPart:
    """One shard's part of a plan.

    ``block`` describes it in the results, but for the digest of the configuration. In a later wave, ``step`` replaces
    the first pass, and ``made`` has the numbers of repeats that other jobs have made before, by case and arm.
    """

    plan: Plan
    block: Shard
    step: Run | None = None
    made: Mapping[tuple[CaseKey, ArmName], int] = field(default_factory=dict)

    @classmethod
    def of_plan(cls, plan: Plan, shard: ShardOption, chosen: Mapping[CaseKey, int]) -> ShardPart:
        """Return a shard of the first pass. ``chosen``: the shard number of every case, as ``divide`` returns it."""
        own = {key for key, number in chosen.items() if number == shard.number}
        cases = tuple(ShardCase(**key._asdict(), shard=chosen[key]) for key, _ in plan.digests())
        block = Shard(number=shard.number, count=shard.count, plan=plan.digest(), configuration="", cases=cases)
        return cls(plan.part(own), block)

    @classmethod
    def of_wave(cls, plan: Plan, shard: ShardOption, wave: Wave, path: Path) -> ShardPart:
        """Return a shard of a later wave. Raises UsageError if the wave belongs to another plan."""
        if wave.plan != plan.digest():
            raise UsageError(f"{path} is of other cases or criteria than this checkout has")
        if wave.count != shard.count:
            raise UsageError(f"{path} is for {wave.count} shards, and this is shard {shard}")
        own = {case.key for case in wave.cases if case.shard == shard.number}
        cases = tuple(ShardCase(**case.key._asdict(), shard=case.shard) for case in wave.cases)
        block = Shard(
            number=shard.number, count=shard.count, wave=wave.wave, plan=wave.plan, configuration="", cases=cases
        )
        made: dict[tuple[CaseKey, ArmName], int] = {}
        for case in wave.cases:
            made[case.key, "head"], made[case.key, "base"] = case.made_head, case.made_base
        runs = tuple((case.key, case.runs) for case in wave.cases if case.key in own and case.runs)
        interleaved = tuple((case.key, case.interleaved) for case in wave.cases if case.key in own and case.interleaved)
        step = Run(wave.step, runs, wave.why, interleaved, wave.errors_answer)
        return cls(plan.part(own, repeats=0), block, step, made)


def wave_of(
    step: Run, joined: JoinedShards, seconds: Mapping[CaseKey, float], sessions: int, target: float
) -> Wave | None:
    """Divide a step between as many jobs as keep it within ``target`` seconds; None if a single job does.

    ``sessions``: those of the whole run. The attempts of a case stay in one job, so that drift affects both sides
    equally.
    """
    runs = dict(step.attempts)
    interleaved = dict(step.interleaved)
    times = step_seconds(step, seconds)
    count = shards_needed(times, target, sessions)
    if count == 1:
        return None
    chosen = divide(times, count)
    made = joined.collector.next_repeat
    return Wave(
        wave=joined.next_wave,
        count=count,
        plan=joined.collector.plan.digest(),
        step=step.purpose,
        why=step.why,
        errors_answer=step.errors_answer,
        spent=joined.meter.spent,
        cases=tuple(
            WaveCase(
                **key._asdict(),
                shard=chosen[key],
                runs=runs.get(key, 0),
                interleaved=interleaved.get(key, 0),
                made_head=made(key),
                made_base=made(key, "base"),
            )
            for key in sorted(chosen)
        ),
    )


def step_seconds(step: Run, seconds: Mapping[CaseKey, float]) -> dict[CaseKey, float]:
    """Return the seconds that the attempts of a step take, by case."""
    found: defaultdict[CaseKey, float] = defaultdict(float)
    for key, runs in (*step.attempts, *step.interleaved):
        found[key] += runs * seconds.get(key, 1.0)
    return found
