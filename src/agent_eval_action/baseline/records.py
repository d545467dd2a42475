"""From a run to what is kept of it, and from an older baseline and a run of some cases to the next baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from agent_eval_action.baseline.definition import definitions
from agent_eval_action.baseline.fit import fit
from agent_eval_action.model.baseline import (
    Accepted,
    Baseline,
    BaselineAgent,
    CaseRecord,
    CriterionRecord,
    TrajectoryRecord,
    kept_digest,
    kept_key,
    kept_name,
    rounded,
    trajectory_digest,
)
from agent_eval_action.model.case_matching import measured_identities, with_current_names
from agent_eval_action.model.collector import collector_paused
from agent_eval_action.model.measured import Measured, measured_pairs, modal_trajectory
from agent_eval_action.model.result import CaseKey, CaseResult, RunResult, RunStatus

__all__ = ["Baseline", "Update", "from_result", "update"]


@dataclass(frozen=True, slots=True)
class Update:
    """The next baseline and what became of each case, for a person to read.

    ``spent``: whether accepted changes became part of it. ``kept`` are pairs without a clean measurement
    whose older record stays; ``missing`` those that have none; ``left`` cases of the older baseline that
    this run did not look at.
    """

    baseline: Baseline
    added: tuple[CaseKey, ...] = ()
    changed: tuple[CaseKey, ...] = ()
    unchanged: tuple[CaseKey, ...] = ()
    pruned: tuple[CaseKey, ...] = ()
    left: tuple[CaseKey, ...] = ()
    spent: bool = False
    kept: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether any record changed: if not, there is nothing to commit."""
        return bool(self.added or self.changed or self.pruned or self.spent)


def from_result(result: RunResult) -> Baseline:
    """Everything of a run that was measured cleanly; pairs with an error are left out."""
    return update(None, result).baseline


@collector_paused()
def update(old: Baseline | None, result: RunResult, accepted: Iterable[Accepted] = ()) -> Update:
    """The baseline after ``result``. ``accepted``: the entries of accept.yaml; those of cases in this run are spent.

    A pair with an error in any attempt is not written: its older record stays. Cases the run did not look
    at stay as well, unless the run was complete and to make every case of their agent: then they are gone
    from the suite, and pruned.
    """
    stored = {record.key for record in old.records} if old else set()
    old = with_current_names(old, measured_identities(result), result.conditions.covers) if old else None
    before = {record.key: record for record in old.records} if old else {}
    after: dict[CaseKey, CaseRecord] = {}
    kept: list[str] = []
    missing: list[str] = []
    for key, group in groupby(measured_pairs(result), key=lambda pair: pair.key):
        name = kept_key(key)
        record, stay, lost = _record(name, list(group), before.get(name))
        kept += [f"{key.case} › {criterion}" for criterion in stay]
        missing += [f"{key.case} › {criterion}" for criterion in lost]
        if record is not None:
            after[name] = record
    spent = _spent(old, result, accepted)
    unseen = tuple(sorted(before.keys() - {kept_key(pair) for pair in _cases(result)}))
    complete = result.status is RunStatus.COMPLETE
    left = tuple(key for key in unseen if not (complete and result.conditions.covers(key.agent)))
    after |= {key: before[key] for key in left}
    both = after.keys() & before.keys()
    same = {key for key in both if after[key] == before[key] and key in stored}
    return Update(
        baseline=_baseline(old, result, after).model_copy(update={"accepted": spent}),
        added=tuple(sorted(after.keys() - before.keys())),
        changed=tuple(sorted(both - same)),
        unchanged=tuple(sorted(same - set(unseen))),
        pruned=tuple(sorted(before.keys() - after.keys())),
        left=left,
        spent=spent != (old.accepted if old else ()),
        kept=tuple(kept),
        missing=tuple(missing),
    )


def _spent(old: Baseline | None, result: RunResult, accepted: Iterable[Accepted]) -> tuple[Accepted, ...]:
    known = {one.id for one in old.accepted} if old else set()
    ran = [(kept_key(pair.key), kept_name(pair.info.name)) for pair in measured_pairs(result) if pair.scores]
    return tuple(one for one in accepted if one.id in known or any(one.covers(*pair) for pair in ran))


def _cases(result: RunResult) -> list[CaseKey]:
    return [CaseKey(one.agent, one.eval_set, case.case) for one in result.sets for case in one.cases]


def _record(
    key: CaseKey, pairs: Sequence[Measured], old: CaseRecord | None
) -> tuple[CaseRecord | None, list[str], list[str]]:
    """The record of one case; names of pairs whose older record stays, and of those that have none."""
    case = pairs[0].case
    errored = [pair.info.name for pair in pairs if pair.errors]
    criteria = {kept_name(pair.info.name): _criterion(pair) for pair in pairs if pair.scores and not pair.errors}
    if errored and not criteria:
        return (old, errored, []) if old else (None, [], errored)
    stay: list[str] = []
    if old is not None and old.digest == kept_digest(case.digest):
        stay = [name for name in errored if kept_name(name) in old.criteria]
        criteria |= {kept_name(name): old.criteria[kept_name(name)] for name in stay}
    if not criteria:
        return None, [], []
    record = CaseRecord(
        **key._asdict(), digest=kept_digest(case.digest), criteria=criteria, trajectory=_trajectory(case)
    )
    return fit(record), stay, [name for name in errored if name not in stay]


def _criterion(pair: Measured) -> CriterionRecord:
    return CriterionRecord(
        digest=kept_digest(pair.info.digest),
        threshold=pair.info.threshold,
        n=len(pair.scores),
        passed=pair.passed,
        scores=tuple(sorted(Counter(rounded(score) for score in pair.scores).items())),
    )


def _trajectory(case: CaseResult) -> TrajectoryRecord | None:
    modal = modal_trajectory(case.attempts)
    if modal is None:
        return None
    turns, seen, attempts = modal
    return TrajectoryRecord(digest=trajectory_digest(turns), seen=seen, attempts=attempts, turns=turns)


def _baseline(old: Baseline | None, result: RunResult, records: dict[CaseKey, CaseRecord]) -> Baseline:
    conditions = result.conditions
    agents = {agent.agent: agent for agent in old.agents} if old else {}
    for agent in conditions.agents:
        agents[agent.agent] = BaselineAgent(
            agent=agent.agent,
            adk_version=agent.adk_version,
            models=agent.models,
            packages_digest=kept_digest(agent.packages_digest),
        )
    present = {key.agent for key in records}
    known = {**(old.criteria if old else {}), **definitions(result)}
    named = {one.digest for record in records.values() for one in record.criteria.values()}
    return Baseline(
        tool_version=conditions.tool_version,
        created_at=result.started_at,
        commit=conditions.commit,
        repeats=max(conditions.repeats, 1),
        agents=tuple(agents[name] for name in sorted(agents) if kept_name(name) in present),
        criteria={digest: one for digest, one in sorted(known.items()) if digest in named},
        records=tuple(records[key] for key in sorted(records)),
    )
