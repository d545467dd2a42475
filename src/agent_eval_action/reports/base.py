"""The interface of every report, a pure function from a decided result to text; and redaction for comments."""

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
_WRITTEN: Final = 1 << 20  # characters encoded at a time


@dataclass(frozen=True, slots=True)
class Link:
    """A link to a path relative to the workspace, or to an http(s) address."""

    label: str
    target: str


@dataclass(frozen=True)
class ReportInput:
    """Everything a report may show. ``result`` must have a decision.

    ``reproduce``: the command line that repeats the run. ``marker``: the comment's first line, an HTML comment that
    identifies it. ``title`` names the job in the heading if there are several. ``recordings``: the run's transcripts,
    if available. ``page``: the URL of the published report.html, or "".
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
        """The result's decision. Raises ResultsError if there is none."""
        if self.result.decision is None:
            raise ResultsError(
                "these results hold no decision, so there is nothing to report yet",
                hint="compare them first: agent-eval compare BASELINE RESULTS",
            )
        return self.result.decision

    @cached_property
    def view(self) -> ReportView:
        """What the reports show of the result, computed once for all of them."""
        return ReportView.build(self.result, self.decision)

    @cached_property
    def causes(self) -> tuple[Cause, ...]:
        """The causes of the cases that need attention, worst first."""
        return find_causes(self.view.worst_first)


Report = Callable[[ReportInput, int | None], str]
"""``budget`` is in bytes of UTF-8; None is the format's own limit."""


def write_text(path: Path, chunks: Iterable[str], *, workspace: Path | None = None) -> None:
    """Write ``chunks`` as UTF-8 to a temporary file and rename it to ``path``.

    On failure the temporary file is removed and an older file stays. A symlink at ``path`` is replaced, never
    followed; nor are symlinks in its folders inside the ``workspace``. Raises OutputError with a hint.
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
        *("option", "rule", "field", "edit", "why", "doubt", "goal", "status", "state", "until", "store"),
    }
)
"""Values of findings that hold codes or names from the repository; other texts may quote agents, judges or users."""
_WORDS: Final = frozenset({"judgement", "calls", "limit_met"})
"""Values without which a finding's sentence is still complete."""


def scores_only(report: ReportInput) -> ReportInput:
    """Remove all words of agents, judges and users; names, numbers and verdicts stay.

    Findings, errors and rubrics quote them too, so only values known to be names or numbers are kept.
    """
    bare = {"reason": "", "turns": (), "rubrics": (), "details": {}}

    def attempt(made: AttemptSummary) -> AttemptSummary:
        error = made.error and made.error.model_copy(update={"message": _ELSEWHERE, "traceback": ""})
        scores = tuple(score.model_copy(update=bare) for score in made.scores)
        return made.model_copy(update={"error": error, "turns": (), "scores": scores})

    def case(run: CaseResult) -> CaseResult:
        made, control = tuple(map(attempt, run.attempts)), tuple(map(attempt, run.control))
        return run.model_copy(update={"expected": (), "attempts": made, "control": control})

    sets = [owner.model_copy(update={"cases": tuple(map(case, owner.cases))}) for owner in report.result.sets]
    return replace(
        report, result=report.result.model_copy(update={"sets": tuple(sets), "decision": _bare(report.decision)})
    )


def state_of(decision: Decision) -> str:
    """Fingerprint the outcome and its reasons: if two runs have the same one, their comments would say the same."""
    pairs = {(*pair.key, pair.criterion) for pair in decision.pairs if pair.blocking}
    deciding = [finding for finding in (*decision.findings, *decision.weakenings) if finding.severity != "advisory"]
    found = {(finding.severity, *(name or "" for _, name in finding.subject)) for finding in deciding}
    what = json.dumps([sorted(pairs), sorted(found), len(decision.weakenings)])
    return f"{decision.outcome.value} {text_digest(what)}"


def _bare(decision: Decision) -> Decision:
    texts = sum(note.code is FindingCode.TEXT for note in decision.notes)
    notes = [_redact(note) for note in decision.notes if note.code is not FindingCode.TEXT]
    if texts:
        notes.append(text_note(f"{fmt.plural(texts, 'note')} in results.json"))
    pairs = (pair.model_copy(update={"reason": pair.reason and _redact(pair.reason)}) for pair in decision.pairs)
    withheld = {"code": FindingCode.DETAIL_WITHHELD, "data": {}}
    return decision.model_copy(
        update={
            "reasons": tuple(map(_redact, decision.reasons)),
            "findings": tuple(map(_redact, decision.findings)),
            "weakenings": tuple(finding.model_copy(update=withheld) for finding in decision.weakenings),
            "notes": tuple(notes),
            "pairs": tuple(pairs),
            "baseline_trajectories": (),
        }
    )


def _redact(reason: _Reason) -> _Reason:
    data = {name: _value(name, value) for name, value in reason.data.items() if name not in _WORDS}
    return reason.model_copy(update={"data": data})


def _value(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _value(key, item) for key, item in value.items() if key not in _WORDS}
    if isinstance(value, list | tuple):
        return [_value(name, item) for item in value]
    return _ELSEWHERE if isinstance(value, str) and value and name not in _NAMES else value
