"""What several reports show is computed once for a result, and never shown of another one."""

from __future__ import annotations

from typing import Any

import pytest

from agent_eval_action.reports import ReportInput, results_json
from agent_eval_action.reports.base import scores_only
from agent_eval_action.reports.view import Group, with_threshold
from agent_eval_action.results.decision import ChangeKind, CriterionChange, Verdict
from support.messages import text_finding

from .conftest import CRITERION, GOLDEN, stat

K = ChangeKind
DOUBTFUL, CERTAIN = (-0.4, 0.1), (-0.4, -0.1)
GROUPS: dict[Group, list[list[tuple[ChangeKind, dict[str, Any]]]]] = {
    Group.REGRESSED: [
        [(K.NEWLY_FAILING, {"blocking": True})],
        [(K.WORSE, {"blocking": True}), (K.ERROR, {})],
        [(K.STILL_FAILING, {"blocking": True, "confirmed": True})],
    ],
    Group.NEEDS_RUNS: [[(K.NEWLY_FAILING, {"criterion": "doubted"})], [(K.SAME, {"criterion": "doubted"})]],
    Group.NOT_MEASURED: [[(K.ERROR, {})], [(K.SAME, {"errors": 1})], [(K.ERROR, {"criterion": "doubted"})]],
    Group.BELOW_THRESHOLD: [
        [(K.STILL_FAILING, {"blocking": True}), (K.ERROR, {})],
        [(K.FAILING, {})],
        [(K.NEWLY_FAILING, {}), (K.WORSE, {})],
        [(K.NEW, {"current": stat(0.0)})],
    ],
    Group.WORSE: [[(K.WORSE, {})], [(K.WORSE, {"interval": CERTAIN}), (K.FLAKY, {})]],
    Group.FLAKY: [[(K.FLAKY, {}), (K.ON_MAIN, {})], [(K.WORSE, {"interval": DOUBTFUL}), (K.FLAKY, {})]],
    Group.BROKEN_ON_MAIN: [[(K.ON_MAIN, {}), (K.CHANGED, {})]],
    Group.QUARANTINED: [[(K.FAILING, {"quarantined": True})], [(K.SAME, {}), (K.ERROR, {"quarantined": True})]],
    Group.NEW: [[(K.NEW, {})], [(K.NEW, {}), (K.NOT_APPLICABLE, {})]],
    Group.CHANGED: [[(K.CHANGED, {}), (K.BETTER, {})]],
    Group.BETTER: [[(K.FIXED, {})], [(K.BETTER, {}), (K.SAME, {})]],
    Group.UNCHANGED: [[(K.SAME, {}), (K.NEW, {})], [(K.PASSING, {})], [(K.WORSE, {"interval": DOUBTFUL})], []],
}
"""What the pairs of a case have become, and its class. ``doubted`` is a criterion that no decision could be made on."""


def test_reports_share_the_view_and_another_result_has_its_own() -> None:
    report = ReportInput(results_json.read(GOLDEN / "regressed" / "results.json"))
    assert report.view is report.view
    expected = [case.result.expected for case in report.view.cases if case.result is not None]
    assert any(expected)
    bare = scores_only(report)
    assert not any(case.result.expected for case in bare.view.cases if case.result is not None)


def test_the_worst_cases_come_first_by_group() -> None:
    report = ReportInput(results_json.read(GOLDEN / "regressed" / "results.json"))
    groups = [case.group for case in report.view.worst_first]
    assert groups[:3] == [Group.REGRESSED, Group.REGRESSED, Group.NOT_MEASURED]
    assert [case.urgency for case in report.view.worst_first] == sorted(case.urgency for case in report.view.cases)
    assert groups != [case.group for case in report.view.cases], "the view's own order is that of the files"


@pytest.mark.parametrize(
    ("group", "pairs"),
    [(group, pairs) for group, examples in GROUPS.items() for pairs in examples],
    ids=lambda value: value.name if isinstance(value, Group) else "+".join(kind for kind, _ in value),
)
def test_each_case_is_of_the_first_class_that_its_pairs_allow(build: Any, group: Group, pairs: Any) -> None:
    build.case("a", K.NOT_APPLICABLE, current=None)
    for number, (kind, fields) in enumerate(pairs):
        values = {"threshold": 1.0, "current": stat(1.0), "baseline": stat(1.0), "criterion": f"c{number}", **fields}
        build.pair("a", kind, **values)
    subject = {"agent": "dice", "eval_set": "basics", "case": "a"}
    findings = (
        text_finding("inconclusive", "too few runs", **subject, criterion="doubted"),
        *(text_finding("advisory", "told", **subject, criterion=f"c{number}") for number in range(2)),
    )
    (view,) = build.report(findings=findings).view.cases
    assert view.group is group
    assert (view.telling > 0) == (group is not Group.UNCHANGED)


def test_the_pass_rate_counts_no_case_that_nothing_applies_to(build: Any) -> None:
    build.case("a", threshold=0.5)
    build.case("b", K.NOT_APPLICABLE, None, threshold=0.5)
    build.case("c", K.NOT_APPLICABLE, None, threshold=0.5).pair("c", K.SAME, threshold=0.5, criterion="other")
    build.case("d", K.ERROR, None, threshold=0.5)
    assert [view.key.case for view in with_threshold(build.report().view.cases)] == ["a", "c", "d"]


def test_every_class_but_that_of_removed_cases_has_an_example() -> None:
    assert set(GROUPS) | {Group.REMOVED} == set(Group)


def test_a_case_that_is_gone_is_in_the_class_of_removed_ones(build: Any) -> None:
    build.case("a").pair("b", K.REMOVED, baseline=stat(1.0))
    assert [(view.key.case, view.group) for view in build.report().view.cases] == [
        ("a", Group.UNCHANGED),
        ("b", Group.REMOVED),
    ]


@pytest.mark.parametrize(("goal", "side"), [("maximize", "below"), ("minimize", "above")])
def test_a_criterion_has_its_means_of_the_same_cases_and_the_side_of_its_threshold(
    build: Any, goal: Any, side: str
) -> None:
    build.case("a")
    fields = {"goal": goal, "status": "fail", "pairs": 3, "compared": 2, "failing": 1, "baseline": 0.9541}
    found = CriterionChange(criterion=CRITERION, current=0.1, paired=0.9512, **fields)
    (row,) = build.report(Verdict.FAIL, criteria=(found,)).view.criteria
    assert (row.baseline, row.current) == ("0.954", "0.951"), "as many digits as the difference needs"
    assert f"1 {side} threshold" in row.cases
    assert "2 of 3 compared" in row.cases
