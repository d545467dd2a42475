"""Names by which CI systems group and recognise a testcase: they split ``classname`` at its dots."""

from __future__ import annotations

import hashlib
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime

from junit_xml import TestCase, TestSuite  # type: ignore[import-untyped]  # it ships none

from agent_eval_action.reports import case_text as text
from agent_eval_action.reports.base import ReportInput
from agent_eval_action.reports.escaping import xml
from agent_eval_action.reports.messages import Messages
from agent_eval_action.reports.view import CaseView, passing
from agent_eval_action.results.decision import ChangeKind, Decision
from agent_eval_action.results.run_result import CriterionInfo, SetResult

_PART = 120


def suite_name(agent: str, eval_set: str) -> str:
    """``agent / set``."""
    return f"{part(agent)} / {part(eval_set)}"


class UniqueNames:
    """``agent.set.case``, each given out once: Jenkins takes what is before the last dot for the package."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def unique(self, *parts: str) -> str:
        """The parts joined by dots, with a number behind when another had the same name."""
        name = ".".join(part(each).replace(".", "_") for each in parts) if len(parts) > 1 else part(parts[0])
        self._seen[name] = self._seen.get(name, 0) + 1
        return name if self._seen[name] == 1 else self.unique(f"{name}~{self._seen[name]}")


def part(text: str) -> str:
    """One name, never empty; a huge one ends in its digest."""
    cleaned = xml(text, len(text) + 1) or "(empty)"
    if len(cleaned) <= _PART:
        return cleaned
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{cleaned[: _PART - 10]}…{digest}"


_DETAILS = 64 * 1024 * 1024
_MESSAGE = 800
_WHOLE = "agent-eval.whole run"


def junit(report: ReportInput, budget: int | None = None) -> str:
    """The report as JUnit XML. ``budget`` bounds the failure texts, in bytes; messages always stay."""
    decision = report.decision
    builder = _Builder(budget if budget is not None else _DETAILS, report.view.messages)
    by_set: defaultdict[int, list[CaseView]] = defaultdict(list)
    for view in report.view.cases:
        by_set[id(view.owner)].append(view)
    started_at = report.result.started_at
    suites = [builder.suite(owner, by_set[id(owner)], started_at) for owner in report.result.sets]
    whole = builder.whole(decision, started_at)
    return _document([*suites, whole] if whole is not None else suites)


class _Builder:
    """Makes testcases while the room for their texts lasts."""

    def __init__(self, room: int, messages: Messages) -> None:
        self._room = room
        self._messages = messages
        self._names = UniqueNames()

    def suite(self, owner: SetResult, cases: list[CaseView], started_at: str) -> ET.Element:
        made: list[TestCase] = []
        for view in cases:
            made.extend(self._case(view, owner, self._names.unique(*view.key)))
        return _tree(suite_name(owner.agent, owner.eval_set), made, started_at, owner.path)

    def whole(self, decision: Decision, started_at: str) -> ET.Element | None:
        made = []
        names = UniqueNames()
        for name, status, message, output in text.whole_run(decision, self._messages):
            case = TestCase(names.unique(name), _WHOLE)
            if status == "failure":
                case.add_failure_info(_message(message), self._take(output), "suite")
            elif status == "error":
                case.add_error_info(_message(message), self._take(output), "suite")
            elif status == "skipped":
                case.add_skipped_info(_message(message), self._take(output))
            made.append(case)
        return _tree("whole run", made, started_at, None) if made else None

    def _case(self, view: CaseView, owner: SetResult, classname: str) -> Iterator[TestCase]:
        result = view.result
        if result is None:
            return
        seconds = sum(max(attempt.durations.total or 0.0, 0.0) for attempt in result.attempts)
        names = UniqueNames()
        for criterion in owner.criteria:
            # The agent ran once for all criteria of a case: each carries its share, so that sums stay true
            case = TestCase(
                names.unique(criterion.name),
                classname,
                seconds / len(owner.criteria),
                file=xml(owner.path, 1_000),
                line=result.line if result.line and result.line > 0 else None,
            )
            self._judge(case, view, criterion)
            yield case

    def _judge(self, case: TestCase, view: CaseView, criterion: CriterionInfo) -> None:
        pair = view.pair(criterion.name)
        if pair is None:
            case.add_skipped_info("not judged: this criterion's mode is off")
        elif pair.blocking:
            message, output = text.failure(view, pair, self._messages)
            case.add_failure_info(_message(message), self._take(output), str(pair.kind))
        elif pair.kind is ChangeKind.ERROR or pair.errors:
            message, output, kind = text.error(view, pair, self._messages)
            case.add_error_info(_message(message), self._take(output), kind)
        elif pair.kind is ChangeKind.NOT_APPLICABLE:
            left_out = view.result.unmeasured if view.result else ""
            left_out = left_out or criterion.unmeasured
            case.add_skipped_info(_message(left_out or f"not applicable: {self._messages.pair(pair)}".rstrip(": ")))
        elif passing(pair) is False:
            message, output = text.failure(view, pair, self._messages)
            case.add_skipped_info(_message(f"advisory, does not block: {message}"), self._take(output))

    def _take(self, output: str) -> str | None:
        """The text while there is room; afterwards the message has to do."""
        cleaned = xml(output, text.LIMIT, lines=True)
        size = len(cleaned.encode())
        if size > self._room:
            return None
        self._room -= size
        return cleaned


def _message(message: str) -> str:
    """Never empty: junit-xml takes a failure that says nothing for a pass."""
    return xml(message, _MESSAGE) or "no reason given"


def _tree(name: str, cases: list[TestCase], started_at: str, path: str | None) -> ET.Element:
    """junit-xml's element, finished: no ``disabled``, times to the millisecond and adding up."""
    suite = TestSuite(xml(name, 400), cases, timestamp=_timestamp(started_at), file=path and xml(path, 1_000))
    element: ET.Element = suite.build_xml_doc()
    element.attrib.pop("disabled", None)
    total = 0
    for case in element.iter("testcase"):
        millis = round(float(case.get("time", "0")) * 1000)
        case.set("time", f"{millis / 1000:.3f}")
        total += millis
    element.set("time", f"{total / 1000:.3f}")
    return element


def _timestamp(started_at: str) -> str | None:
    """UTC without a zone, as the JUnit schemas have it; None for what is no date."""
    try:
        return datetime.fromisoformat(started_at).astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds")
    except (ValueError, OverflowError):
        return None


def _document(suites: list[ET.Element]) -> str:
    root = ET.Element("testsuites")
    for count in ("tests", "failures", "errors", "skipped"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in suites)))
    root.set("time", f"{sum(round(float(suite.get('time', '0')) * 1000) for suite in suites) / 1000:.3f}")
    root.extend(suites)
    ET.indent(root, " ")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'
