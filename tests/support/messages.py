"""What a decision says, in the words of reports, and findings made of a plain sentence."""

from __future__ import annotations

from typing import Any

from agent_eval_action.reports.messages import Messages
from agent_eval_action.results.decision import Decision, PairChange
from agent_eval_action.results.findings import Finding, FindingCode, Reason, Severity, Subject

Given = dict[str, Any]
"""A part of results.json as it was read."""


def states(finding: Finding, code: FindingCode, **values: Any) -> bool:
    """Whether a finding has this code and, of its values, these."""
    return finding.code is code and values.items() <= finding.data.items()


def headline(decision: Decision | Given) -> str:
    decision = Decision.model_validate(decision)
    return str(Messages.for_decision(decision).headline(decision))


def sentence(finding: Finding | Given) -> str:
    return str(Messages().sentence(Finding.model_validate(finding)))


def sentences(decision: Decision) -> list[str]:
    """Of every finding, in order."""
    messages = Messages.for_decision(decision)
    return [str(messages.sentence(finding)) for finding in decision.findings]


def notes(decision: Decision | Given) -> tuple[str, ...]:
    decision = Decision.model_validate(decision)
    messages = Messages.for_decision(decision)
    return tuple(str(messages.sentence(note)) for note in decision.notes)


def pair_sentence(pair: PairChange) -> str:
    return str(Messages().pair(pair))


def text_reason(text: str) -> Reason:
    return Reason(code=FindingCode.TEXT, data={"text": text})


def text_finding(severity: Severity, text: str, **subject: Any) -> Finding:
    return Finding(code=FindingCode.TEXT, severity=severity, subject=Subject(**subject), data={"text": text})
