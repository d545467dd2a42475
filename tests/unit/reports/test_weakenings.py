"""What weakens the gate stands first in the comment, fails in JUnit when it blocks, and is escaped in both."""

from __future__ import annotations

import junitparser

from agent_eval_action.gate_changes.diff import apply_weakenings
from agent_eval_action.reports import MARKER, REPORTS, ReportInput
from agent_eval_action.results.decision import Decision, Verdict
from agent_eval_action.results.findings import Finding
from support.messages import text_finding
from support.results import run, simple

FOUND = (
    text_finding("advisory", "case `a` was removed from `s.json`", agent="bot", eval_set="set", case="a"),
    text_finding("advisory", "max_drop 0.02 → 0.2 <script>&\x1b[31m"),
)


def render(name: str, on_weakened: str, found: tuple[Finding, ...] = FOUND) -> str:
    decision = apply_weakenings(
        Decision(outcome=Verdict.PASS, reasons=(text_finding("note", "fine"),)), found, on_weakened
    )
    result = run(simple("b", 1.0)).model_copy(update={"decision": decision})
    return REPORTS[name](ReportInput(result=result, reproduce="docker run x"), None)


def test_it_stands_right_after_the_verdict():
    text = render("markdown", "warn")
    assert text.startswith(MARKER)
    verdict, said, numbers = (text.index(word) for word in ("## ✅", "This change loosens its own checks", "<summary>"))
    assert verdict < said < numbers


def test_it_is_escaped_and_shown_once():
    text = render("markdown", "fail")
    assert "<script>" not in text
    assert "\x1b" not in text
    assert text.count("max_drop 0.02") == 1


def test_no_finding_makes_no_sentence():
    assert "loosens" not in render("markdown", "fail", ())


def test_many_are_counted():
    text = render("markdown", "warn", FOUND * 50)
    assert "(100 ways)" in text
    assert "and 85 more" in text


def test_junit_names_what_blocks_and_adds_no_failure_that_no_case_has():
    blocked = junitparser.JUnitXml.fromstring(render("junit", "fail").encode())
    first, second = [case for suite in blocked for case in suite if case.name.startswith("weakened gate")]
    assert "case `a` was removed" in first.system_out
    assert "max_drop 0.02" in second.system_out
    assert blocked.failures == 0
    assert junitparser.JUnitXml.fromstring(render("junit", "warn").encode()).failures == 0
