"""Records as text: baseline.json, the files of the branch store and their names, and table rows."""

from __future__ import annotations

import datetime as dt
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import from_json

from agent_eval_action.results.decision import CallBrief
from agent_eval_action.results.history import (
    RECORD_VERSION,
    CaseRecord,
    Record,
    TrajectoryRecord,
    short_call,
)
from agent_eval_action.results.trajectory import format_call

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
