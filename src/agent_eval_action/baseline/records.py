"""The baseline as text: one line per criterion and per turn, sorted, so that a git diff shows what changed."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import from_json

from agent_eval_action.baseline.definitions import definitions
from agent_eval_action.git.repository import Commit
from agent_eval_action.results.case_matching import measured_identities, with_current_names
from agent_eval_action.results.decision import CallBrief, TurnBrief, Unit
from agent_eval_action.results.history import (
    RECORD_VERSION,
    Accepted,
    Baseline,
    BaselineAgent,
    Calls,
    CaseRecord,
    CriterionRecord,
    Definition,
    OmittedPair,
    PairName,
    Record,
    TrajectoryRecord,
    kept_digest,
    kept_key,
    kept_name,
    rounded,
    short_call,
    trajectory_digest,
)
from agent_eval_action.results.pair_scores import PairScores, measured_pairs, meets, modal_trajectory
from agent_eval_action.results.run_result import (
    AttemptSummary,
    CaseKey,
    CaseResult,
    Conditions,
    CriterionInfo,
    CriterionScore,
    Goal,
    RunResult,
    RunStatus,
    ScoreStatus,
    SetResult,
    Totals,
    collector_paused,
)

# Written as escapes: lone surrogates are no UTF-8, and characters that are invisible, reorder a line
# or break one for some tools would let a diff look different from what it says.
_UNSHOWN = re.compile("[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


def text(baseline: Baseline) -> str:
    """The whole file. The same baseline is always the same bytes."""
    head = [
        f'  "schema_version": {baseline.schema_version},',
        f'  "tool_version": {_json(baseline.tool_version)},',
        f'  "created_at": {_json(baseline.created_at)},',
        f'  "commit": {_json(baseline.commit)},',
        f'  "repeats": {baseline.repeats},',
        *_list("agents", (_json(agent.model_dump(mode="json")) for agent in baseline.agents)),
        *_criteria(baseline.criteria),
    ]
    if baseline.accepted:
        head += _list(
            "accepted", (_json(entry.model_dump(mode="json", exclude_none=True)) for entry in baseline.accepted)
        )
    records = ",\n".join(record_text(record) for record in baseline.records)
    body = f'  "records": [\n{records}\n  ]' if records else '  "records": []'
    return "\n".join(["{", *head, body, "}", ""])


def record_text(record: CaseRecord) -> str:
    """The lines of one case."""
    names = {"agent": record.agent, "eval_set": record.eval_set, "case": record.case, "digest": record.digest}
    lines = [f"    {_json(names)[:-1]},"]
    if record.omitted:
        lines.append(f'     "omitted": {record.omitted},')
    criteria = [f"      {criterion_text(name, scores)}" for name, scores in sorted(record.criteria.items())]
    lines.append('     "criteria": {' + ("\n" + ",\n".join(criteria) if criteria else "") + "}")
    if record.trajectory is not None:
        lines[-1] += ","
        lines.append(_trajectory_text(record.trajectory))
    return "\n".join(lines) + "}"


def criterion_text(name: str, record: CriterionRecord) -> str:
    """One criterion on one line."""
    return f"{_json(name)}: {_json(record.model_dump(mode='json', exclude_none=True))}"


def turn_text(calls: Iterable[CallBrief]) -> str:
    """One turn's calls on one line, arguments sorted: their order varies from answer to answer."""
    return _json([{"name": call.name, "args": _sorted(call.args)} for call in calls])


def _trajectory_text(trajectory: TrajectoryRecord) -> str:
    counts: dict[str, Any] = {"digest": trajectory.digest, "seen": trajectory.seen, "attempts": trajectory.attempts}
    if trajectory.cut:
        counts["cut"] = trajectory.cut
    turns = ",\n".join(f"      {turn_text(calls)}" for calls in trajectory.turns)
    return f'     "trajectory": {_json(counts)[:-1]}, "turns": [' + (f"\n{turns}" if turns else "") + "]}"


def _criteria(criteria: Mapping[str, Definition]) -> list[str]:
    if not criteria:
        return []
    lines = (
        f"    {_json(digest)}: {_json(_sorted(definition.model_dump(mode='json', exclude_defaults=True)))}"
        for digest, definition in sorted(criteria.items(), key=lambda item: (item[1].name, item[0]))
    )
    return ['  "criteria": {\n' + ",\n".join(lines) + "\n  },"]


def _list(name: str, items: Iterable[str]) -> list[str]:
    lines = ",\n".join(f"    {item}" for item in items)
    return [f'  "{name}": [\n{lines}\n  ],'] if lines else [f'  "{name}": [],']


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(item) for key, item in sorted(value.items())}
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    return value


def _json(value: Any) -> str:
    plain = json.dumps(value, ensure_ascii=False, default=str)
    return _UNSHOWN.sub(lambda found: f"\\u{ord(found.group()):04x}", plain)


CASE_BYTES: Final = 2048
"""Above this size a case keeps its tool calls shortened, then only those of its first turns. Scores are kept whole."""


def shrink_to_limit(record: CaseRecord) -> CaseRecord:
    """The record itself, or with as much of its trajectory as fits into ``CASE_BYTES``."""
    if record.trajectory is None or size(record) <= CASE_BYTES:
        return record
    record = _with_turns(record, [tuple(map(short_call, calls)) for calls in record.trajectory.turns])
    return record if size(record) <= CASE_BYTES else _leave_out_turns(record)


def size(record: CaseRecord) -> int:
    """Bytes of the record in the file, with the comma and newline behind it."""
    return len(record_text(record).encode()) + 2


def _leave_out_turns(record: CaseRecord) -> CaseRecord:
    turns = record.trajectory.turns if record.trajectory else ()
    left = CASE_BYTES - size(_with_turns(record, ()))
    kept = 0
    for calls in turns:
        left -= len(turn_text(calls).encode()) + len("\n      ,")
        if left < 0:
            break
        kept += 1
    return _with_turns(record, turns[:kept])


def _with_turns(record: CaseRecord, turns: Sequence[Calls]) -> CaseRecord:
    """The record with these as the first turns of its trajectory; the others are counted as cut."""
    if record.trajectory is None:
        return record
    cut = record.trajectory.cut + len(record.trajectory.turns) - len(turns)
    trajectory = record.trajectory.model_copy(update={"turns": tuple(turns), "cut": cut})
    return record.model_copy(update={"trajectory": trajectory})


MAX_BYTES: Final = 32 * 1024 * 1024
SHA_SHOWN: Final = 12
_NAME: Final = re.compile(r"(\d{8}T\d{6}Z)-[0-9a-f]{4,64}-[0-9a-z]{4,32}\.json")
_SHA: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def text_record_text(record: Record) -> bytes:
    """One case a line, so that git stores what two runs have in common once."""
    head = record.model_dump(mode="json", exclude={"cases"}, exclude_defaults=True)
    head = {"schema_version": record.schema_version, **head}
    lines = [_json_record_text(case.model_dump(mode="json", exclude_defaults=True)) for case in record.cases]
    body = ",\n".join(lines)
    # half a surrogate pair, which an agent may well say, is no UTF-8 and no JSON that pydantic reads
    return f'{_json_record_text(head)[:-1]},"cases":[\n{body}\n]}}\n'.encode("utf-8", "replace")


def parse(data: bytes) -> Record | str:
    """The record, or in words why these bytes are none."""
    if len(data) > MAX_BYTES:
        return f"is larger than {MAX_BYTES >> 20} MB"
    try:
        value = from_json(data, allow_inf_nan=False)  # it stops at 200 levels, Python's own at a crash
    except ValueError as error:
        return f"is no JSON: {str(error)[:80]}"
    version = value.get("schema_version") if isinstance(value, dict) else None
    if type(version) is not int or version != RECORD_VERSION:
        return f"has schema version {str(version)[:20]}; this agent-eval reads {RECORD_VERSION}"
    try:
        record = Record.model_validate(value)
    except ValidationError as error:
        place = ".".join(str(step) for step in error.errors(include_url=False)[0]["loc"][:4])
        return f"is no record: {place[:80]}"
    if record.commit is not None and not _SHA.fullmatch(record.commit):
        return "is no record: commit"
    return record


def file_name(record: Record, unique: str) -> str:
    """Sorted by name the files are sorted by when their runs began."""
    return f"{_moment(record.created_at)}-{(record.commit or '0' * SHA_SHOWN)[:SHA_SHOWN]}-{unique}.json"


def commit_in(name: str) -> str:
    """The beginning of the commit a file is named after."""
    return name.split("-")[1] if name.count("-") > 1 else ""


def is_file_name(name: str, now: dt.datetime) -> bool:
    """Whether a file is named as a record is. One from the future would never be pruned, and push out all others."""
    found = _NAME.fullmatch(name)
    return bool(found) and found.group(1) <= _stamp(now + dt.timedelta(days=1)) if found else False


def _moment(created_at: str) -> str:
    try:
        made = dt.datetime.fromisoformat(created_at)
    except ValueError:
        made = dt.datetime.now(dt.UTC)
    return _stamp(made if made.tzinfo else made.replace(tzinfo=dt.UTC))


def _stamp(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y%m%dT%H%M%SZ")


def _json_record_text(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


Kind = tuple[Goal, Unit]
"""Which way a criterion is better, and what its numbers count."""


def result_of(baseline: Baseline, known: Mapping[str, Kind]) -> RunResult:
    """The run. ``known``: goal and unit of the criteria there are; a baseline does not keep them."""
    records = sorted(baseline.records, key=lambda record: record.key)
    sets = tuple(
        _set(agent, name, list(cases), known)
        for (agent, name), cases in groupby(records, key=lambda record: (record.agent, record.eval_set))
    )
    cases = [case for owner in sets for case in owner.cases]
    return RunResult(
        started_at=baseline.created_at,
        conditions=Conditions(
            tool_version=baseline.tool_version,
            commit=baseline.commit,
            repeats=baseline.repeats,
            adaptive=baseline.repeats == 1,
        ),
        sets=sets,
        totals=Totals(cases=len(cases), attempts=sum(len(case.attempts) for case in cases)),
    )


def _set(agent: str, name: str, records: list[CaseRecord], known: Mapping[str, Kind]) -> SetResult:
    infos: dict[str, CriterionInfo] = {}
    for record in records:
        for criterion, scores in record.criteria.items():
            goal, unit = known.get(criterion, ("maximize", "score"))
            info = CriterionInfo(
                name=criterion,
                goal=goal,
                unit=unit,
                threshold=scores.threshold,
                digest=scores.digest,
                source="the baseline",
            )
            infos.setdefault(criterion, info)
    cases = tuple(_case(record, infos) for record in records)
    return SetResult(agent=agent, eval_set=name, path=name, criteria=tuple(infos.values()), cases=cases)


def _case(record: CaseRecord, infos: Mapping[str, CriterionInfo]) -> CaseResult:
    scores = {name: list(_scores(counted)) for name, counted in record.criteria.items()}
    turns = tuple(TurnBrief(calls=calls) for calls in record.trajectory.turns) if record.trajectory else ()
    count = max(map(len, scores.values()), default=0)
    return CaseResult(
        case=record.case,
        digest=record.digest,
        attempts=tuple(
            AttemptSummary(
                repeat=number,
                turns=turns,
                scores=tuple(_score(infos[name], found, number) for name, found in scores.items()),
            )
            for number in range(count)
        ),
    )


def _scores(record: CriterionRecord) -> Iterator[float]:
    for score, count in record.scores:
        yield from [score] * count


def _score(info: CriterionInfo, found: list[float], number: int) -> CriterionScore:
    if number >= len(found):
        return CriterionScore(
            criterion=info.name, status=ScoreStatus.NOT_APPLICABLE, reason="the baseline has fewer scores of it"
        )
    passed = None if info.threshold is None else meets(found[number], info.threshold, info.goal)
    return CriterionScore(criterion=info.name, status=ScoreStatus.SCORED, score=found[number], passed=passed)


def record_of(
    result: RunResult,
    head: Commit | None = None,
    *,
    regressed: Collection[tuple[CaseKey, str]] = (),
    accepted: Iterable[Accepted] = (),
) -> Record:
    """The record of ``result``.

    ``regressed``: pairs the gate found worse; they alone are withheld, for leaving out whole runs would
    let only lucky ones into the history.
    """
    kept = from_result(result)
    bad = {(kept_key(key), kept_name(name)) for key, name in regressed}
    cases = [_without_pairs(case, bad) for case in kept.records]
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
        withheld=tuple(_omitted_pairs(result, kept.records, bad)),
        accepted=tuple(accepted),
    )


def _without_pairs(case: CaseRecord, pairs: Collection[PairName]) -> CaseRecord:
    criteria = {name: record for name, record in case.criteria.items() if (case.key, name) not in pairs}
    return case if len(criteria) == len(case.criteria) else case.model_copy(update={"criteria": criteria})


def _omitted_pairs(
    result: RunResult, records: Iterable[CaseRecord], bad: Collection[PairName]
) -> Iterable[OmittedPair]:
    """Regressed pairs, and those without a clean score: their absence must not look like a removal."""
    clean = {(case.key, name) for case in records for name in case.criteria}
    for pair in measured_pairs(result):
        name = (kept_key(pair.key), kept_name(pair.info.name))
        if name in bad:
            yield OmittedPair(**name[0]._asdict(), criterion=name[1], why="regressed")
        elif name not in clean and pair.errors:
            yield OmittedPair(**name[0]._asdict(), criterion=name[1], why="unmeasured")


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
    known = {entry.id for entry in old.accepted} if old else set()
    ran = [(kept_key(pair.key), kept_name(pair.info.name)) for pair in measured_pairs(result) if pair.scores]
    return tuple(entry for entry in accepted if entry.id in known or any(entry.covers(*pair) for pair in ran))


def _cases(result: RunResult) -> list[CaseKey]:
    return [CaseKey(owner.agent, owner.eval_set, case.case) for owner in result.sets for case in owner.cases]


def _record(
    key: CaseKey, pairs: Sequence[PairScores], old: CaseRecord | None
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
    return shrink_to_limit(record), stay, [name for name in errored if name not in stay]


def _criterion(pair: PairScores) -> CriterionRecord:
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
    named = {scores.digest for record in records.values() for scores in record.criteria.values()}
    return Baseline(
        tool_version=conditions.tool_version,
        created_at=result.started_at,
        commit=conditions.commit,
        repeats=max(conditions.repeats, 1),
        agents=tuple(agents[name] for name in sorted(agents) if kept_name(name) in present),
        criteria={digest: definition for digest, definition in sorted(known.items()) if digest in named},
        records=tuple(records[key] for key in sorted(records)),
    )
