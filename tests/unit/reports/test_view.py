"""What several reports show is computed once for a result, and never shown of another one."""

from __future__ import annotations

from agent_eval_action.reports import ReportInput, results_json
from agent_eval_action.reports.detail import scores_only
from agent_eval_action.reports.view import Group

from .conftest import GOLDEN


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
