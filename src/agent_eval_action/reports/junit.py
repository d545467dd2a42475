"""junit.xml: a suite per eval set, a testcase per case and criterion, and one per rule over the whole suite."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator

from junit_xml import TestCase, TestSuite  # type: ignore[import-untyped]  # it ships none

from agent_eval_action.model.decision import ChangeKind, Decision
from agent_eval_action.model.result import CriterionInfo, SetResult
from agent_eval_action.reports import junit_text as text
from agent_eval_action.reports.base import ReportInput
from agent_eval_action.reports.cases import CaseView, passing, views
from agent_eval_action.reports.escape_xml import xml
from agent_eval_action.reports.junit_names import ClassNames, suite_name

_DETAILS = 64 * 1024 * 1024
_MESSAGE = 500


def junit(report: ReportInput, budget: int | None = None) -> str:
    """The report as JUnit XML. ``budget`` bounds the failure texts, in bytes; messages always stay."""
    builder = _Builder(budget if budget is not None else _DETAILS)
    decision = report.decision
    by_set: dict[tuple[str, str, str], list[CaseView]] = {}
    for view in views(report.result, decision):
        if view.owner is not None:
            by_set.setdefault((view.owner.agent, view.owner.eval_set, view.owner.path), []).append(view)
    suites = [
        builder.suite(owner, by_set.get((owner.agent, owner.eval_set, owner.path), []), report.result.started_at)
        for owner in report.result.sets
    ]
    whole = builder.whole(decision, report.result.started_at)
    return _document([*suites, whole] if whole is not None else suites)


class _Builder:
    """Makes testcases while the room for their texts lasts."""

    def __init__(self, room: int) -> None:
        self._room = room

    def suite(self, owner: SetResult, cases: list[CaseView], started_at: str) -> ET.Element:
        names = ClassNames()
        made: list[TestCase] = []
        for view in cases:
            classname = names.of(view.key)
            made.extend(self._case(view, owner, classname))
        return _tree(suite_name(owner.agent, owner.eval_set), made, started_at, owner.path)

    def whole(self, decision: Decision, started_at: str) -> ET.Element | None:
        made = []
        for name, status, message, output in text.whole_run(decision):
            case = TestCase(xml(name, 200), "agent-eval.whole run")
            if status == "failure":
                case.add_failure_info(xml(message, _MESSAGE), xml(output, text.LIMIT, lines=True))
            elif status == "error":
                case.add_error_info(xml(message, _MESSAGE), xml(output, text.LIMIT, lines=True))
            made.append(case)
        return _tree("whole run", made, started_at, None) if made else None

    def _case(self, view: CaseView, owner: SetResult, classname: str) -> Iterator[TestCase]:
        result = view.result
        if result is None:
            return
        seconds = sum(attempt.durations.total or 0.0 for attempt in result.attempts)
        for criterion in owner.criteria:
            # The agent ran once for all criteria of a case: each carries its share, so that sums stay true
            case = TestCase(
                xml(criterion.name, 200) or "(unnamed)",
                classname,
                seconds / len(owner.criteria),
                file=xml(owner.path, 1_000),
                line=result.line,
            )
            self._judge(case, view, criterion)
            yield case

    def _judge(self, case: TestCase, view: CaseView, criterion: CriterionInfo) -> None:
        pair = view.pair(criterion.name)
        if pair is None:
            case.add_skipped_info("not judged: this criterion's mode is off")
        elif pair.blocking:
            message, output = text.failure(view, pair)
            case.add_failure_info(xml(message, _MESSAGE), self._take(output), str(pair.kind))
        elif pair.kind is ChangeKind.ERROR or pair.errors:
            message, output, kind = text.error(view, pair)
            case.add_error_info(xml(message, _MESSAGE), self._take(output), kind)
        elif pair.kind is ChangeKind.NOT_APPLICABLE:
            case.add_skipped_info(xml(f"not applicable: {pair.reason}".rstrip(": "), _MESSAGE))
        elif passing(pair) is False:
            message, output = text.failure(view, pair)
            case.add_skipped_info(xml(f"advisory, does not block: {message}", _MESSAGE), self._take(output))

    def _take(self, output: str) -> str | None:
        """The text while there is room; afterwards the message has to do."""
        cleaned = xml(output, text.LIMIT, lines=True)
        size = len(cleaned.encode())
        if size > self._room:
            return None
        self._room -= size
        return cleaned


def _tree(name: str, cases: list[TestCase], started_at: str, path: str | None) -> ET.Element:
    """junit-xml's element, finished: no ``disabled``, times to the millisecond and adding up."""
    suite = TestSuite(
        xml(name, 400), cases, timestamp=xml(started_at.removesuffix("Z"), 40) or None, file=path and xml(path, 1_000)
    )
    element: ET.Element = suite.build_xml_doc()
    element.attrib.pop("disabled", None)
    total = 0
    for case in element.iter("testcase"):
        millis = round(float(case.get("time", "0")) * 1000)
        case.set("time", f"{millis / 1000:.3f}")
        total += millis
    element.set("time", f"{total / 1000:.3f}")
    return element


def _document(suites: list[ET.Element]) -> str:
    root = ET.Element("testsuites")
    for count in ("tests", "failures", "errors", "skipped"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in suites)))
    root.set("time", f"{sum(round(float(suite.get('time', '0')) * 1000) for suite in suites) / 1000:.3f}")
    root.extend(suites)
    ET.indent(root, " ")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'
