"""Match the cases of a suite with those of an earlier one by their digests, even if case, file or agent was renamed.

Names only decide between equal cases. The result does not depend on the order of the cases.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Final, NamedTuple, TypeVar

from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.history import CaseRecord, OmittedPair, Record, kept_digest, kept_key
from agent_eval_action.results.run_result import RunResult

_RecordPart = TypeVar("_RecordPart", CaseRecord, OmittedPair)


class CaseIdentity(NamedTuple):
    """What cases are matched by. ``criteria``: the digests of the criteria that score the case."""

    key: CaseKey
    digest: str
    criteria: frozenset[str] = frozenset()


def recorded_identity(case: CaseRecord) -> CaseIdentity:
    """Return the identity of a recorded case."""
    return CaseIdentity(case.key, case.digest, frozenset(record.digest for record in case.criteria.values()))


def measured_identities(result: RunResult) -> Iterator[CaseIdentity]:
    """Yield the identities of a run's cases, with names and digests as records keep them."""
    for measured_set in result.sets:
        criteria = frozenset(kept_digest(info.digest) for info in measured_set.criteria)
        for key, case in measured_set.keyed_cases():
            yield CaseIdentity(kept_key(key), kept_digest(case.digest), criteria)


@dataclass(frozen=True, slots=True)
class CaseMatches:
    """The matches of two suites. ``current_key``: the current key of every earlier case that still exists.

    An earlier case without a current key was removed. ``ambiguous``: current cases whose digest earlier cases of
    several agents have, with the names of these agents, since it is unknown which of them it was. Every other current
    case without an earlier one is new. ``current_agent``: the current names of renamed agents.
    """

    current_key: Mapping[CaseKey, CaseKey] = field(default_factory=dict)
    ambiguous: Mapping[CaseKey, tuple[str, ...]] = field(default_factory=dict)
    current_agent: Mapping[str, str] = field(default_factory=dict)


def match_cases(earlier: Iterable[CaseIdentity], current: Iterable[CaseIdentity]) -> CaseMatches:
    """Match the cases of two suites, each with at most one case of the other.

    A case with the same digest is looked for first under the same name, then within the same agent, then within the
    renamed agent, then in any agent if only one has the digest. Finally cases with another digest match by name, also
    in a renamed file or agent: they were edited.
    """
    matching = _Matching(
        {case.key: case for case in sorted(earlier, key=lambda case: case.key)},
        {case.key: case for case in sorted(current, key=lambda case: case.key)},
    )
    matching.pair(lambda case: (case.key, case.digest))
    matching.pair(*_WITHIN_AGENT)
    agents = matching.renamed_agents()
    matching.pair(*_WITHIN_AGENT, agents=agents)
    ambiguous = matching.pair_across_agents()
    matching.pair_edited(agents, set(ambiguous))
    return CaseMatches(matching.found, ambiguous, agents)


_ValueOf = Callable[[CaseIdentity], Hashable]

_WITHIN_AGENT: Final[tuple[_ValueOf, ...]] = (
    lambda case: (case.digest, case.key, case.criteria),
    lambda case: (case.digest, case.key.agent, case.key.case, case.criteria),
    lambda case: (case.digest, case.key.agent, case.key.eval_set, case.criteria),
    lambda case: (case.digest, case.key.agent, case.criteria),
    lambda case: (case.digest, case.key.agent, case.key.case),
    lambda case: (case.digest, case.key.agent),
)
"""What equal cases of one agent may have in common, the strongest evidence first."""


def with_current_names(
    record: Record, current: Iterable[CaseIdentity], covered: Callable[[str], bool] | None = None
) -> Record:
    """Return the record with the current names of its cases.

    ``covered``: whether ``current`` has all cases of an agent. Cases of other agents that it lacks keep their names.
    """
    now = list(current)
    known = {case.key for case in now}
    earlier = [case for case in record.cases if covered is None or case.key in known or covered(case.agent)]
    return renamed(record, current_names(record, match_cases(map(recorded_identity, earlier), now)))


def current_names(
    record: Record, matches: CaseMatches, known: Mapping[CaseKey, CaseKey] | None = None
) -> dict[CaseKey, CaseKey]:
    """Return the current names of a record's cases. ``known``: current names according to newer records.

    If a removed case has the name of a current one, its name gets an addition.
    """
    names = dict(matches.current_key)
    taken = set(names.values())
    if known:
        for key in (*(case.key for case in record.cases), *(pair.key for pair in record.withheld)):
            if key not in names and key in known and known[key] not in taken:
                names[key] = known[key]
                taken.add(known[key])
    for case in record.cases:
        if case.key not in names:
            free = case.key
            while free in taken:
                free = free._replace(case=f"{free.case} (removed)")
            names[case.key] = free
            taken.add(free)
    return names


def renamed(record: Record, names: Mapping[CaseKey, CaseKey], agents: Mapping[str, str] | None = None) -> Record:
    """Return the record with other names of its cases and, unless such a name is taken, of its agents."""
    if all(old == new for old, new in names.items()):
        return record

    def moved(named: _RecordPart) -> _RecordPart:
        now = names.get(named.key, named.key)
        return named.model_copy(update=now._asdict()) if now != named.key else named

    there = {agent.agent for agent in record.agents}
    free = {old: new for old, new in (agents or {}).items() if new not in there}
    return record.model_copy(
        update={
            "cases": tuple(sorted(map(moved, record.cases), key=lambda case: case.key)),
            "withheld": tuple(map(moved, record.withheld)),
            "agents": tuple(
                agent.model_copy(update={"agent": free.get(agent.agent, agent.agent)}) for agent in record.agents
            ),
        }
    )


@dataclass
class _Matching:
    """The cases of both sides that are not matched yet, sorted by key, and the matches ``found``."""

    earlier: dict[CaseKey, CaseIdentity]
    current: dict[CaseKey, CaseIdentity]
    found: dict[CaseKey, CaseKey] = field(default_factory=dict)

    def pair(self, *values: _ValueOf, agents: Mapping[str, str] | None = None) -> None:
        """Match cases with equal values in the order of their keys, except those whose value is None.

        ``agents``: the current names of renamed agents.
        """
        for value in values:
            waiting: dict[Hashable, list[CaseKey]] = defaultdict(list)
            for case in reversed(self.current.values()):
                waiting[value(case)].append(case.key)
            for case in list(self.earlier.values()):
                agent = (agents or {}).get(case.key.agent, case.key.agent)
                wanted = value(case._replace(key=case.key._replace(agent=agent)))
                if wanted is not None and (same := waiting.get(wanted)):
                    self._match(case.key, same.pop())

    def renamed_agents(self) -> dict[str, str]:
        """Return renamed agents: pairs that share more cases with each other than either does with any other agent."""
        then, now = _agents_by_digest(self.earlier.values()), _agents_by_digest(self.current.values())
        shared = Counter(pair for digest in then.keys() & now.keys() for pair in product(then[digest], now[digest]))
        found: dict[str, str] = {}
        while shared:
            best = {
                old: new
                for (old, new), cases in shared.items()
                if all(n < cases for pair, n in shared.items() if (pair[0] == old) != (pair[1] == new))
            }
            if not best:
                break
            found |= best
            taken = set(best.values())
            shared = Counter({pair: n for pair, n in shared.items() if pair[0] not in best and pair[1] not in taken})
        return found

    def pair_across_agents(self) -> dict[CaseKey, tuple[str, ...]]:
        """Match digests that one agent on either side has; return the cases whose digests several agents have."""
        then, now = _agents_by_digest(self.earlier.values()), _agents_by_digest(self.current.values())
        unique = {digest for digest in then.keys() & now.keys() if len(then[digest]) == len(now[digest]) == 1}
        ambiguous = {
            key: tuple(sorted(then[case.digest]))
            for key, case in self.current.items()
            if case.digest in then and case.digest not in unique
        }
        self.pair(
            lambda case: (case.digest, case.criteria) if case.digest in unique else None,
            lambda case: case.digest if case.digest in unique else None,
        )
        return ambiguous

    def pair_edited(self, agents: Mapping[str, str], left_out: set[CaseKey]) -> None:
        """Match cases with other digests by name: in the same file, or in the renamed file or agent."""
        sets: dict[tuple[str, str], Counter[tuple[str, str]]] = defaultdict(Counter)
        for then, now in self.found.items():
            sets[then[:2]][now[:2]] += 1
        for then in list(self.earlier):
            most = min(sets[then[:2]].items(), key=lambda item: (-item[1], item[0]), default=(then[:2], 0))[0]
            renamed = agents.get(then.agent, then.agent)
            names = (then, CaseKey(*most, then.case), CaseKey(renamed, then.eval_set, then.case))
            if same := [name for name in names if name in self.current and name not in left_out]:
                self._match(then, same[0])

    def _match(self, then: CaseKey, now: CaseKey) -> None:
        self.found[then] = now
        del self.earlier[then], self.current[now]


def _agents_by_digest(cases: Iterable[CaseIdentity]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for case in cases:
        found[case.digest].add(case.key.agent)
    return found
