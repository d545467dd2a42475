"""Records of runs: made from results and turned into results, their text in baseline.json and on the branch."""

from __future__ import annotations

import datetime as dt
import json
import re
import statistics
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, zip_longest
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import from_json

from agent_eval_action.diagnostics.reader import shorten
from agent_eval_action.git.repository import Commit
from agent_eval_action.results.base import CaseKey, text_digest
from agent_eval_action.results.case_matching import measured_identities, with_current_names
from agent_eval_action.results.decision import CallBrief, TurnBrief, Unit
from agent_eval_action.results.history import (
    RECORD_VERSION,
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
    short_call,
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
from agent_eval_action.results.trajectory import format_call
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
    old = old or Record(tool_version="", created_at="")
    stored = {case.key for case in old.cases}
    old = with_current_names(old, measured_identities(result), result.conditions.covers)
    before = {case.key: case for case in old.cases}
    after: dict[CaseKey, CaseRecord] = {}
    kept: list[str] = []
    missing: list[str] = []
    for key, group in groupby(measured_pairs(result), key=lambda pair: pair.key):
        case, stay, lost = _case(kept_key(key), list(group), before.get(kept_key(key)))
        kept += [f"{key.case} › {criterion}" for criterion in stay]
        missing += [f"{key.case} › {criterion}" for criterion in lost]
        if case is not None:
            after[case.key] = case
    known = {entry.id for entry in old.accepted}
    pairs = [(kept_key(pair.key), kept_name(pair.info.name)) for pair in measured_pairs(result) if pair.scores]
    spent = tuple(entry for entry in accepted if entry.id in known or any(entry.covers(*pair) for pair in pairs))
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
        spent=spent != old.accepted,
        kept=tuple(kept),
        missing=tuple(missing),
    )


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
    old: Record, result: RunResult, cases: Mapping[CaseKey, CaseRecord], accepted: tuple[Accepted, ...]
) -> Record:
    conditions = result.conditions
    agents = {agent.agent: agent for agent in old.agents}
    for agent in conditions.agents:
        agents[agent.agent] = BaselineAgent(
            agent=agent.agent,
            adk_version=agent.adk_version,
            models=agent.models,
            packages_digest=kept_digest(agent.packages_digest),
        )
    present = {key.agent for key in cases}
    known = {**old.criteria, **definitions(result)}
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


# --- records as text ------------------------------------------------------------------------------

CASE_BYTES: Final = 2048
"""A larger case keeps its tool calls shortened, then only those of its first turns. Scores are always complete."""
MAX_BYTES: Final = 32 * 1024 * 1024
"""The largest file of the branch store."""
SHA_SHOWN: Final = 12
# Written as escapes: lone surrogates are not valid UTF-8, and characters that are invisible, reorder a
# line or break one in some tools could make a diff look different from its content.
_UNSHOWN: Final = re.compile("[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
_NAME: Final = re.compile(r"(\d{8}T\d{6}Z)-[0-9a-f]{4,64}-[0-9a-z]{4,32}\.json")
_SHA: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def baseline_text(record: Record) -> str:
    """The text of baseline.json: sorted, one line per criterion and turn, so that a git diff shows what changed.

    Equal records give equal bytes.
    """
    names = ("schema_version", "tool_version", "created_at", "commit", "repeats")
    agents = (_json(agent.model_dump(mode="json")) for agent in record.agents)
    definitions = (
        f"{_json(digest)}: {_json(definition.model_dump(mode='json', exclude_defaults=True), sort_keys=True)}"
        for digest, definition in sorted(record.criteria.items(), key=lambda item: (item[1].name, item[0]))
    )
    accepted = (_json(entry.model_dump(mode="json", exclude_none=True)) for entry in record.accepted)
    parts = [f"  {_json(name)}: {_json(getattr(record, name))}" for name in names]
    if record.cost is not None:
        parts.append(f'  "cost": {_json(record.cost.model_dump(mode="json", exclude_none=True))}')
    parts.append(_block('"agents": [', (f"    {agent}" for agent in agents), "]"))
    if record.criteria:
        parts.append(_block('"criteria": {', (f"    {line}" for line in definitions), "}"))
    if record.accepted:
        parts.append(_block('"accepted": [', (f"    {entry}" for entry in accepted), "]"))
    parts.append(_block('"records": [', map(case_text, record.cases), "]"))
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _block(opening: str, items: Iterable[str], closing: str) -> str:
    lines = ",\n".join(items)
    return f"  {opening}\n{lines}\n  {closing}" if lines else f"  {opening}{closing}"


def case_text(case: CaseRecord) -> str:
    """The lines of one case in baseline.json."""
    names: dict[str, Any] = {"agent": case.agent, "eval_set": case.eval_set, "case": case.case, "digest": case.digest}
    if case.seconds is not None:
        names["seconds"] = case.seconds
    criteria = [
        f"\n      {_json(name)}: {_json(scores.model_dump(mode='json', exclude_none=True))}"
        for name, scores in sorted(case.criteria.items())
    ]
    parts = [f"    {_json(names)[:-1]}"]
    if case.omitted:
        parts.append(f'     "omitted": {case.omitted}')
    parts.append(f'     "criteria": {{{",".join(criteria)}}}')
    if case.trajectory is not None:
        counts = _json(case.trajectory.model_dump(mode="json", exclude={"turns"}, exclude_defaults=True))
        turns = ",".join(f"\n      {_turn_text(calls)}" for calls in case.trajectory.turns)
        parts.append(f'     "trajectory": {counts[:-1]}, "turns": [{turns}]}}')
    return ",\n".join(parts) + "}"


def _turn_text(calls: Iterable[CallBrief]) -> str:
    """One turn's calls on one line. Arguments are sorted, because models vary their order."""
    shown = (f'{{"name": {_json(call.name)}, "args": {_json(call.args, sort_keys=True)}}}' for call in calls)
    return f"[{', '.join(shown)}]"


def _json(value: Any, *, sort_keys: bool = False) -> str:
    plain = json.dumps(value, ensure_ascii=False, default=str, sort_keys=sort_keys)
    return _UNSHOWN.sub(lambda found: f"\\u{ord(found.group()):04x}", plain)


def shrink_to_limit(case: CaseRecord) -> CaseRecord:
    """The case, with its trajectory cut to fit into ``CASE_BYTES`` if necessary."""
    trajectory = case.trajectory
    if trajectory is None or size(case) <= CASE_BYTES:
        return case
    short = [tuple(map(short_call, calls)) for calls in trajectory.turns]

    def with_turns(count: int) -> CaseRecord:
        cut = trajectory.cut + len(short) - count
        update = {"turns": tuple(short[:count]), "cut": cut}
        return case.model_copy(update={"trajectory": trajectory.model_copy(update=update)})

    fitting = bisect_right(range(len(short) + 1), CASE_BYTES, key=lambda count: size(with_turns(count)))
    return with_turns(max(fitting - 1, 0))


def size(case: CaseRecord) -> int:
    """The case's size in baseline.json in bytes, including the comma and newline after it."""
    return len(case_text(case).encode()) + 2


def record_bytes(record: Record) -> bytes:
    """A file of the branch store: one case per line, so that git stores what two runs share only once."""
    dumped = partial(json.dumps, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    head = record.model_dump(mode="json", exclude={"cases"}, exclude_defaults=True)
    head = {"schema_version": record.schema_version, **head}
    body = ",\n".join(dumped(case.model_dump(mode="json", exclude_defaults=True)) for case in record.cases)
    # agents may output half a surrogate pair, which is neither UTF-8 nor JSON that pydantic reads
    return f'{dumped(head)[:-1]},"cases":[\n{body}\n]}}\n'.encode("utf-8", "replace")


def parse_record(data: bytes) -> Record | str:
    """The record in a file of the branch store, or the reason why there is none."""
    if len(data) > MAX_BYTES:
        return f"is larger than {MAX_BYTES >> 20} MB"
    try:
        value = from_json(data, allow_inf_nan=False)  # it stops at 200 levels; Python's own parser crashes
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
    return record if record.commit is None or _SHA.fullmatch(record.commit) else "is no record: commit"


def file_name(record: Record, unique: str) -> str:
    """The name of a file of the branch store; names sort by the start of their runs."""
    try:
        made = dt.datetime.fromisoformat(record.created_at)
    except ValueError:
        made = dt.datetime.now(dt.UTC)
    made = made if made.tzinfo else made.replace(tzinfo=dt.UTC)
    return f"{_stamp(made)}-{(record.commit or '0' * SHA_SHOWN)[:SHA_SHOWN]}-{unique}.json"


def commit_in(name: str) -> str:
    """The abbreviated commit in a file name."""
    return name.split("-")[1] if name.count("-") > 1 else ""


def is_file_name(name: str, now: dt.datetime) -> bool:
    """Whether a record may have this name. One dated in the future would never be pruned, and push out all others."""
    found = _NAME.fullmatch(name)
    return found is not None and found.group(1) <= _stamp(now + dt.timedelta(days=1))


def _stamp(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y%m%dT%H%M%SZ")


_CALLS_SHOWN = 4


def show(record: Record) -> Iterator[tuple[str, ...]]:
    """A row per pair: agent, set, case, criterion, passed, mean, and in a case's first row its usual tool calls."""
    for case in record.cases:
        calls = _usual_calls(case.trajectory) if case.trajectory else ""
        for name, kept in sorted(case.criteria.items()):
            passed = "–" if kept.passed is None else f"{kept.passed} of {kept.n}"
            scores = [score for score, _ in kept.scores]
            low, high = min(scores), max(scores)
            spread = f" ({low:,.2f}–{high:,.2f})" if low != high else ""
            yield (*case.key, name, passed, f"{kept.average:,.2f}{spread}", calls)
            calls = ""


def records_table(records: Iterable[Record]) -> Iterator[tuple[str, ...]]:
    """A row per run of main: commit, time, cases, attempts, withheld pairs, version, accepted changes."""
    for record in records:
        attempts = max((scores.n for case in record.cases for scores in case.criteria.values()), default=0)
        regressed = sum(pair.why == "regressed" for pair in record.withheld)
        unmeasured = len(record.withheld) - regressed
        withheld = [f"{regressed} regressed"] * bool(regressed) + [f"{unmeasured} unmeasured"] * bool(unmeasured)
        yield (
            (record.commit or "–")[:10],
            record.created_at,
            f"{len(record.cases):,}" + ("" if record.whole else " (some)"),
            f"{attempts} a case",
            ", ".join(withheld) or "–",
            record.tool_version,
            ", ".join(entry.case for entry in record.accepted) or "–",
        )


def _usual_calls(trajectory: TrajectoryRecord) -> str:
    """For example ``roll_die(sides=17) | check_prime(nums=[7])``: calls by turn, and their share of the attempts."""
    left = _CALLS_SHOWN
    turns: list[str] = []
    for calls in trajectory.turns:
        turns.append(", ".join(format_call(call) for call in calls[:left]) or "–")
        left -= len(calls)
        if left <= 0:
            break
    more = len(turns) < len(trajectory.turns) + trajectory.cut or left < 0
    share = "" if trajectory.seen == trajectory.attempts else f" ({trajectory.seen} of {trajectory.attempts} attempts)"
    return " | ".join(turns) + (" …" if more else "") + share
