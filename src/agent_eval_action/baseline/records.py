"""Make records from results of runs, for the branch store, baseline.json, and comparisons; and results from records."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import Any, Final

from agent_eval_action.baseline.record_text import shrink_to_limit
from agent_eval_action.diagnostics.reader import shorten
from agent_eval_action.git.repository import Commit
from agent_eval_action.results.base import CaseKey, text_digest
from agent_eval_action.results.case_matching import measured_identities, with_current_names
from agent_eval_action.results.decision import TurnBrief, Unit
from agent_eval_action.results.history import (
    Accepted,
    BaselineAgent,
    CaseRecord,
    CriterionRecord,
    Definition,
    OmittedPair,
    PairName,
    Record,
    RunCost,
    TrajectoryRecord,
    kept_digest,
    kept_key,
    kept_name,
    rounded,
    trajectory_digest,
)
from agent_eval_action.results.pair_scores import PairScores, measured_pairs, meets, modal_trajectory
from agent_eval_action.results.run_result import (
    AttemptSummary,
    CaseResult,
    Conditions,
    CriterionInfo,
    CriterionScore,
    ErrorKind,
    Goal,
    RunResult,
    RunStatus,
    ScoreStatus,
    SetResult,
    Totals,
    collector_paused,
)
from agent_eval_action.stats import counted

_NOT_OF_CODE: Final = frozenset(
    {ErrorKind.RATE_LIMITED, ErrorKind.UNAVAILABLE, ErrorKind.CREDENTIALS, ErrorKind.STOPPED}
)
PASSES: Final = 5
"""How often the base runs every case, as in `baseline update`: a single run of a noisy case tells little."""


@dataclass(frozen=True, slots=True)
class Update:
    """The next baseline, and what became of each case, for display.

    ``spent``: whether accepted changes became part of it. ``kept``: pairs without a clean measurement whose older
    record stays; ``missing``: those without an older record. ``left``: cases of the older baseline that this run did
    not include.
    """

    record: Record
    added: tuple[CaseKey, ...] = ()
    changed: tuple[CaseKey, ...] = ()
    pruned: tuple[CaseKey, ...] = ()
    left: tuple[CaseKey, ...] = ()
    spent: bool = False
    kept: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether any record changed, so that there is something to commit."""
        return bool(self.added or self.changed or self.pruned or self.spent)


def from_result(result: RunResult) -> Record:
    """The record of everything that a run measured cleanly; pairs with an error are left out."""
    return update(None, result).record


@collector_paused()
def update(old: Record | None, result: RunResult, accepted: Iterable[Accepted] = ()) -> Update:
    """The baseline after ``result``. ``accepted``: the entries of accept.yaml; those of this run's cases become spent.

    A pair with an error in any attempt keeps its older record. So do cases outside the run, unless the run was
    complete and covered every case of their agent: then they no longer exist, and are pruned.
    """
    stored = {case.key for case in old.cases} if old else set()
    old = with_current_names(old, measured_identities(result), result.conditions.covers) if old else None
    before = {case.key: case for case in old.cases} if old else {}
    after: dict[CaseKey, CaseRecord] = {}
    kept: list[str] = []
    missing: list[str] = []
    for key, group in groupby(measured_pairs(result), key=lambda pair: pair.key):
        case, stay, lost = _case(kept_key(key), list(group), before.get(kept_key(key)))
        kept += [f"{key.case} › {criterion}" for criterion in stay]
        missing += [f"{key.case} › {criterion}" for criterion in lost]
        if case is not None:
            after[case.key] = case
    spent = _spent_entries(old, result, accepted)
    ran = {kept_key(key) for key, _ in result.keyed_cases()}
    complete = result.status is RunStatus.COMPLETE
    left = tuple(key for key in sorted(before.keys() - ran) if not (complete and result.conditions.covers(key.agent)))
    after |= {key: before[key] for key in left}
    changed = (key for key in after.keys() & before.keys() if after[key] != before[key] or key not in stored)
    return Update(
        record=_record(old, result, after, spent),
        added=tuple(sorted(after.keys() - before.keys())),
        changed=tuple(sorted(changed)),
        pruned=tuple(sorted(before.keys() - after.keys())),
        left=left,
        spent=spent != (old.accepted if old else ()),
        kept=tuple(kept),
        missing=tuple(missing),
    )


def _spent_entries(old: Record | None, result: RunResult, accepted: Iterable[Accepted]) -> tuple[Accepted, ...]:
    known = {entry.id for entry in old.accepted} if old else set()
    ran = [(kept_key(pair.key), kept_name(pair.info.name)) for pair in measured_pairs(result) if pair.scores]
    return tuple(entry for entry in accepted if entry.id in known or any(entry.covers(*pair) for pair in ran))


def _case(
    key: CaseKey, pairs: Sequence[PairScores], old: CaseRecord | None
) -> tuple[CaseRecord | None, list[str], list[str]]:
    """The record of one case, the names of pairs whose older record stays, and of those that have none."""
    case = pairs[0].case
    errored = [pair.info.name for pair in pairs if pair.errors]
    criteria = {kept_name(pair.info.name): _scores(pair) for pair in pairs if pair.scores and not pair.errors}
    if errored and not criteria:
        return (old, errored, []) if old else (None, [], errored)
    stay: list[str] = []
    if old is not None and old.digest == kept_digest(case.digest):
        stay = [name for name in errored if kept_name(name) in old.criteria]
        criteria |= {kept_name(name): old.criteria[kept_name(name)] for name in stay}
    if not criteria:
        return None, [], []
    times = [made.durations.total for made in case.attempts if made.error is None and made.durations.total is not None]
    usual = None
    if modal := modal_trajectory(case.attempts):
        turns, seen, made = modal
        usual = TrajectoryRecord(digest=trajectory_digest(turns), seen=seen, attempts=made, turns=turns)
    record = CaseRecord(
        **key._asdict(),
        digest=kept_digest(case.digest),
        # to the hundredth: precise enough to divide a suite
        seconds=round(statistics.median(times), 2) if times else None,
        criteria=criteria,
        trajectory=usual,
    )
    record = shrink_to_limit(record)
    if old is not None and record.model_copy(update={"seconds": old.seconds}) == old:
        record = old  # a different duration alone is not worth a commit
    return record, stay, [name for name in errored if name not in stay]


def _scores(pair: PairScores) -> CriterionRecord:
    return CriterionRecord(
        digest=kept_digest(pair.info.digest),
        threshold=pair.info.threshold,
        n=len(pair.scores),
        passed=pair.passed,
        scores=counted(map(rounded, pair.scores)),
    )


def _record(
    old: Record | None, result: RunResult, cases: Mapping[CaseKey, CaseRecord], accepted: tuple[Accepted, ...]
) -> Record:
    conditions = result.conditions
    agents = {agent.agent: agent for agent in old.agents} if old else {}
    for agent in conditions.agents:
        agents[agent.agent] = BaselineAgent(
            agent=agent.agent,
            adk_version=agent.adk_version,
            models=agent.models,
            packages_digest=kept_digest(agent.packages_digest),
        )
    present = {key.agent for key in cases}
    known = {**(old.criteria if old else {}), **definitions(result)}
    named = {scores.digest for case in cases.values() for scores in case.criteria.values()}
    return Record(
        tool_version=conditions.tool_version,
        created_at=result.started_at,
        commit=conditions.commit,
        repeats=max(conditions.repeats, 1),
        agents=tuple(agents[name] for name in sorted(agents) if kept_name(name) in present),
        criteria={digest: definition for digest, definition in sorted(known.items()) if digest in named},
        cases=tuple(cases[key] for key in sorted(cases)),
        accepted=accepted,
        cost=RunCost.of_run(result),
    )


def record_of(
    result: RunResult,
    head: Commit | None = None,
    *,
    regressed: Collection[PairName] = (),
    accepted: Iterable[Accepted] = (),
) -> Record:
    """The record of a run of main at the commit ``head``.

    ``regressed``: pairs that the gate found worse. Only they are withheld: leaving out whole runs would let only lucky
    runs into the history.
    """
    record = from_result(result)
    bad = {(kept_key(key), kept_name(name)) for key, name in regressed}
    clean = {(case.key, name) for case in record.cases for name in case.criteria}
    withheld = []
    for pair in measured_pairs(result):
        key, name = kept_key(pair.key), kept_name(pair.info.name)
        if (key, name) in bad:
            withheld.append(OmittedPair(**key._asdict(), criterion=name, why="regressed"))
        elif (key, name) not in clean and pair.errors:  # must not look like a removed case
            withheld.append(OmittedPair(**key._asdict(), criterion=name, why="unmeasured"))
    update = {
        "whole": result.status is RunStatus.COMPLETE and not result.conditions.selection,
        "criteria": definitions(result),
        "withheld": tuple(withheld),
        "accepted": tuple(accepted),
    }
    if head is not None:
        update |= {"commit": head.sha, "parents": head.parents, "committed_at": head.at}
    return _without(record, lambda *pair: pair in bad).model_copy(update=update)


# --- the base commit's agent as the baseline (``baseline: rerun``) --------------------------------


def baseline_of(result: RunResult) -> Record | None:
    """The scores of the base commit's agent in this run; None if it did not run."""
    if result.base is None or not result.totals.control:
        return None

    def as_attempts(case: CaseResult) -> CaseResult:
        # failed ones count only if all of them failed
        answered = tuple(attempt for attempt in case.control if attempt.error is None)
        return case.model_copy(update={"attempts": answered or case.control, "control": ()})

    changes = {"commit": result.base.commit, "agents": result.base.agents, "repeats": PASSES}
    conditions = result.conditions.model_copy(update=changes)
    result = result.model_copy(update={"conditions": conditions})
    return from_result(_with_cases(result, lambda cases: [as_attempts(case) for case in cases if case.control]))


def unmeasured_on_base(result: RunResult) -> Mapping[CaseKey, str]:
    """Cases that the base commit's agent should have answered but did not, with the reason.

    Cases in which its code raises are not included: that is main's real state. Missing credentials are reported
    elsewhere.
    """
    base = result.base
    if base is None or result.status is not RunStatus.COMPLETE:
        return {}
    found: dict[CaseKey, str] = {}
    for key, case in result.keyed_cases():
        if key.agent in {*base.absent, *base.lacking}:
            continue
        errors = [attempt.error for attempt in case.control if attempt.error is not None]
        of_code = any(error.kind not in _NOT_OF_CODE for error in errors)
        answered = len(errors) < len(case.control)
        reason = errors[0].message if errors else base.unavailable_agents.get(key.agent) or base.unavailable
        if reason and not (case.unmeasured or of_code or answered):
            found[key] = reason
    return found


def without_control(result: RunResult) -> RunResult:
    """The run without its control, whose scores are already the baseline."""
    result = _with_cases(result, lambda cases: [case.model_copy(update={"control": ()}) for case in cases])
    totals = result.totals.model_copy(update={"control": 0})
    return result.model_copy(update={"totals": totals, "base": None})


def _with_cases(result: RunResult, change: Callable[[Sequence[CaseResult]], Iterable[CaseResult]]) -> RunResult:
    sets = (owner.model_copy(update={"cases": tuple(change(owner.cases))}) for owner in result.sets)
    return result.model_copy(update={"sets": tuple(sets)})


def without_accepted(record: Record | None, accepted: Sequence[Accepted]) -> Record | None:
    """The record without the scores of accepted pairs, which are compared with nothing."""
    return _without(record, lambda *pair: any(entry.covers(*pair) for entry in accepted)) if record else None


def _without(record: Record, left_out: Callable[[CaseKey, str], bool]) -> Record:
    return record.model_copy(update={"cases": tuple(case.without_criteria(left_out) for case in record.cases)})


# --- results from records -------------------------------------------------------------------------

Kind = tuple[Goal, Unit]
"""A criterion's goal, and the unit of its scores."""


def result_of(record: Record, known: Mapping[str, Kind]) -> RunResult:
    """The run that a record was made from. ``known``: goal and unit of each criterion, which baselines lack."""
    cases = sorted(record.cases, key=lambda case: case.key)
    grouped = groupby(cases, key=lambda case: (case.agent, case.eval_set))
    sets = tuple(_set(agent, name, list(own), known) for (agent, name), own in grouped)
    return RunResult(
        started_at=record.created_at,
        conditions=Conditions(
            tool_version=record.tool_version,
            commit=record.commit,
            repeats=record.repeats,
            adaptive=record.repeats == 1,
        ),
        sets=sets,
        totals=Totals(cases=len(cases), attempts=sum(len(case.attempts) for owner in sets for case in owner.cases)),
    )


def _set(agent: str, name: str, cases: Sequence[CaseRecord], known: Mapping[str, Kind]) -> SetResult:
    infos: dict[str, CriterionInfo] = {}
    for criterion, scores in (item for case in cases for item in case.criteria.items()):
        goal, unit = known.get(criterion, ("maximize", "score"))
        limit, digest = scores.threshold, scores.digest
        info = CriterionInfo(
            name=criterion, goal=goal, unit=unit, threshold=limit, digest=digest, source="the baseline"
        )
        infos.setdefault(criterion, info)
    results = tuple(
        CaseResult(case=case.case, digest=case.digest, attempts=tuple(_attempts(case, infos))) for case in cases
    )
    return SetResult(agent=agent, eval_set=name, path=name, criteria=tuple(infos.values()), cases=results)


def _attempts(case: CaseRecord, infos: Mapping[str, CriterionInfo]) -> Iterator[AttemptSummary]:
    turns = tuple(TurnBrief(calls=calls) for calls in case.trajectory.turns) if case.trajectory else ()
    scores = {
        name: [score for score, count in kept.scores for _ in range(count)] for name, kept in case.criteria.items()
    }
    for number, row in enumerate(zip_longest(*scores.values())):
        own = tuple(_score(infos[name], score) for name, score in zip(scores, row, strict=True))
        yield AttemptSummary(repeat=number, turns=turns, scores=own)


def _score(info: CriterionInfo, score: float | None) -> CriterionScore:
    if score is None:
        reason = "the baseline has fewer scores of it"
        return CriterionScore(criterion=info.name, status=ScoreStatus.NOT_APPLICABLE, reason=reason)
    passed = None if info.threshold is None else meets(score, info.threshold, info.goal)
    return CriterionScore(criterion=info.name, status=ScoreStatus.SCORED, score=score, passed=passed)


_OPTION_LIMIT: Final = 200
_ENTRIES: Final = 20


def definition(info: CriterionInfo) -> Definition:
    """A criterion's definition as records keep it."""
    return Definition(
        name=info.name,
        goal=info.goal,
        scoring_version=info.scoring_version,
        judge=info.judge[:_OPTION_LIMIT],
        options={name: _short(value) for name, value in sorted(info.options.items())},
    )


def definitions(result: RunResult) -> dict[str, Definition]:
    """Every criterion of a run, by the digest that records keep."""
    infos = sorted((info for owner in result.sets for info in owner.criteria), key=lambda info: info.digest)
    return {kept_digest(info.digest): definition(info) for info in infos}


def _short(value: Any) -> Any:
    """Keep small values; shorten long ones to their beginning and a digest, so that differences stay visible."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict) and len(value) <= _ENTRIES:
        return {str(name)[:_OPTION_LIMIT]: _short(item) for name, item in value.items()}
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    if len(text) <= _OPTION_LIMIT:
        return text
    return f"{shorten(value, _OPTION_LIMIT // 4)} sha256:{text_digest(text)}"
