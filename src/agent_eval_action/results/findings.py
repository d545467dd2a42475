"""Findings of the gate, as codes with values. ``reports.messages`` writes the sentence for each."""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterable
from typing import Any, Final, Literal

from pydantic import Field

from agent_eval_action.results.base import Frozen

EXCERPT: Final = 350
"""The most characters of a quoted text: of an error, or of a judge's or criterion's reason."""
NAMED: Final = 5
"""The most cases that a finding names; ``cases`` is the number of all."""
_BREAKS: Final = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")

Severity = Literal["blocks", "inconclusive", "advisory", "note"]
"""The effect of a finding on the verdict; a *note* has none."""


class FindingCode(enum.StrEnum):
    """The kinds of findings. ``docs/findings.md`` lists the values of each."""

    # one case on one criterion, compared with its history
    WORSE = "worse"
    WORSE_WITH_CRITERION = "worse_with_criterion"
    WORSE_WITH_MAIN = "worse_with_main"
    WORSE_UNDECIDED = "worse_undecided"
    WORSE_UNCONTROLLED = "worse_uncontrolled"
    BROKEN_ON_MAIN = "broken_on_main"
    FLAKY = "flaky"
    # one case on one criterion, otherwise
    BELOW_THRESHOLD = "below_threshold"
    SCORE_CHANGED = "score_changed"
    NOT_COMPARED = "not_compared"
    PAIR_REMOVED = "pair_removed"
    NO_SCORE = "no_score"
    NOT_APPLICABLE = "not_applicable"
    LEFT_OUT = "left_out"
    # one criterion over its cases
    NO_LONGER_APPLICABLE = "no_longer_applicable"
    MEAN_MISSES_THRESHOLD = "mean_misses_threshold"
    MEAN_BEYOND_LIMIT = "mean_beyond_limit"
    MEAN_WORSE = "mean_worse"
    SUSPECTS_WORSE = "suspects_worse"
    MAIN_COLLAPSED = "main_collapsed"
    # what could not be measured
    NO_ANSWER = "no_answer"
    BASE_NO_ANSWER = "base_no_answer"
    MODEL_SILENT = "model_silent"
    CREDENTIALS_MISSING = "credentials_missing"
    NOTHING_MEASURED = "nothing_measured"
    RUN_ENDED_EARLY = "run_ended_early"
    SHARD_NOT_MEASURED = "shard_not_measured"
    CODE_RAISES = "code_raises"
    CODE_DOES_NOT_START = "code_does_not_start"
    # the verdict as a whole
    CASES_WORSE = "cases_worse"
    CASES_BELOW_THRESHOLD = "cases_below_threshold"
    CASES_STILL_BELOW_THRESHOLD = "cases_still_below_threshold"
    CASES_UNDECIDED = "cases_undecided"
    COLLECTING = "collecting"
    THRESHOLDS_MET = "thresholds_met"
    NOTHING_WORSE = "nothing_worse"
    GATE_WEAKENED = "gate_weakened"
    # what to know beside the verdict
    REPORT_ONLY = "report_only"
    NO_BASELINE = "no_baseline"
    NO_CONTROL = "no_control"
    CRITERIA_OFF = "criteria_off"
    CRITERIA_WITHOUT_LIMIT = "criteria_without_limit"
    CRITERION_NOT_APPLICABLE = "criterion_not_applicable"
    CRITERION_NOT_CONFIGURED = "criterion_not_configured"
    CASES_FLAKY = "cases_flaky"
    CASES_GONE = "cases_gone"
    CASES_NOT_COMPARED = "cases_not_compared"
    CASES_NOT_RUN = "cases_not_run"
    SHARD_SET_ASIDE = "shard_set_aside"
    QUARANTINED = "quarantined"
    QUARANTINE_OVERDUE = "quarantine_overdue"
    CHANGE_ACCEPTED = "change_accepted"
    HISTORY_RESTARTED = "history_restarted"
    THRESHOLD_MOVED = "threshold_moved"
    MODEL_CHANGED = "model_changed"
    ADK_CHANGED = "adk_changed"
    PACKAGES_CHANGED = "packages_changed"
    # what a change does to the gate itself
    SET_REMOVED = "set_removed"
    CASE_REMOVED = "case_removed"
    CASES_REMOVED = "cases_removed"
    CASE_LOOSENED = "case_loosened"
    CASE_EDITED = "case_edited"
    CASES_EDITED = "cases_edited"
    CRITERION_REMOVED = "criterion_removed"
    CRITERION_LOOSENED = "criterion_loosened"
    RULE_LOOSENED = "rule_loosened"
    RULE_CHANGED = "rule_changed"
    BASELINE_REMOVED = "baseline_removed"
    BASELINE_SCORES_REMOVED = "baseline_scores_removed"
    BASELINE_SCORES_LOWERED = "baseline_scores_lowered"
    BASELINE_SCORES_THINNED = "baseline_scores_thinned"
    QUARANTINE_ADDED = "quarantine_added"
    ACCEPTANCE_ADDED = "acceptance_added"
    AGENT_CHANGED = "agent_changed"
    METRIC_CHANGED = "metric_changed"
    # a detail that only the results contain, not this report
    DETAIL_WITHHELD = "detail_withheld"
    # a sentence by another package, or from results of schema version 1
    TEXT = "text"


class Subject(Frozen):
    """What a finding is about: a case, a criterion or both, an agent, or the run (if all are None)."""

    agent: str | None = None
    eval_set: str | None = None
    case: str | None = None
    criterion: str | None = None


RUN: Final = Subject.model_construct()  # not validated, since that would build its schema at import
"""The whole run."""


class Reason(Frozen):
    """A code and its values: numbers, names, and quoted texts of at most ``EXCERPT`` characters."""

    code: FindingCode
    data: dict[str, Any] = Field(default_factory=dict)


class Finding(Reason):
    """A reason with its subject and its effect on the verdict."""

    severity: Severity
    subject: Subject = RUN

    @property
    def topic(self) -> tuple[FindingCode, Subject, str]:
        """Code and subject, without the numbers. Two findings with the same topic need not both be shown."""
        return self.code, self.subject, self.data.get("text", "") if self.code is FindingCode.TEXT else ""


def finding(severity: Severity, code: FindingCode, subject: Subject = RUN, **data: Any) -> Finding:
    """Return a finding. ``data``: its values by name."""
    return Finding(code=code, severity=severity, subject=subject, data=data)


def note(code: FindingCode, subject: Subject = RUN, **data: Any) -> Finding:
    """Return a finding without an effect on the verdict."""
    return finding("note", code, subject, **data)


def text_note(text: str) -> Finding:
    """Return a note with a ready sentence."""
    return note(FindingCode.TEXT, text=text)


def excerpt(text: str, limit: int = EXCERPT) -> str:
    """Return ``text`` on one line of at most ``limit`` characters."""
    line = _BREAKS.sub(" ", text[: limit * 4]).strip()
    return line if len(line) <= limit and len(text) <= limit * 4 else f"{line[: limit - 1]}…"


def named_cases(keys: Collection[tuple[str, str, str]], most: int = NAMED) -> dict[str, Any]:
    """Return a finding's values ``cases``, the number of keys, and ``named``, the first ``most`` of them."""
    return {"cases": len(keys), "named": [case_reference(*key) for key in list(keys)[:most]]}


def case_reference(agent: str, eval_set: str, case: str, **more: Any) -> dict[str, Any]:
    """Return a case as findings name it, with ``more`` values."""
    return {"agent": agent, "eval_set": eval_set, "case": case, **more}


def with_severity(findings: Iterable[Finding], severity: Severity) -> tuple[Finding, ...]:
    """Return the findings with another effect on the verdict."""
    return tuple(found.model_copy(update={"severity": severity}) for found in findings)
