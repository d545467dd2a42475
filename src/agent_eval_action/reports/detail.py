"""What of a result the comment may show, and what of it makes two comments say the same."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any, Final, TypeVar

from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.base import ReportInput
from agent_eval_action.results.decision import Decision
from agent_eval_action.results.findings import Finding, FindingCode, Reason, text_note
from agent_eval_action.results.run_result import AttemptSummary, CaseResult

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
    pairs = {(pair.agent, pair.eval_set, pair.case, pair.criterion) for pair in decision.pairs if pair.blocking}
    deciding = [one for one in (*decision.findings, *decision.weakenings) if one.severity != "advisory"]
    found = {(one.severity, *(name or "" for _, name in one.subject)) for one in deciding}
    what = json.dumps([sorted(pairs), sorted(found), len(decision.weakenings)])
    return f"{decision.outcome.value} {hashlib.sha256(what.encode()).hexdigest()[:16]}"


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
    return decision.model_copy(
        update={
            "reasons": tuple(map(_bare, decision.reasons)),
            "findings": tuple(map(_bare, decision.findings)),
            "weakenings": tuple(map(_weakening, decision.weakenings)),
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


def _weakening(finding: Finding) -> Finding:
    return finding.model_copy(update={"code": FindingCode.DETAIL_WITHHELD, "data": {}})
