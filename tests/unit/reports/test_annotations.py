"""Annotations: worst first, where the case is written down, bounded as GitHub bounds them, the rest counted."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from agent_eval_action.reports import REPORTS
from agent_eval_action.reports.annotations import remarks, shown_in_step
from agent_eval_action.results.decision import ChangeKind, CriterionChange, Verdict
from agent_eval_action.results.evalset import Annotation
from agent_eval_action.results.findings import Finding, FindingCode, Subject
from agent_eval_action.results.run_result import AttemptError, AttemptSummary, ErrorKind

DIED = AttemptSummary(repeat=0, error=AttemptError(kind=ErrorKind.DIED, message="signal 9"))


def test_worst_first_each_cause_at_the_line_of_its_worst_case_with_its_level(build):
    build.case("fine")
    build.case("advisory", ChangeKind.FAILING, 0.1, line=3)
    build.case("gone", ChangeKind.ERROR, None, attempt=DIED, line=4)
    build.case("fell", ChangeKind.NEWLY_FAILING, 0.5, change=-0.5, blocking=True, baseline=build.stat(1.0), line=5)
    build.case("fell far", ChangeKind.NEWLY_FAILING, 0.0, change=-1.0, blocking=True, baseline=build.stat(1.0), line=6)
    found = list(remarks(build.report(Verdict.FAIL)))
    assert [(one.level, one.line, one.path) for one in found] == [
        ("error", 6, "evals/b.test.json"),
        ("warning", 4, "evals/b.test.json"),
        ("notice", 3, "evals/b.test.json"),
    ]
    assert found[0].title == "fell far: tool_trajectory_avg_score got worse (1.00 on main, 0.00 here)"
    assert found[0].message == "tool_trajectory_avg_score 1.00 → 0.00, newly failing\nThe same cause: fell"
    assert found[1].message == "died: signal 9"


def test_what_weakens_the_gate_comes_before_everything(build):
    build.case("fell", ChangeKind.NEWLY_FAILING, 0.0, blocking=True, baseline=build.stat(1.0))
    data = {"option": "threshold", "old": 0.9, "new": 0.8, "source": "default"}
    subject = Subject(criterion="x")
    told = Finding(code=FindingCode.CRITERION_LOOSENED, severity="blocks", subject=subject, data=data)
    first, _ = remarks(build.report(Verdict.FAIL, findings=(told,), weakenings=(told,)))
    assert (first.level, first.path, first.message) == (
        "error",
        "",
        "x (by ADK's defaults): threshold lowered 0.90 → 0.80",
    )


def test_a_case_that_fell_with_its_criterion_says_so(build):
    build.case("fell", ChangeKind.WORSE, 0.8, threshold=None, change=-0.2, baseline=build.stat(1.0))
    row = CriterionChange(criterion=build.criterion, status="fail", pairs=1)
    (one,) = remarks(build.report(Verdict.FAIL, criteria=(row,)))
    assert (one.level, one.message) == ("error", "tool_trajectory_avg_score 1.00 → 0.80, worse")


def test_a_message_keeps_within_4096_bytes_and_says_how_many_criteria_are_left(build):
    build.case("many", ChangeKind.NEWLY_FAILING, 0.0, blocking=True, reason="日" * 5_000)
    for number in range(40):
        extra = {"criterion": f"c{number}", "threshold": 1.0, "current": build.stat(0.0), "blocking": True}
        build.pair("many", ChangeKind.NEWLY_FAILING, reason="語" * 5_000, **extra)
    (one,) = remarks(build.report(Verdict.FAIL))
    assert 3_000 < len(one.message.encode()) <= 4_096
    assert one.message.endswith("…")


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("evals/a.json", "evals/a.json"),
        ("/etc/passwd", ""),
        ("../outside.json", ""),
        ("evals/../../x", ""),
        ("C:\\x.json", ""),
        ("", ""),
    ],
)
def test_only_a_path_of_the_workspace_is_named(build, path, shown):
    build.case("fell", ChangeKind.NEWLY_FAILING, 0.0, blocking=True)
    report = build.report(Verdict.FAIL)
    owner = report.result.sets[0].model_copy(update={"path": path})
    moved = type(report)(report.result.model_copy(update={"sets": (owner,)}))
    (one,) = remarks(moved)
    assert one.path == shown


def many(level: str, count: int) -> list[Annotation]:
    return [Annotation(level=level, message=str(number)) for number in range(count)]


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 5_000])
def test_ten_of_a_level_are_shown_and_the_last_counts_the_rest(count):
    shown = shown_in_step([*many("error", count), *many("warning", count)])
    assert Counter(one.level for one in shown) == Counter({"error": min(count, 10), "warning": min(count, 10)})
    errors = [one for one in shown if one.level == "error"]
    if count > 10:
        assert errors[-1].message.startswith(f"{count - 9:,} more blocking")
        assert [one.message for one in errors[:-1]] == [str(number) for number in range(9)]
    else:
        assert [one.message for one in errors] == [str(number) for number in range(count)]


def test_a_red_step_keeps_a_place_for_its_last_word():
    shown = shown_in_step(many("error", 30), kept=1)
    assert len(shown) == 9
    assert shown[-1].message.startswith("22 more blocking")


def test_as_json_they_are_what_the_checks_api_takes(build):
    build.case("fell", ChangeKind.NEWLY_FAILING, 0.0, blocking=True, reason="because")
    (one,) = json.loads(REPORTS["annotations"](build.report(Verdict.FAIL), None))
    assert one == {
        "path": "evals/b.test.json",
        "start_line": 7,
        "end_line": 7,
        "annotation_level": "failure",
        "title": "fell: tool_trajectory_avg_score got worse",
        "message": "because",
    }
    assert json.loads(REPORTS["annotations"](build.report(Verdict.FAIL), 10)) == []
