"""Pool the records of main: for each pair the comparable scores of the newest runs, or why there are none."""

from __future__ import annotations

import datetime as dt
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any, Final

from agent_eval_action.diagnostics.reader import shorten
from agent_eval_action.diagnostics.suggestions import shortlist
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.case_matching import (
    CaseIdentity,
    CaseMatches,
    current_names,
    match_cases,
    recorded_identity,
    renamed,
)
from agent_eval_action.results.decision import MainCase, MainEvent, MainRun
from agent_eval_action.results.history import (
    Accepted,
    CaseRecord,
    CriterionRecord,
    Definition,
    History,
    PairHistory,
    PairName,
    Record,
    RunCost,
    rounded,
)
from agent_eval_action.results.pair_scores import meets
from agent_eval_action.results.run_result import collector_paused

_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Suite:
    """The current definitions of cases and criteria, by the names that records use.

    ``cases``: each case's digest, and the digests of its criteria by name. ``criteria``: the definitions behind those
    digests. ``skipped``: agents that exist but whose cases are not in this suite.
    """

    cases: Mapping[CaseKey, tuple[str, Mapping[str, str]]] = field(default_factory=dict)
    criteria: Mapping[str, Definition] = field(default_factory=dict)
    skipped: frozenset[str] = frozenset()

    def match(self, earlier: Sequence[CaseRecord]) -> CaseMatches:
        """Match recorded cases with this suite's cases, whatever they were called then."""
        if all(case.key in self.cases and self.cases[case.key][0] == case.digest for case in earlier):
            return CaseMatches({case.key: case.key for case in earlier})  # the usual case
        now = [CaseIdentity(key, digest, frozenset(digests.values())) for key, (digest, digests) in self.cases.items()]
        return match_cases((recorded_identity(case) for case in earlier if case.agent not in self.skipped), now)


@collector_paused()
def pool(
    records: Sequence[Record],
    suite: Suite | None = None,
    *,
    accepts: Sequence[Accepted] = (),
    last: int = 20,
    source: str = "",
) -> History:
    """The history in ``records`` (newest first) that is comparable with ``suite``.

    Without a suite the newest definitions count. For each pair at most ``last`` comparable runs are pooled, none of
    them older than the run in which an accepted change of the pair first appears. ``accepts``: accepted changes that
    no run includes yet; the history of their pairs is empty.
    """
    if not records:
        return History(pending=tuple(accepts), source=source)
    now = suite or _newest_suite(records)
    runs = _runs(records, now)
    notes = []
    if moved := sorted((old, new) for new, old in runs[0].old_names.items() if new in now.cases):
        renamed_cases = "1 case was renamed and is" if len(moved) == 1 else f"{len(moved)} cases were renamed and are"
        names = shortlist(moved, _SHOWN, lambda case: f"{case[0]} → {case[1]}", "; ")
        notes.append(f"{renamed_cases} compared with main's scores under the old name: {names}")
    pooling = _Pooling(runs, now, last, tuple(accepts))
    pairs = {pair: pooling.pair(pair) for pair in sorted(pooling.names())}
    criteria = {digest: known for record in reversed(records) for digest, known in sorted(record.criteria.items())}
    shown = runs[:last] if suite else ()
    update = {"cases": tuple(pooling.cases(pairs)), "criteria": criteria, "withheld": (), "whole": True}
    return History(
        pairs=pairs,
        pooled=runs[0].record.model_copy(update=update),
        pending=tuple(accepts),
        source=source,
        notes=tuple(notes),
        main_runs=tuple(main_runs([run.record for run in shown], [run.cases for run in shown])),
        main_cases=tuple(main_cases([run.cases for run in shown])),
    )


def age_note(history: History, now: dt.datetime, max_age: float) -> str | None:
    """A warning if the newest record is older than ``max_age`` days."""
    if history.pooled is None:
        return None
    try:
        made = dt.datetime.fromisoformat(history.pooled.created_at)
    except ValueError:
        return None
    days = (now - (made if made.tzinfo else made.replace(tzinfo=dt.UTC))).total_seconds() / 86_400
    if days <= max_age:
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
        there |= {case.key for case in record.cases} | {pair.key for pair in record.withheld}
        if record.whole:  # anything that only older runs have was removed from main
            break
    return Suite({key: value for key, value in cases.items() if key in there}, criteria)


@dataclass(frozen=True, slots=True)
class _Run:
    """A record with its cases under their current names.

    ``old_names``: the former names of renamed cases, by current name. ``ambiguous``: current cases that this record may
    have under several other names.
    """

    record: Record
    cases: Mapping[CaseKey, CaseRecord]
    old_names: Mapping[CaseKey, CaseKey]
    ambiguous: Mapping[CaseKey, tuple[str, ...]]

    def accepted(self, pair: PairName) -> dict[str, Accepted]:
        """The accepted changes of a pair that were in force at this run, by id."""
        then = self.old_names.get(pair[0], pair[0])
        return {entry.id: entry for entry in self.record.accepted if entry.covers(then, pair[1])}


def _runs(records: Sequence[Record], now: Suite) -> tuple[_Run, ...]:
    """The records, newest first, with all cases under their current names."""
    runs: list[_Run] = []
    known: dict[CaseKey, CaseKey] = {}  # maps older definitions of cases that were renamed since
    for record in records:
        matches = now.match(record.cases)
        names = current_names(record, matches, known)
        known |= names
        record = renamed(record, names, matches.current_agent)  # noqa: PLW2901 - the same record
        old_names = {new: old for old, new in names.items() if new != old}
        runs.append(_Run(record, {case.key: case for case in record.cases}, old_names, matches.ambiguous))
    return tuple(runs)


@dataclass(frozen=True, slots=True)
class _Pooling:
    """Records, newest first, matched with the current suite."""

    runs: tuple[_Run, ...]
    now: Suite
    last: int
    accepts: tuple[Accepted, ...]

    def names(self) -> set[PairName]:
        """The suite's pairs that main knows, and those that main's newest complete run still had."""
        scored = [{(case.key, name) for case in run.record.cases for name in case.criteria} for run in self.runs]
        withheld = [{(pair.key, pair.criterion) for pair in run.record.withheld} for run in self.runs]
        known = set().union(*scored)
        current = {(key, name) for key, (_, digests) in self.now.cases.items() for name in digests}
        found = current & known.union(*withheld)
        for run, own, left_out in zip(self.runs, scored, withheld, strict=True):
            found |= own | (known & left_out)
            if run.record.whole:
                break
        return found | {pair for pair in current if any(pair[0] in run.ambiguous for run in self.runs)}

    def pair(self, pair: PairName) -> PairHistory:
        """A pair's pooled scores, or why there are none."""
        key, name = pair
        runs, anew = self._since_accepted(pair)
        seen = [
            (run, case, case.criteria[name]) for run in runs if (case := run.cases.get(key)) and name in case.criteria
        ]
        usable = [scores for _, case, scores in seen if self._comparable(pair, case, scores)][: self.last]
        counts: Counter[float] = Counter()
        for scores in usable:
            counts.update(dict(scores.scores))
        return PairHistory(
            scores=tuple(sorted(counts.items())),
            by_run=tuple(scores.scores for scores in usable),
            incomparable="" if usable else self._why_incomparable(pair, seen[0] if seen else None, anew),
            anew=anew.reason if anew else "",
            accepted=bool(anew) and not seen,
            record=usable[0] if usable else seen[0][2] if seen else None,
        )

    def cases(self, pairs: Mapping[PairName, PairHistory]) -> Iterator[CaseRecord]:
        """Each case with its pooled counts. ``pairs`` must be sorted."""
        recorded = ((*pair, history, history.record) for pair, history in pairs.items() if history.record is not None)
        for key, group in groupby(recorded, key=lambda item: item[0]):
            found = [run.cases[key] for run in self.runs if key in run.cases]
            digest, digests = self.now.cases.get(key, (found[0].digest, {}))
            newest = next((case for case in found if case.digest == digest), found[0])
            criteria = {}
            for _, name, history, record in group:
                # scores of an accepted change, or of a case that agents share, do not count despite equal digests
                alike = newest.digest == digest and record.digest == digests.get(name)
                if not (alike and history.incomparable):
                    criteria[name] = self._pooled_record(history, record)
            yield newest.model_copy(update={"criteria": criteria})

    def _pooled_record(self, history: PairHistory, newest: CriterionRecord) -> CriterionRecord:
        if history.runs <= 1:
            return newest
        definition, threshold = self.now.criteria.get(newest.digest), newest.threshold
        passed = None
        if threshold is not None and definition is not None:
            passed = sum(count for score, count in history.scores if meets(score, threshold, definition.goal))
        return newest.model_copy(update={"n": history.n, "scores": history.scores, "passed": passed, "mean": None})

    def _since_accepted(self, pair: PairName) -> tuple[tuple[_Run, ...], Accepted | None]:
        """The runs since an acceptance of the pair first appeared, and that acceptance."""
        if waiting := next((entry for entry in self.accepts if entry.covers(*pair)), None):
            return (), waiting
        for index, (run, older) in enumerate(pairwise(self.runs)):
            fresh = run.accepted(pair)
            for name in fresh.keys() - older.accepted(pair).keys():
                return self.runs[: index + 1], fresh[name]
        return self.runs, None

    def _comparable(self, pair: PairName, case: CaseRecord, scores: CriterionRecord) -> bool:
        now = self.now.cases.get(pair[0])
        if now is None:  # a removed case is compared with itself
            return True
        digest, digests = now
        return case.digest == digest and scores.digest == digests.get(pair[1], scores.digest)

    def _why_incomparable(
        self, pair: PairName, newest: tuple[_Run, CaseRecord, CriterionRecord] | None, anew: Accepted | None
    ) -> str:
        if agents := next((run.ambiguous[pair[0]] for run in self.runs if pair[0] in run.ambiguous), ()):
            names = " and ".join(f"`{agent}`" for agent in agents[:_SHOWN])
            return f"main has scores of this case from {names}, and nothing says which of these agents it was"
        if newest is None:
            return f"its change was accepted ({anew.reason})" if anew else "main has no clean scores of it"
        run, case, scores = newest
        digest, digests = self.now.cases[pair[0]]
        since = f"commit {run.record.commit[:10]}" if run.record.commit else "the baseline"
        if case.digest != digest:
            return f"the case was edited since {since}"
        now = digests.get(pair[1], "")
        return definition_change(run.record.criteria.get(scores.digest), self.now.criteria.get(now))


# --- main's history, run by run ---------------------------------------------------------------------

_EVENTS: Final = 20
_UNKNOWN: Final = "the criterion's options changed since the baseline"
_JUDGE: Final = ("judge_model", "judge_model_options.judge_model", "judge")
_PROMPT: Final = ("prompt_version", "judge_prompt")
_LAST: Final = ("scoring version", "goal")

Cases = Mapping[CaseKey, CaseRecord]


def main_runs(records: Sequence[Record], cases: Sequence[Cases]) -> Iterator[MainRun]:
    """Each run of main, oldest first. ``records`` are newest first; ``cases`` are theirs, under current names."""
    runs = list(zip(records, cases, strict=True))[::-1]
    for before, (record, own) in zip([None, *runs], runs, strict=False):
        events = () if before is None else tuple(_events(*before, record, own))[:_EVENTS]
        cost = record.cost or RunCost()
        means: defaultdict[str, list[float]] = defaultdict(list)
        for name, scores in (item for case in record.cases for item in case.criteria.items()):
            means[name].append(scores.average)
        yield MainRun(
            commit=record.commit,
            created_at=record.created_at,
            models=tuple(sorted({model for agent in record.agents for model in agent.models})),
            means={name: rounded(statistics.fmean(averages)) for name, averages in sorted(means.items())},
            cases=len(record.cases),
            passed=sum(_outcome(case) == "p" for case in record.cases),
            tokens=cost.tokens,
            seconds=cost.seconds,
            usd=cost.usd,
            events=events,
        )


def main_cases(cases: Sequence[Cases]) -> Iterator[MainCase]:
    """Every case of any of these runs (newest first)."""
    for key in sorted(set().union(*cases)):
        found = (own.get(key) for own in reversed(cases))
        yield MainCase(**key._asdict(), outcomes="".join(_outcome(case) if case else "-" for case in found))


def _outcome(case: CaseRecord) -> str:
    """The letter of ``MainCase``: whether the case's attempts met all thresholds of their time."""
    judged = [(record.passed, record.n) for record in case.criteria.values() if record.passed is not None]
    if all(passed == attempts for passed, attempts in judged):
        return "p"
    return "m" if any(passed for passed, attempts in judged if passed < attempts) else "f"


def _events(before: Record, earlier: Cases, record: Record, own: Cases) -> Iterator[MainEvent]:
    """The changes between two consecutive runs: agents, criteria, cases, accepted changes."""
    old_agents = {agent.agent: agent for agent in before.agents}
    for agent in record.agents:
        if (old := old_agents.get(agent.agent)) is None:
            continue
        if old.models != agent.models:
            models = (", ".join(models[:_SHOWN]) for models in (old.models, agent.models))
            yield MainEvent(kind="model", subject=agent.agent, text=" → ".join(map(_or_unknown, models)))
        if old.adk_version != agent.adk_version:
            versions = f"{_or_unknown(old.adk_version)} → {_or_unknown(agent.adk_version)}"
            yield MainEvent(kind="adk", subject=agent.agent, text=versions)
    was, now = _definitions(before, earlier), _definitions(record, own)
    for name in sorted(was.keys() & now.keys()):
        if was[name] != now[name]:
            change = definition_change(was[name], now[name])
            yield MainEvent(kind="judge" if change.startswith("judge") else "criterion", subject=name, text=change)
    if edited := sorted(key.case for key in earlier.keys() & own.keys() if earlier[key].digest != own[key].digest):
        yield MainEvent(kind="cases", text=", ".join(edited[:_SHOWN]), cases=len(edited))
    known = {entry.id for entry in before.accepted}
    for entry in record.accepted:
        if entry.id not in known:
            yield MainEvent(kind="accepted", subject=entry.case, text=entry.reason[:200])


def _or_unknown(value: str) -> str:
    return value or "unknown"


def _definitions(record: Record, cases: Cases) -> dict[str, Definition]:
    """Each criterion's definition, except those that eval sets define differently."""
    digests: defaultdict[str, set[str]] = defaultdict(set)
    for case in cases.values():
        for name, scores in case.criteria.items():
            digests[name].add(scores.digest)
    single = {name: found.pop() for name, found in digests.items() if len(found) == 1}
    return {name: record.criteria[digest] for name, digest in single.items() if digest in record.criteria}


def definition_change(old: Definition | None, new: Definition | None) -> str:
    """For example ``judge gemini-2.5-flash → gemini-3-flash``; a generic sentence if a definition was not kept."""
    if old is None or new is None:
        return _UNKNOWN
    before, after = _facts(old), _facts(new)
    parts = []
    for name in sorted(before.keys() | after.keys(), key=lambda name: (name != "judge", name in _LAST, name)):
        then, now = before.get(name), after.get(name)
        if then != now:
            shown = f"{_value(then)} → {_value(now)}"
            parts.append(f"{name} {shown}" if _value(then) != _value(now) else f"{name} changed")
    return shortlist(parts, _SHOWN) or _UNKNOWN


def _facts(definition: Definition) -> dict[str, Any]:
    """A criterion's definition by readable names; nested options by their path."""
    facts: dict[str, Any] = {"judge": definition.judge or None}
    for name, value in _flat(definition.options):
        facts["judge" if name in _JUDGE else "judge prompt" if name.rpartition(".")[2] in _PROMPT else name] = value
    return facts | {"scoring version": definition.scoring_version, "goal": definition.goal}


def _flat(options: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _value(value: Any) -> str:
    return "none" if value is None else value[:60] if isinstance(value, str) else shorten(value, 60)
