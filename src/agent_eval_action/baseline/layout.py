"""The baseline as text: one line per criterion and per turn, sorted, so that a git diff shows what changed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from agent_eval_action.model.baseline import Baseline, CaseRecord, CriterionRecord, Definition, TrajectoryRecord
from agent_eval_action.model.brief import CallBrief

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
        head += _list("accepted", (_json(one.model_dump(mode="json", exclude_none=True)) for one in baseline.accepted))
    records = ",\n".join(record_text(record) for record in baseline.records)
    body = f'  "records": [\n{records}\n  ]' if records else '  "records": []'
    return "\n".join(["{", *head, body, "}", ""])


def record_text(record: CaseRecord) -> str:
    """The lines of one case."""
    names = {"agent": record.agent, "eval_set": record.eval_set, "case": record.case, "digest": record.digest}
    lines = [f"    {_json(names)[:-1]},"]
    if record.omitted:
        lines.append(f'     "omitted": {record.omitted},')
    criteria = [f"      {criterion_text(name, one)}" for name, one in sorted(record.criteria.items())]
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
        f"    {_json(digest)}: {_json(_sorted(one.model_dump(mode='json', exclude_defaults=True)))}"
        for digest, one in sorted(criteria.items(), key=lambda item: (item[1].name, item[0]))
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
