"""junit.xml: outcomes, counts and names as CI systems read them, whatever the texts in it."""

from __future__ import annotations

import copy
import math
import tracemalloc
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import junitparser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from agent_eval_action.errors import ResultsError
from agent_eval_action.reports import REPORTS, ReportInput
from agent_eval_action.results.decision import ChangeKind, CriterionChange, Decision, PairChange, Verdict
from agent_eval_action.results.findings import Finding, FindingCode, Reason
from agent_eval_action.results.run_result import (
    AttemptError,
    AttemptSummary,
    CaseResult,
    Conditions,
    CriterionInfo,
    CriterionScore,
    Durations,
    ErrorKind,
    RunResult,
    SetResult,
)
from support.messages import sentence, text_finding

SCHEMA = etree.XMLSchema(etree.parse(Path(__file__).resolve().parents[3] / "schema" / "junit.xsd"))


def rendered(report: ReportInput, budget: int | None = None) -> tuple[etree._Element, junitparser.JUnitXml]:
    text = REPORTS["junit"](report, budget)
    tree = etree.parse(BytesIO(text.encode()), etree.XMLParser(huge_tree=True))
    SCHEMA.assertValid(tree)
    return tree.getroot(), junitparser.JUnitXml.fromroot(tree.getroot())


def outcomes(root: etree._Element) -> dict[str, str]:
    return {
        case.get("name", "").rpartition(" · ")[0]: (case[0].tag if len(case) else "passed")
        for case in root.iter("testcase")
    }


@pytest.mark.parametrize("name", ["regressed", "passed", "inconclusive", "collecting", "suite_drop", "hostile"])
def test_every_scenario_is_valid_and_its_counts_are_those_of_its_cases(
    golden_result: Callable[[str], RunResult], name: str
) -> None:
    root, parsed = rendered(ReportInput(golden_result(name)))
    recounted = junitparser.JUnitXml()
    for suite in parsed:
        again = junitparser.TestSuite(suite.name)
        for case in suite:
            again.add_testcase(copy.deepcopy(case))
        again.update_statistics()
        counts = (suite.tests, suite.failures, suite.errors, suite.skipped)
        assert counts == (again.tests, again.failures, again.errors, again.skipped)
        assert math.isclose(suite.time, sum(case.time for case in suite), abs_tol=1e-9)
        recounted.add_testsuite(again)
    recounted.update_statistics()
    assert (parsed.tests, parsed.failures, parsed.errors) == (recounted.tests, recounted.failures, recounted.errors)
    assert not [element for element in root.iter() if "disabled" in element.attrib]


def test_what_each_conclusion_becomes(build: Any) -> None:
    broken = build.attempt(None, error=AttemptError(kind=ErrorKind.DIED, message="killed", traceback="last line"))
    build.case("blocks", ChangeKind.NEWLY_FAILING, 0.0, blocking=True, baseline=build.stat(1.0))
    build.case("advisory", ChangeKind.STILL_FAILING, 0.0, baseline=build.stat(0.0))
    build.case("error", ChangeKind.ERROR, None, errors=1, attempt=broken)
    build.case("half measured", ChangeKind.SAME, 1.0, errors=1, attempt=(build.attempt(1.0), broken))
    build.case("not applicable", ChangeKind.NOT_APPLICABLE, None, attempt=build.attempt(None), reason="no reference")
    build.case("worse but allowed", ChangeKind.WORSE, 0.9, threshold=0.5, baseline=build.stat(1.0))
    build.case("same")
    build.case("new", ChangeKind.NEW)
    build.pair("removed", ChangeKind.REMOVED)
    root, _ = rendered(build.report(Verdict.FAIL))
    assert outcomes(root) == {
        "blocks": "failure",
        "advisory": "skipped",
        "error": "error",
        "half measured": "error",
        "not applicable": "skipped",
        "worse but allowed": "passed",
        "same": "passed",
        "new": "passed",
    }
    messages = {
        case.get("name", "").rpartition(" · ")[0]: case[0].get("message") for case in root.iter("testcase") if len(case)
    }
    assert messages["advisory"].startswith("advisory, does not block: ")
    assert messages["not applicable"] == "not applicable: no reference"
    assert messages["error"] == "died: killed"


def test_a_criterion_that_is_not_judged_is_skipped(build: Any) -> None:
    infos = (CriterionInfo(name=build.criterion, digest="c"), CriterionInfo(name="off", digest="o"))
    root, _ = rendered(build.case("a").report(criteria_infos=infos))
    assert [(case.get("name"), len(case)) for case in root.iter("testcase")] == [
        (f"a · {build.criterion}", 0),
        ("a · off", 1),
    ]


def test_a_failure_shows_expected_against_actual_per_turn(build: Any) -> None:
    roll, other = build.call("roll_die", sides=20), build.call("roll_die", sides=6)
    build.case(
        "a",
        ChangeKind.NEWLY_FAILING,
        0.0,
        blocking=True,
        baseline=build.stat(1.0),
        expected=(build.turn(roll, response="17"),),
        attempt=build.attempt(0.0, turns=(build.turn(other, response="4"),)),
    )
    root, _ = rendered(build.report(Verdict.FAIL))
    failure = next(root.iter("failure"))
    assert failure.get("type") == "newly_failing"
    lines = (failure.text or "").splitlines()
    assert [line for line in lines if line[:2] in {"- ", "+ "}] == [
        "- roll_die(sides=20)",
        "+ roll_die(sides=6)",
        "- 17",
        "+ 4",
    ]
    assert "score reason" in lines
    assert "turn 1: 0.00, turn reason" in lines


def test_an_error_shows_the_last_lines_of_the_traceback(build: Any) -> None:
    trace = "\n".join(f"line {number}" for number in range(5_000))
    error = AttemptError(kind=ErrorKind.EXCEPTION, message="boom", traceback=trace, turn=1)
    build.case("a", ChangeKind.ERROR, None, errors=1, attempt=build.attempt(None, error=error))
    root, _ = rendered(build.report(Verdict.INCONCLUSIVE))
    found = next(root.iter("error"))
    assert found.get("message") == "exception in turn 2: boom"
    assert found.get("type") == "exception"
    assert "line 4999" in (found.text or "")
    assert len(found.text or "") <= 8_000


def test_a_score_that_could_not_be_made_says_why(build: Any) -> None:
    score = CriterionScore(criterion=build.criterion, status="error", reason="two turns for one")
    build.case("a", ChangeKind.ERROR, None, errors=1, attempt=build.attempt(None, scores=(score,)))
    root, _ = rendered(build.report(Verdict.INCONCLUSIVE))
    assert next(root.iter("error")).get("message") == "two turns for one"


@pytest.mark.parametrize(
    ("finding", "name"),
    [
        (text_finding("blocks", "fell by 0.2", criterion="x"), "x"),
        (text_finding("inconclusive", "max_time", criterion=None), "run"),
        (text_finding("advisory", "fell a bit", criterion="x"), None),
    ],
)
def test_what_concerns_the_whole_run_is_reported_and_adds_no_failure(
    build: Any, finding: Finding, name: str | None
) -> None:
    row = CriterionChange(criterion="x", max_drop=0.05, baseline=0.9, paired=0.7, change=-0.2)
    root, parsed = rendered(build.case("a").report(Verdict.FAIL, findings=(finding,), criteria=(row,)))
    whole = [case for case in root.iter("testcase") if case.get("classname") == "agent-eval.whole run"]
    assert [(case.get("name"), case[0].tag, case[0].text) for case in whole] == (
        [(name, "system-out", sentence(finding))] if name else []
    )
    assert (parsed.failures, parsed.errors) == (0, 0)


def test_a_reason_of_nothing_visible_is_still_a_failure(build: Any) -> None:
    build.case("a", ChangeKind.FAILING, 0.0, blocking=True, reason="\x00\x1b[0m")
    root, _ = rendered(build.report(Verdict.FAIL))
    assert next(root.iter("failure")).get("message")


def test_file_line_and_times(build: Any) -> None:
    infos = tuple(CriterionInfo(name=name, digest="c") for name in ("a", "b", "c"))
    build.case("one", line=12, attempt=build.attempt(durations=Durations(total=1.0)))
    build.case("two", line=0, attempt=build.attempt(durations=Durations()))
    root, _ = rendered(build.report(criteria_infos=infos))
    cases = list(root.iter("testcase"))
    assert {case.get("file") for case in cases} == {"evals/b.test.json"}
    assert [case.get("line") for case in cases] == ["12"] * 3 + [None] * 3
    assert [case.get("time") for case in cases] == ["0.333"] * 3 + ["0.000"] * 3
    suite = root[0]
    assert (suite.get("time"), root.get("time")) == ("0.999", "0.999")
    assert suite.get("timestamp") == "2026-05-07T10:30:00"


def test_a_class_is_an_agent_and_a_set_and_a_name_a_case_and_a_criterion(build: Any) -> None:
    build.case("v1.2/a b").case("v1.2/a b").case("x" * 5_000)
    root, _ = rendered(build.report())
    names = [case.get("classname", "") for case in root.iter("testcase")]
    assert set(names) == {"dice.basics"}
    assert len({case.get("name") for case in root.iter("testcase")}) == 3
    assert all(len(case.get("name", "")) < 300 for case in root.iter("testcase"))


def test_a_message_is_about_its_own_criterion_and_begins_with_what_differs(
    golden_result: Callable[[str], RunResult],
) -> None:
    root = etree.fromstring(REPORTS["junit"](ReportInput(golden_result("judged")), None).encode())
    messages = {
        str(case.get("name")): str(found.get("message"))
        for case in root.iter("testcase")
        for found in case
        if found.tag in {"failure", "error"}
    }
    assert len(messages) == len(set(messages.values())) == 4
    assert "unsupported" in messages["pool_question · hallucinations_v1"]
    assert "rubric `polite` not met" in messages["pool_question · rubric_based_final_response_quality_v1"]
    assert not [text for name, text in messages.items() if text.lstrip("`").startswith(name.partition(" ")[0])]


def test_texts_give_way_to_the_budget_and_messages_stay(golden_result: Callable[[str], RunResult]) -> None:
    full, _ = rendered(ReportInput(golden_result("regressed")))
    bare, _ = rendered(ReportInput(golden_result("regressed")), 0)
    assert [case.get("name") for case in bare.iter("testcase")] == [case.get("name") for case in full.iter("testcase")]
    assert any(failure.text for failure in full.iter("failure"))
    assert not any((failure.text or "").strip() for failure in bare.iter("failure", "error"))
    assert all(failure.get("message") for failure in bare.iter("failure", "error"))


def test_nothing_is_rendered_before_it_is_decided(golden_result: Callable[[str], RunResult]) -> None:
    undecided = golden_result("passed").model_copy(update={"decision": None})
    for report in REPORTS.values():
        with pytest.raises(ResultsError, match="no decision"):
            report(ReportInput(undecided), None)


NASTY = st.one_of(
    st.text(st.characters(), max_size=40),
    st.sampled_from(
        ["]]>", "<!--", "&#0;", "\x00", "\ud800", "\ufffe", "\U0001ffff", "\x1b[31m", "\r\n", "\x85", "\u2028"]
    ),
)


@settings(max_examples=120)
@given(data=st.data())
def test_no_text_breaks_the_file_or_hides_a_failure(data: st.DataObject) -> None:
    text = data.draw(st.lists(NASTY, min_size=1, max_size=4).map("".join))
    attempt = AttemptSummary.model_construct(
        repeat=0,
        error=AttemptError.model_construct(kind=ErrorKind.EXCEPTION, message=text, traceback=text, turn=None),
        scores=(),
        turns=(),
        durations=Durations(),
    )
    case = CaseResult.model_construct(case=text, line=1, digest="", expected=(), attempts=(attempt,))
    info = CriterionInfo.model_construct(name=text, goal="maximize", threshold=1.0)
    reason = Reason.model_construct(code=FindingCode.TEXT, data={"text": text})
    pairs = [
        PairChange.model_construct(
            agent=text, eval_set=text, case=name, criterion=text, kind=kind, blocking=blocking, reason=reason, errors=0
        )
        for name, kind, blocking in ((text, ChangeKind.FAILING, True), (text + "2", ChangeKind.ERROR, False))
    ]
    other = case.model_copy(update={"case": text + "2"})
    owner = SetResult.model_construct(agent=text, eval_set=text, path=text, criteria=(info,), cases=(case, other))
    decision = Decision.model_construct(
        outcome=Verdict.FAIL,
        reasons=(),
        findings=(text_finding("blocks", text),),
        criteria=(CriterionChange.model_construct(criterion=text),),
        pairs=tuple(pairs),
    )
    result = RunResult.model_construct(
        started_at=text, conditions=Conditions(tool_version="1"), sets=(owner,), decision=decision
    )
    root, _ = rendered(ReportInput(result))
    assert root.get("failures") == "1"
    assert root.get("errors") == "1"


@pytest.mark.exhaustive
def test_five_thousand_cases_are_valid_and_complete(large_result: Callable[[int], RunResult]) -> None:
    root, _ = rendered(ReportInput(large_result(5_000)))
    assert root.get("tests") == "20002"
    assert len({(case.get("classname"), case.get("name")) for case in root.iter("testcase")}) == 20_002


def test_a_known_result_is_parsed_into_known_cases(golden_result: Callable[[str], RunResult]) -> None:
    _, parsed = rendered(ReportInput(golden_result("regressed")))
    suite = next(iter(parsed))
    assert suite.name == "dice / basics"
    case = next(case for case in suite if case.name == "roll_then_prime · tool_trajectory_avg_score")
    assert case.classname == "dice.basics"
    assert case.result[0].message == "turn 1: `roll_die(sides=6)`, not `roll_die(sides=20)` (1.00 → 0.00, needs ≥ 1)"
    assert isinstance(case.result[0], junitparser.Failure)
    assert "roll_die(sides=6)" in case.result[0].text


def test_a_large_suite_is_made_in_little_more_memory_than_its_text(build: Any) -> None:
    """Batches end where they should, and no tree of all of it is there at once."""
    for number in range(2_001):
        build.case(f"case_{number}")
    report = build.report()
    assert len(report.view.cases) == 2_001
    root, _ = rendered(report)
    assert [suite.get("tests") for suite in root] == ["2001"]
    assert len({case.get("name") for case in root.iter("testcase")}) == 2_001
    tracemalloc.start()
    try:
        text = REPORTS["junit"](report, None)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 7 * len(text), (peak, len(text))
