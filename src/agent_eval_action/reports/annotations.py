"""Annotations at the lines of eval cases, worst first: as values for a step's log and as JSON for the Checks API."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final

from agent_eval_action.diagnostics.suggestions import shortlist
from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.base import ReportInput
from agent_eval_action.reports.differences import Cause
from agent_eval_action.reports.formatting import clean
from agent_eval_action.reports.messages import KIND_LABELS, Messages
from agent_eval_action.reports.view import Group
from agent_eval_action.results.evalset import Annotation, AnnotationLevel

PER_LEVEL: Final = 10
"""Annotations of one level that GitHub shows for a step; the runner silently drops the rest."""

_MESSAGE: Final = 4_000  # bytes of UTF-8; GitHub's limit is 4,096 characters
_REASONS: Final = 4
_NAMED: Final = 20
_LEVELS: Final[dict[Group, AnnotationLevel]] = {
    Group.REGRESSED: "error",
    Group.NEEDS_RUNS: "warning",
    Group.NOT_MEASURED: "warning",
    Group.BELOW_THRESHOLD: "notice",
}
_CHECKS: Final[dict[AnnotationLevel, str]] = {"error": "failure", "warning": "warning", "notice": "notice"}
_SENTENCE: Final = 900


def as_annotations(report: ReportInput, budget: int | None = None) -> str:
    """Return every cause that needs attention as a JSON array for the Checks API (``output.annotations``).

    ``budget``: bytes; the array holds as many as fit, worst first.
    """
    parts: list[str] = []
    room = None if budget is None else budget - len("[]\n")
    for remark in remarks(report):
        line = remark.line or 1
        part = json.dumps(
            {
                "path": remark.path or ".github",
                "start_line": line,
                "end_line": line,
                "annotation_level": _CHECKS[remark.level],
                "title": remark.title,
                "message": remark.message,
            },
            ensure_ascii=False,
        )
        if room is not None:
            room -= len(part.encode()) + 3
            if room < 0:
                break
        parts.append(part)
    joined = ",\n ".join(parts)
    return f"[\n {joined}\n]\n" if parts else "[]\n"


def remarks(report: ReportInput) -> Iterator[Annotation]:
    """Yield what weakens the gate, then each cause at the line of its worst case, with the names of the others."""
    decision, messages = report.decision, report.view.messages
    for finding in decision.weakenings:
        level: AnnotationLevel = "error" if finding.severity == "blocks" else "warning"
        message = clean(messages.sentence(finding).plain, _SENTENCE)
        yield Annotation(level=level, title="This change loosens its own checks", message=_bounded(message))
    for cause in report.causes:
        yield _remark(cause, messages)


def shown_in_step(found: Sequence[Annotation], *, kept: int = 0) -> list[Annotation]:
    """Keep as many as GitHub shows; the last of each level tells how many more there are.

    ``kept``: number of errors to leave room for.
    """
    total = Counter(remark.level for remark in found)
    room = {level: PER_LEVEL - (kept if level == "error" else 0) for level in _CHECKS}
    shown: list[Annotation] = []
    taken: Counter[str] = Counter()
    for remark in found:
        most = room[remark.level]
        if taken[remark.level] >= most:
            continue
        taken[remark.level] += 1
        rest = total[remark.level] - most + 1
        if taken[remark.level] == most and rest > 1:
            what = {"error": "blocking", "warning": "not decided", "notice": "not blocking"}[remark.level]
            message = f"{fmt.count(rest)} more {what}: they are in the step's summary and in the reports"
            shown.append(Annotation(level=remark.level, title="agent-eval", message=message))
        else:
            shown.append(remark)
    return shown


def _remark(cause: Cause, messages: Messages) -> Annotation:
    view = cause.cases[0]
    where = f" ({clean(view.where, 200)})" if view.where else ""
    numbers = "{} on main, {} here".format(*view.sides) if view.telling and fmt.NONE not in view.sides else ""
    return Annotation(
        level="error" if view.blocks or view.group is Group.WORSE else _LEVELS[view.group],
        title=f"{clean(view.key.case, 120)}{where}: {clean(cause.text.plain, 200)}{f' ({numbers})' if numbers else ''}",
        message=_bounded("\n".join(_reasons(cause, messages))),
        path=_relative(view.owner.path) if view.owner is not None else "",
        line=view.line,
    )


def _reasons(cause: Cause, messages: Messages) -> Iterator[str]:
    """Yield the error, or the result of each criterion that explains the class; then the other cases of the cause."""
    view = cause.cases[0]
    if view.group is Group.NOT_MEASURED or not view.telling:
        yield clean(cause.differences[0].plain, _SENTENCE)
    for pair in view.reasons[:_REASONS] if view.group is not Group.NOT_MEASURED else ():
        numbers = f"{pair.criterion} {fmt.pair_text(pair)}, {KIND_LABELS[pair.kind]}"
        yield clean(messages.pair(pair).plain or numbers, _SENTENCE)
    if others := cause.cases[1:]:
        yield f"The same cause: {shortlist(others, _NAMED, lambda other: clean(other.key.case, 120))}"


def _bounded(text: str) -> str:
    data = text.encode()
    return text if len(data) <= _MESSAGE else f"{data[: _MESSAGE - 3].decode(errors='ignore')}…"


def _relative(path: str) -> str:
    """Return a path inside the workspace, or "": results may be untrusted, and the runner checks no paths."""
    pure = PurePosixPath(clean(path, 1_000))
    outside = pure.is_absolute() or ".." in pure.parts or "\\" in path or ":" in path.partition("/")[0]
    return "" if outside or not path else str(pure)
