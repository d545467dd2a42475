"""Pools the records of main: per pair the comparable scores of the newest runs, or why there are none."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, TypeVar

from agent_eval_action.baseline.definitions import describe_definition_change
from agent_eval_action.results.case_matching import CaseIdentity, CaseMatches, free_key, match_cases, recorded_identity
from agent_eval_action.results.history import (
    Accepted,
    CaseRecord,
    CriterionRecord,
    Definition,
    History,
    OmittedPair,
    PairHistory,
    PairName,
    Record,
)
from agent_eval_action.results.pair_scores import meets
from agent_eval_action.results.run_result import CaseKey, collector_paused

LAST: Final = 20
"""How many of the newest comparable runs are pooled unless told otherwise."""

_RENAMES_SHOWN: Final = 3


_Named = TypeVar("_Named", CaseRecord, OmittedPair)


@dataclass(frozen=True, slots=True)
class Suite:
    """How cases and criteria are defined now, by the names records keep.

    ``cases``: the case's digest and its criteria's digests by name; ``criteria``: what those digests stand for.
    ``skipped``: agents that are there still, with cases that are none of this suite.
    """

    cases: Mapping[CaseKey, tuple[str, Mapping[str, str]]] = field(default_factory=dict)
    criteria: Mapping[str, Definition] = field(default_factory=dict)
    skipped: frozenset[str] = frozenset()

    def match(self, earlier: Sequence[CaseRecord]) -> CaseMatches:
        """Which of these recorded cases is which case of this suite, whatever it was called then."""
        if all(case.key in self.cases and self.cases[case.key][0] == case.digest for case in earlier):
            return CaseMatches()  # as nearly always: nothing was renamed or edited
        now = [CaseIdentity(key, digest, frozenset(digests.values())) for key, (digest, digests) in self.cases.items()]
        gone = (case for case in earlier if case.key.agent not in self.skipped)
        return match_cases(map(recorded_identity, gone), now)


@collector_paused()
def pool(
    records: Sequence[Record],
    suite: Suite | None = None,
    *,
    accepts: Sequence[Accepted] = (),
    last: int = LAST,
    source: str = "",
    notes: Iterable[str] = (),
) -> History:
    """The history in ``records``, newest first, as far as it is comparable with ``suite``.

    Without a suite the newest definitions count. Of a pair at most ``last`` comparable runs are pooled, and
    none from before the run in which an accepted change of it first shows. ``accepts`` are accepted changes
    that no run shows yet: the history of their pairs is empty.
    """
    if not records:
        return History(pending=tuple(accepts), source=source, notes=tuple(notes))
    now = suite or _newest_suite(records)
    runs = _runs(records, now)
    pooling = _Pooling(runs, now, last, tuple(accepts))
    pairs = {pair: pooling.pair(pair) for pair in sorted(pooling.names())}
    criteria = {digest: known for record in reversed(records) for digest, known in sorted(record.criteria.items())}
    update = {"cases": tuple(pooling.cases(pairs)), "criteria": criteria, "withheld": (), "whole": True}
    return History(
        pairs=pairs,
        pooled=runs[0].record.model_copy(update=update),
        pending=tuple(accepts),
        source=source,
        notes=(*notes, *_rename_note(runs[0], now)),
    )


def age_days(history: History, now: dt.datetime) -> float | None:
    """Days since the newest record was made; None when it does not say."""
    try:
        made = dt.datetime.fromisoformat(history.pooled.created_at if history.pooled else "")
    except ValueError:
        return None
    made = made if made.tzinfo else made.replace(tzinfo=dt.UTC)
    return max(0.0, (now - made).total_seconds() / 86_400)


def age_note(history: History, now: dt.datetime, max_age: float) -> str | None:
    """A warning when the newest record is older than ``max_age`` days."""
    days = age_days(history, now)
    if days is None or days <= max_age or history.pooled is None:
        return None
    commit = f" (commit {history.pooled.commit[:10]})" if history.pooled.commit else ""
    return f"the baseline is {days:.0f} days old{commit}, older than {max_age:g}: models drift, run main again"


def _newest_suite(records: Sequence[Record]) -> Suite:
    cases: dict[CaseKey, tuple[str, Mapping[str, str]]] = {}
    criteria: dict[str, Definition] = {}
    for record in records:
        criteria = {**record.criteria, **criteria}
        for case in record.cases:
            digests = {name: scores.digest for name, scores in case.criteria.items()}
            digest, known = cases.get(case.key, (case.digest, {}))
            cases[case.key] = (digest, {**digests, **known})
    there: set[CaseKey] = set()
    for record in records:
        there |= {case.key for case in record.cases} | {pair.pair[0] for pair in record.withheld}
        if record.whole:  # what an older run alone has was removed from main since
            break
    return Suite({key: value for key, value in cases.items() if key in there}, criteria)


@dataclass(frozen=True, slots=True)
class _Run:
    """A record with the names its cases have now, and its cases by key.

    ``old_names``: the names they had then, by those they have now, where they differ. ``ambiguous``: cases of now
    that this record may have under several other names.
    """

    record: Record
    cases: Mapping[CaseKey, CaseRecord]
    old_names: Mapping[CaseKey, CaseKey] = field(default_factory=dict)
    ambiguous: Mapping[CaseKey, tuple[str, ...]] = field(default_factory=dict)

    def scores_of(self, pair: PairName) -> tuple[CaseRecord, CriterionRecord] | None:
        case = self.cases.get(pair[0])
        found = case.criteria.get(pair[1]) if case else None
        return (case, found) if case and found else None

    def accepted(self, pair: PairName) -> dict[str, Accepted]:
        then = self.old_names.get(pair[0], pair[0])
        return {entry.id: entry for entry in self.record.accepted if entry.covers(then, pair[1])}


def _runs(records: Sequence[Record], now: Suite) -> tuple[_Run, ...]:
    """The records, newest first, as if their cases had always been called what they are called now."""
    runs: list[_Run] = []
    names: dict[CaseKey, CaseKey] = {}
    for record in records:
        matches = now.match(record.cases)
        current = _current_names(record, now, matches, names)
        names |= current
        renamed = any(old != new for old, new in current.items())
        runs.append(
            _renamed(record, current, matches) if renamed else _Run(record, _by_key(record), {}, matches.ambiguous)
        )
    return tuple(runs)


def _current_names(
    record: Record, now: Suite, matches: CaseMatches, names: Mapping[CaseKey, CaseKey]
) -> dict[CaseKey, CaseKey]:
    """What the cases of a record are called now. ``names``: what newer records know of it.

    By them an older definition of a case that was renamed since is found. A case that is gone gives way to one that
    has its name now.
    """
    current = dict(matches.current_key)
    as_it_was = {case.key for case in record.cases if case.key in now.cases and now.cases[case.key][0] == case.digest}
    taken = set(current.values()) | as_it_was
    for key in dict.fromkeys((*(case.key for case in record.cases), *(pair.pair[0] for pair in record.withheld))):
        if key not in current and key in names and names[key] not in taken and key not in as_it_was:
            current[key] = names[key]
            taken.add(names[key])
    for case in record.cases:
        if case.key not in current and case.key in taken and case.key not in as_it_was:
            current[case.key] = free_key(case.key, taken)
    return current


def _renamed(record: Record, current: Mapping[CaseKey, CaseKey], matches: CaseMatches) -> _Run:
    def moved(named: _Named) -> _Named:
        key = CaseKey(named.agent, named.eval_set, named.case)
        return named.model_copy(update=current[key]._asdict()) if current.get(key, key) != key else named

    agents = {agent.agent for agent in record.agents}
    now = {old: new for old, new in matches.current_agent.items() if new not in agents}
    renamed = record.model_copy(
        update={
            "cases": tuple(moved(case) for case in record.cases),
            "withheld": tuple(moved(pair) for pair in record.withheld),
            "agents": tuple(
                agent.model_copy(update={"agent": now.get(agent.agent, agent.agent)}) for agent in record.agents
            ),
        }
    )
    old_names = {new: old for old, new in current.items() if new != old}
    return _Run(renamed, _by_key(renamed), old_names, matches.ambiguous)


def _by_key(record: Record) -> dict[CaseKey, CaseRecord]:
    return {case.key: case for case in record.cases}


def _rename_note(newest: _Run, now: Suite) -> tuple[str, ...]:
    """What was renamed since the newest record, for people."""
    moved = sorted((old, new) for new, old in newest.old_names.items() if new in now.cases)
    if not moved:
        return ()
    shown = "; ".join(f"{old} → {new}" for old, new in moved[:_RENAMES_SHOWN])
    more = f" and {len(moved) - _RENAMES_SHOWN} more" if len(moved) > _RENAMES_SHOWN else ""
    cases = "1 case was renamed and is" if len(moved) == 1 else f"{len(moved)} cases were renamed and are"
    return (f"{cases} compared with main's scores under the old name: {shown}{more}",)


@dataclass(frozen=True, slots=True)
class _Pooling:
    """Records, newest first, seen from the suite as it is now. ``shared``: equal histories are one object."""

    runs: tuple[_Run, ...]
    now: Suite
    last: int
    accepts: tuple[Accepted, ...] = ()
    shared: dict[tuple[object, ...], PairHistory] = field(default_factory=dict)

    def names(self) -> set[PairName]:
        """The suite's pairs that main knows, and those main still had in its newest run of everything."""
        known = {(case.key, name) for run in self.runs for case in run.record.cases for name in case.criteria}
        held = {withheld.pair for run in self.runs for withheld in run.record.withheld}
        current = {(key, name) for key, (_, digests) in self.now.cases.items() for name in digests}
        found = current & (known | held)
        for run in self.runs:
            found |= {(case.key, name) for case in run.record.cases for name in case.criteria}
            found |= known & {withheld.pair for withheld in run.record.withheld}
            if run.record.whole:
                break
        return found | {pair for pair in current if any(pair[0] in run.ambiguous for run in self.runs)}

    def pair(self, pair: PairName) -> PairHistory:
        """Its pooled scores, or why there are none."""
        runs, anew = self._since_accepted(pair)
        seen = [(run, *found) for run in runs if (found := run.scores_of(pair))]
        usable = [scores for _, case, scores in seen if self._comparable(pair, case, scores)][: self.last]
        counts: Counter[float] = Counter()
        for counted in usable:
            for score, count in counted.scores:
                counts[score] += count
        history = PairHistory(
            scores=tuple(sorted(counts.items())),
            by_run=tuple(counted.scores for counted in usable),
            incomparable="" if usable else self._why(pair, seen[0] if seen else None, anew),
            anew=anew.reason if anew else "",
            accepted=bool(anew) and not seen,
            record=usable[0] if usable else seen[0][2] if seen else None,
        )
        values = (history.scores, history.by_run, history.incomparable, history.anew, history.accepted)
        return self.shared.setdefault((*values, id(history.record)), history)

    def cases(self, pairs: Mapping[PairName, PairHistory]) -> Iterator[CaseRecord]:
        """Each case with its pooled counts."""
        by_case: dict[CaseKey, dict[str, PairHistory]] = {}
        for (key, name), history in pairs.items():
            if history.record is not None:
                by_case.setdefault(key, {})[name] = history
        for key, criteria in sorted(by_case.items()):
            found = [run.cases[key] for run in self.runs if key in run.cases]
            digest = self.now.cases[key][0] if key in self.now.cases else found[0].digest
            newest = next((case for case in found if case.digest == digest), found[0])
            pooled = {name: self._pooled(history) for name, history in sorted(criteria.items())}
            if key in self.now.cases and newest.digest == digest:
                # scores of an accepted change, or of a case that several agents had, look as if they counted
                digests = self.now.cases[key][1]
                alike = [name for name, scores in pooled.items() if scores and scores.digest == digests.get(name)]
                pooled |= {name: None for name in alike if criteria[name].incomparable}
            yield newest.model_copy(update={"criteria": {name: scores for name, scores in pooled.items() if scores}})

    def _pooled(self, history: PairHistory) -> CriterionRecord | None:
        record = history.record
        if record is None or not history.runs:
            return record
        definition = self.now.criteria.get(record.digest)
        passed = None
        if record.threshold is not None and definition is not None:
            threshold, goal = record.threshold, definition.goal
            passed = sum(count for score, count in history.scores if meets(score, threshold, goal))
        return record.model_copy(
            update={"n": history.n, "scores": history.scores, "passed": passed, "mean": None}
            if history.runs > 1
            else {}
        )

    def _since_accepted(self, pair: PairName) -> tuple[tuple[_Run, ...], Accepted | None]:
        """The runs since the newest one that carries an acceptance the run before it did not."""
        if waiting := next((entry for entry in self.accepts if entry.covers(*pair)), None):
            return (), waiting
        for index, (run, older) in enumerate(pairwise(self.runs)):
            fresh = run.accepted(pair)
            for name in fresh.keys() - older.accepted(pair).keys():
                return self.runs[: index + 1], fresh[name]
        return self.runs, None

    def _comparable(self, pair: PairName, case: CaseRecord, scores: CriterionRecord) -> bool:
        now = self.now.cases.get(pair[0])
        if now is None:  # the case is gone: what it was is compared with itself
            return True
        digest, digests = now
        return case.digest == digest and scores.digest == digests.get(pair[1], scores.digest)

    def _why(
        self, pair: PairName, newest: tuple[_Run, CaseRecord, CriterionRecord] | None, anew: Accepted | None
    ) -> str:
        if agents := next((run.ambiguous[pair[0]] for run in self.runs if pair[0] in run.ambiguous), ()):
            names = " and ".join(f"`{agent}`" for agent in agents[:_RENAMES_SHOWN])
            return f"main has scores of this case from {names}, and nothing says which of these agents it was"
        if newest is None:
            return f"its change was accepted ({anew.reason})" if anew else "main has no clean scores of it"
        run, case, scores = newest
        digest, digests = self.now.cases[pair[0]]
        since = f"commit {run.record.commit[:10]}" if run.record.commit else "the baseline"
        if case.digest != digest:
            return f"the case was edited since {since}"
        now = digests.get(pair[1], "")
        return describe_definition_change(run.record.criteria.get(scores.digest), self.now.criteria.get(now))
