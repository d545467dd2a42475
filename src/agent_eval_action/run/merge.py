"""Joins the results of shards into one run: what each of them measured, and what none of them did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent_eval_action.gate.next_step import Step, Stop
from agent_eval_action.llm.budget import Meter
from agent_eval_action.results.findings import NAMED
from agent_eval_action.results.run_result import (
    AgentConditions,
    AttemptError,
    Base,
    CaseKey,
    Conditions,
    ErrorKind,
    Merge,
    RunResult,
    RunStatus,
    Shard,
    ShardProblem,
    ShardTrouble,
)
from agent_eval_action.results.transcripts import TranscriptWriter
from agent_eval_action.run.collector import ResultCollector
from agent_eval_action.run.plan import Plan, PlannedSet
from agent_eval_action.run.run_gate import RunGate


@dataclass(frozen=True, slots=True)
class ShardResult:
    """A result that was given for a shard, the file it is from as it is shown, its folder, and the file's digest."""

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
        """Sorts results by when they were made."""
        return self.result.started_at, self.digest

    def problem(self, kind: ShardTrouble, detail: str = "", cases: Sequence[CaseKey] = ()) -> ShardProblem:
        """Return what is wrong with it."""
        shard = self.result.shard
        place = {"number": shard.number, "count": shard.count, "wave": shard.wave} if shard else {}
        named = tuple(sorted(cases)[:NAMED])
        return ShardProblem(kind=kind, source=self.source, detail=detail, cases=len(cases), named=named, **place)


@dataclass(frozen=True)
class JoinedShards:
    """One run of many shards.

    ``collector`` has their attempts, ``meter`` what they spent. ``lacking``: credentials that models lacked there.
    ``used`` are the shards it was joined of, in the order of their numbers.
    """

    collector: ResultCollector
    meter: Meter
    used: tuple[ShardResult, ...]
    problems: tuple[ShardProblem, ...]
    base: Base | None = None
    agents: tuple[AgentConditions, ...] = ()
    lacking: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every case of the first pass was measured."""
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

    def copy_transcripts(self, writer: TranscriptWriter) -> None:
        """Write the attempts of all shards where this run's own will be. Raises OutputError."""
        for given in self.used:
            writer.copy(given.folder)

    @property
    def block(self) -> Merge:
        """What the merged result says of its parts."""
        return Merge(shards=len(self.used), problems=self.problems)


@dataclass
class MergedRun:
    """A merged run, as far as the shards measured it."""

    joined: JoinedShards
    conditions: Conditions
    base: Base | None = None
    cut_short: str = ""

    def __post_init__(self) -> None:
        self.base = self.base or self.joined.base

    def result(self, started_at: str = "", seconds: float = 0.0) -> RunResult:
        """Return the run, without a decision."""
        return self.joined.collector.result(
            self.joined.meter,
            seconds,
            started_at=started_at,
            status=RunStatus.COMPLETE if self.joined.complete else RunStatus.INCOMPLETE,
            conditions=self.conditions,
            base=self.base,
            cut_short=self.cut_short,
        )

    def next_step(self, gate: RunGate | None, *, control: bool) -> Step:
        """Return what the gate wants next, or why it stops. ``control``: whether the base's agent can be asked."""
        if gate is None or not self.joined.complete:
            return Stop("nothing is run again")
        control = control and not (self.base and self.base.unavailable)
        step = gate.next_step(self.result(), control=control)
        exhausted = self.joined.meter.exhausted_reason()
        return Stop(exhausted, limited=True) if exhausted and not isinstance(step, Stop) else step

    def settle(self, step: Stop, base_commit: str) -> None:
        """Record why nothing more is run. ``base_commit``: of a control that could have been made, "" without one."""
        self.cut_short = step.reason if step.limited else ""
        if self.base is None and base_commit and (self.cut_short or not self.joined.complete):
            self.base = Base(commit=base_commit)


def join_shards(
    given: Sequence[ShardResult], unreadable: Sequence[ShardProblem], plan: Plan, commit: str | None, meter: Meter
) -> JoinedShards:
    """Join results, in whatever order they are given. ``plan`` and ``commit`` are those of the checkout.

    What is of another plan, commit or configuration is set aside, and so is an older result of the same shard. What
    is then missing is named; ``unreadable`` are the files that could not be read.
    """
    problems = list(unreadable)
    used = _usable(sorted(given, key=lambda each: each.age), plan.digest(), commit, problems)
    plan = _as_measured(plan, used)
    collector = ResultCollector(plan)
    for each in used:
        _restore(each, collector)
    owners = {case.key: (each.shard, case.shard) for each in used if each.shard.wave == 1 for case in each.shard.cases}
    problems = list(_with_missing(problems, used, collector, owners))
    reasons = {problem.number: problem for problem in problems if problem.undecided}
    not_made = {}
    for key in collector.unmade():
        number = owners[key][1] if key in owners else 0
        count = owners[key][0].count if key in owners else 0
        why = f"shard {number} of {count} did not measure it" if number else "no shard measured it"
        if number in reasons and reasons[number].detail:
            why += f": {reasons[number].detail}"
        not_made[key] = AttemptError(kind=ErrorKind.STOPPED, message=why)
    collector.not_made = not_made
    in_order = sorted(used, key=lambda each: (each.shard.wave, each.shard.number, each.age))
    for each in in_order:
        meter.add_uses(each.result.totals.uses)
    agents: dict[str, AgentConditions] = {}
    for each in in_order:
        for agent in each.result.conditions.agents:
            agents.setdefault(agent.agent, agent)
    return JoinedShards(
        collector=collector,
        meter=meter,
        used=tuple(in_order),
        problems=tuple(sorted(problems, key=lambda p: (not p.undecided, p.wave, p.number, p.kind, p.source))),
        base=_join_bases(in_order, plan),
        agents=tuple(agents[name] for name in dict.fromkeys(planned.agent for planned in plan.sets) if name in agents),
        lacking=tuple(dict.fromkeys(text for each in in_order for text in each.result.conditions.lacking)),
    )


def _usable(
    given: Iterable[ShardResult], plan: str, commit: str | None, problems: list[ShardProblem]
) -> list[ShardResult]:
    """Return what can be joined, oldest first; the rest are added to the problems."""
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
    # the configuration that most shards had; of as many the newer one
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


def _as_measured(plan: Plan, used: Sequence[ShardResult]) -> Plan:
    """Return the plan with what the shards could not measure for want of credentials marked as they marked it."""
    criteria: dict[tuple[str, str, str], str] = {}
    cases: dict[CaseKey, str] = {}
    for each in used:
        for owner in each.result.sets:
            for info in owner.criteria:
                if info.unmeasured:
                    criteria[owner.agent, owner.eval_set, info.name] = info.unmeasured
            for case in owner.cases:
                if case.unmeasured:
                    cases[CaseKey(owner.agent, owner.eval_set, case.case)] = case.unmeasured
    if not criteria and not cases:
        return plan

    def marked(planned: PlannedSet) -> PlannedSet:
        infos = tuple(
            info.model_copy(update={"unmeasured": criteria.get((planned.agent, planned.key, info.name), "")})
            for info in planned.infos
        )
        items = (replace(item, unmeasured=cases.get(planned.case_key(item), "")) for item in planned.cases)
        return replace(planned, infos=infos, cases=tuple(items))

    return replace(plan, sets=tuple(map(marked, plan.sets)))


def _restore(each: ShardResult, collector: ResultCollector) -> None:
    """Add the attempts of a result; those of a newer one, which is added later, replace them."""
    known = {key for key, _ in collector.plan.digests()}
    for owner in each.result.sets:
        for case in owner.cases:
            key = CaseKey(owner.agent, owner.eval_set, case.case)
            if key in known:
                for summary in case.attempts:
                    collector.restore(key, "head", summary)
                for summary in case.control:
                    collector.restore(key, "base", summary)


def _with_missing(
    problems: Sequence[ShardProblem],
    used: Sequence[ShardResult],
    collector: ResultCollector,
    owners: Mapping[CaseKey, tuple[Shard, int]],
) -> Iterator[ShardProblem]:
    """Yield the problems with the cases that are not measured because of each; and what is missing without any."""
    uncovered: dict[tuple[int, int], list[CaseKey]] = {}
    for key in collector.unmade():
        shard, number = owners.get(key, (None, 0))
        uncovered.setdefault((number, shard.count if shard else 0), []).append(key)
    for problem in problems:
        blamed = problem.wave == 1 and problem.number and problem.kind is not ShardTrouble.SUPERSEDED
        cases = uncovered.pop((problem.number, problem.count), ()) if blamed else ()
        named = tuple(sorted(cases)[:NAMED])
        yield problem.model_copy(update={"cases": len(cases), "named": named}) if cases else problem
    for each in used:
        result, place = each.result, (each.shard.number, each.shard.count)
        if each.shard.wave > 1:
            continue
        cases = uncovered.pop(place, ())
        if result.status is not RunStatus.COMPLETE:
            yield each.problem(ShardTrouble.UNFINISHED, result.cut_short or _STATUS[result.status], cases)
        elif cases:
            yield each.problem(ShardTrouble.UNFINISHED, "its result does not have them", cases)
    for (number, count), keys in sorted(uncovered.items()):
        yield ShardProblem(
            kind=ShardTrouble.MISSING, number=number, count=count, cases=len(keys), named=tuple(sorted(keys)[:NAMED])
        )


_STATUS: Mapping[RunStatus, str] = {
    RunStatus.TIMED_OUT: "time ran out",
    RunStatus.INTERRUPTED: "interrupted",
    RunStatus.LIMITED: "it met a limit",
}


def _join_bases(used: Iterable[ShardResult], plan: Plan) -> Base | None:
    """Return the base commit's agents as all shards met them."""
    bases = [(each, each.result.base) for each in used if each.result.base is not None]
    if not bases:
        return None
    agents: dict[str, AgentConditions] = {}
    reasons: dict[str, str] = {}
    for each, base in bases:
        agents |= {agent.agent: agent for agent in base.agents}
        own = {owner.agent for owner in each.result.sets}
        reasons |= dict.fromkeys(own, base.unavailable) if base.unavailable else base.unavailable_agents
    update: dict[str, Any] = {"unavailable_agents": reasons}
    if reasons and reasons.keys() >= {planned.agent for planned in plan.sets}:
        update = {"unavailable": "; ".join(dict.fromkeys(reasons.values()))}
    return Base(
        commit=next((base.commit for _, base in bases if base.commit), None),
        agents=tuple(agents.values()),
        lacking=tuple(sorted({name for _, base in bases for name in base.lacking})),
        absent=tuple(sorted({name for _, base in bases for name in base.absent})),
        **update,
    )
