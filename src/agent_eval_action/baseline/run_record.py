"""From a run of main to its record: clean scores, what was withheld, and what the criteria were."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from agent_eval_action.baseline.definition import definitions
from agent_eval_action.baseline.records import from_result
from agent_eval_action.git import Commit
from agent_eval_action.model.baseline import CaseRecord, kept_key, kept_name
from agent_eval_action.model.history import Accepted, PairName, Record, RecordCase, Withheld
from agent_eval_action.model.measured import measured_pairs
from agent_eval_action.model.result import CaseKey, RunResult, RunStatus


def record_of(
    result: RunResult,
    head: Commit | None = None,
    *,
    regressed: Collection[tuple[CaseKey, str]] = (),
    accepted: Iterable[Accepted] = (),
    simulators: Mapping[CaseKey, str] | None = None,
) -> Record:
    """The record of ``result``.

    ``regressed``: pairs the gate found worse; they alone are withheld, for leaving out whole runs would
    let only lucky ones into the history. ``simulators``: names of the simulated users, by case.
    """
    kept = from_result(result)
    bad = {(kept_key(key), kept_name(name)) for key, name in regressed}
    users = {kept_key(key): name for key, name in (simulators or {}).items()}
    cases = [_case(one, bad, users.get(one.key, "")) for one in kept.records]
    conditions = result.conditions
    return Record(
        tool_version=kept.tool_version,
        created_at=kept.created_at,
        commit=head.sha if head else kept.commit,
        parents=head.parents if head else (),
        committed_at=head.at if head else None,
        repeats=kept.repeats,
        whole=result.status is RunStatus.COMPLETE and not conditions.selection,
        agents=kept.agents,
        criteria=definitions(result),
        cases=tuple(cases),
        withheld=tuple(_withheld(result, kept.records, bad)),
        accepted=tuple(accepted),
    )


def _case(record: CaseRecord, bad: Collection[PairName], simulator: str) -> RecordCase:
    criteria = {name: one for name, one in record.criteria.items() if (record.key, name) not in bad}
    given = {name: getattr(record, name) for name in CaseRecord.model_fields}
    return RecordCase(**{**given, "criteria": criteria, "simulator": simulator})


def _withheld(result: RunResult, records: Iterable[CaseRecord], bad: Collection[PairName]) -> Iterable[Withheld]:
    """Regressed pairs, and those without a clean score: their absence must not look like a removal."""
    clean = {(one.key, name) for one in records for name in one.criteria}
    for pair in measured_pairs(result):
        name = (kept_key(pair.key), kept_name(pair.info.name))
        if name in bad:
            yield Withheld(**name[0]._asdict(), criterion=name[1], why="regressed")
        elif name not in clean and pair.errors:
            yield Withheld(**name[0]._asdict(), criterion=name[1], why="unmeasured")
