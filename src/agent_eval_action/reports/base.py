"""The port every report implements: a pure function from what was concluded to text; and what of it may be shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

from agent_eval_action.errors import ResultsError, writing
from agent_eval_action.folders import OutputFolder
from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.differences import Cause, find_causes
from agent_eval_action.reports.view import ReportView
from agent_eval_action.results.base import text_digest
from agent_eval_action.results.decision import Decision
from agent_eval_action.results.findings import FindingCode, Reason, text_note
from agent_eval_action.results.run_result import AttemptSummary, CaseResult, RunResult
from agent_eval_action.results.transcripts import Recordings

MARKER = "<!-- agent-eval-action:comment -->"
_WRITTEN: Final = 1 << 20  # characters that are encoded at once


@dataclass(frozen=True, slots=True)
class Link:
    """Where something lies: a path relative to the workspace, or an http(s) address."""

    label: str
    target: str


@dataclass(frozen=True)
class ReportInput:
    """Everything a report may show. ``result`` must hold a decision: nothing is rendered before it is made.

    ``reproduce`` is the command line that repeats the run. ``marker`` is the comment's first line, an HTML
    comment that finds it again; ``title`` names the job in its heading where there are several. ``recordings`` are
    the run's transcripts, where they are at hand. ``page``: where report.html is published, "" where it is not.
    """

    result: RunResult
    links: tuple[Link, ...] = ()
    reproduce: str = ""
    marker: str = MARKER
    title: str = ""
    recordings: Recordings | None = None
    page: str = ""

    @property
    def decision(self) -> Decision:
        """What was concluded. Raises ResultsError when nothing was."""
        if self.result.decision is None:
            raise ResultsError(
                "these results hold no decision, so there is nothing to report yet",
                hint="compare them first: agent-eval compare BASELINE RESULTS",
            )
        return self.result.decision

    @cached_property
    def view(self) -> ReportView:
        """What the reports show of the result: computed for the first and shared by the others."""
        return ReportView.build(self.result, self.decision)

    @cached_property
    def causes(self) -> tuple[Cause, ...]:
        """Why the cases that need attention are as they are, the worst first."""
        return find_causes(self.view.worst_first)


Report = Callable[[ReportInput, int | None], str]
"""``budget`` is in bytes of UTF-8; None is the format's own limit."""


def write_text(path: Path, chunks: Iterable[str], *, workspace: Path | None = None) -> None:
    """Write ``chunks`` as UTF-8 to ``path`` by a file beside it and a rename.

    Half-written files are removed and an older file stays as it was; a symlink at ``path`` is replaced, never
    followed, and inside the ``workspace`` none on the way to it. Raises OutputError with what to do.
    """
    hint = "free some disk space or choose another folder with --out; nothing half-written was left behind"
    with writing(path, hint):
        folder = OutputFolder.at(path.parent, workspace)
        parts = (chunk[at : at + _WRITTEN] for chunk in chunks for at in range(0, len(chunk), _WRITTEN))
        folder.replace(path.name, (part.encode("utf-8", "replace") for part in parts))


# --- what a comment may show, and what makes two comments say the same -----------------------------

_Reason = TypeVar("_Reason", bound=Reason)
_ELSEWHERE: Final = "said in results.json"
_NAMES: Final = frozenset(
    {
        *("agent", "eval_set", "case", "criterion", "criteria", "path", "file", "source", "base"),
        *("option", "rule", "field", "edit", "why", "doubt", "goal", "status", "store"),
    }
)
"""Values of findings that are names of the repository's own or codes; any other text may be somebody's words."""
_WORDS: Final = frozenset({"judgement", "calls", "limit_met"})
"""Values that a sentence can do without."""


def scores_only(report: ReportInput) -> ReportInput:
    """The report without a word of an agent, a judge or a user: names, numbers and verdicts are left.

    Findings quote them, errors and rubrics too; so nothing is kept that is not known to be a name or a number.
    """
    result = report.result
    sets = tuple(one.model_copy(update={"cases": tuple(_case(case) for case in one.cases)}) for one in result.sets)
    bare = result.model_copy(update={"sets": sets, "decision": _decision(report.decision)})
    return replace(report, result=bare)


def state_of(decision: Decision) -> str:
    """The outcome and what it rests on: equal where a comment of one run holds for another."""
    pairs = {(*pair.key, pair.criterion) for pair in decision.pairs if pair.blocking}
    deciding = [one for one in (*decision.findings, *decision.weakenings) if one.severity != "advisory"]
    found = {(one.severity, *(name or "" for _, name in one.subject)) for one in deciding}
    what = json.dumps([sorted(pairs), sorted(found), len(decision.weakenings)])
    return f"{decision.outcome.value} {text_digest(what)}"


def _case(case: CaseResult) -> CaseResult:
    return case.model_copy(
        update={
            "expected": (),
            "attempts": tuple(map(_attempt, case.attempts)),
            "control": tuple(map(_attempt, case.control)),
        }
    )


def _attempt(attempt: AttemptSummary) -> AttemptSummary:
    error = attempt.error
    if error is not None:
        error = error.model_copy(update={"message": _ELSEWHERE, "traceback": ""})
    bare = {"reason": "", "turns": (), "rubrics": (), "details": {}}
    scores = tuple(score.model_copy(update=bare) for score in attempt.scores)
    return attempt.model_copy(update={"error": error, "turns": (), "scores": scores})


def _decision(decision: Decision) -> Decision:
    texts = sum(note.code is FindingCode.TEXT for note in decision.notes)
    notes = [_bare(note) for note in decision.notes if note.code is not FindingCode.TEXT]
    if texts:
        notes.append(text_note(f"{fmt.plural(texts, 'note')} in results.json"))
    pairs = (pair.model_copy(update={"reason": _bare(pair.reason) if pair.reason else None}) for pair in decision.pairs)
    withheld = {"code": FindingCode.DETAIL_WITHHELD, "data": {}}
    return decision.model_copy(
        update={
            "reasons": tuple(map(_bare, decision.reasons)),
            "findings": tuple(map(_bare, decision.findings)),
            "weakenings": tuple(one.model_copy(update=withheld) for one in decision.weakenings),
            "notes": tuple(notes),
            "pairs": tuple(pairs),
            "baseline_trajectories": (),
        }
    )


def _bare(reason: _Reason) -> _Reason:
    data = {name: _value(name, value) for name, value in reason.data.items() if name not in _WORDS}
    return reason.model_copy(update={"data": data})


def _value(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _value(key, item) for key, item in value.items() if key not in _WORDS}
    if isinstance(value, list | tuple):
        return [_value(name, item) for item in value]
    return _ELSEWHERE if isinstance(value, str) and value and name not in _NAMES else value
