"""JUnit XML. Names are stable, so that CI systems recognise a testcase; they split ``classname`` at its dots."""

from __future__ import annotations

import hashlib
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from junit_xml import TestCase, TestSuite  # type: ignore[import-untyped]  # it ships none

from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.base import ReportInput
from agent_eval_action.reports.differences import attempt_lines, error_line, first_difference, turn_diffs
from agent_eval_action.reports.formatting import clean
from agent_eval_action.reports.messages import KIND_LABELS
from agent_eval_action.reports.view import CaseView, passing, score_of
from agent_eval_action.results.decision import ChangeKind, PairChange
from agent_eval_action.results.run_result import CriterionInfo, SetResult

LIMIT: Final = 8_000
"""The most characters of one text."""
_DETAILS: Final = 64 * 1024 * 1024
_PART, _MESSAGE, _HEAD = 120, 800, 1_000
_COUNTS: Final = ("tests", "failures", "errors", "skipped")
_BATCH: Final = 500
"""Testcases converted at a time: an XML element takes twenty times the memory of its text."""


def junit(report: ReportInput, budget: int | None = None) -> str:
    """Render the report as JUnit XML. ``budget`` limits failure texts, in bytes; messages always stay."""
    builder = _Builder(report, budget if budget is not None else _DETAILS)
    suites = [*map(builder.suite, report.result.sets), *builder.whole_run()]
    counts = {name: str(sum(suite.counts[name] for suite in suites)) for name in _COUNTS}
    time = f"{sum(suite.millis for suite in suites) / 1000:.3f}"
    root = _element("testsuites", {**counts, "time": time}, "".join(suite.text for suite in suites), "\n")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{root}\n'


@dataclass(frozen=True, slots=True)
class _Suite:
    """A suite as text, with the counts that the root element sums."""

    text: str
    counts: Mapping[str, int]
    millis: int


def _element(tag: str, attributes: dict[str, str], body: str, pad: str) -> str:
    empty = ET.tostring(ET.Element(tag, attributes), encoding="unicode")
    return f"{empty.removesuffix(' />')}>{body}{pad}</{tag}>" if body else empty


class _UniqueNames(Counter[str]):
    """Makes names unique by appending numbers."""

    def unique(self, name: str) -> str:
        self[name] += 1
        return name if self[name] == 1 else self.unique(f"{name}~{self[name]}")


def _part(text: str) -> str:
    """Return a name that is never empty; the end of a very long one is replaced by its digest."""
    cleaned = clean(text, len(text) + 1) or "(empty)"
    if len(cleaned) <= _PART:
        return cleaned
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{cleaned[: _PART - 10]}…{digest}"


class _Builder:
    """Builds testcases; when the budget for texts is used up, they have only messages."""

    def __init__(self, report: ReportInput, room: int) -> None:
        self._report = report
        self._room = room
        self._classes = _UniqueNames()
        self._cases: defaultdict[int, list[CaseView]] = defaultdict(list)
        for view in report.view.cases:
            self._cases[id(view.owner)].append(view)

    def suite(self, owner: SetResult) -> _Suite:
        classname = self._classes.unique(
            ".".join(_part(name).replace(".", "_") for name in (owner.agent, owner.eval_set))
        )
        names = _UniqueNames()
        made = (case for view in self._cases[id(owner)] for case in self._case(view, owner, classname, names))
        return self._suite(f"{_part(owner.agent)} / {_part(owner.eval_set)}", made, owner.path)

    def whole_run(self) -> Iterator[_Suite]:
        """Yield a suite for what concerns no single case, as information and not as a failure."""
        decision, names = self._report.decision, _UniqueNames()
        found = [
            (finding.subject.criterion or "run", finding)
            for finding in decision.findings
            if finding.subject.case is None and finding not in decision.weakenings and finding.severity != "advisory"
        ]
        found += [("weakened gate", finding) for finding in decision.weakenings if finding.severity == "blocks"]
        made = []
        for name, finding in found:
            sentence = str(self._report.view.messages.sentence(finding))
            made.append(TestCase(names.unique(_part(name)), "agent-eval.whole run", stdout=self._take(sentence)))
        if made:
            yield self._suite("whole run", made, None)

    def _case(self, view: CaseView, owner: SetResult, classname: str, names: _UniqueNames) -> Iterator[TestCase]:
        result = view.result
        if result is None:
            return
        seconds = sum(max(attempt.durations.total or 0.0, 0.0) for attempt in result.attempts)
        case_name, path = _part(view.key.case), clean(owner.path, 1_000)
        for criterion in owner.criteria:
            # The agent ran once for all criteria of a case: split the time, so that sums stay correct
            case = TestCase(
                names.unique(f"{case_name} · {_part(criterion.name)}"),
                classname,
                seconds / len(owner.criteria),
                file=path,
                line=view.line,
            )
            self._judge(case, view, criterion)
            yield case

    def _judge(self, case: TestCase, view: CaseView, criterion: CriterionInfo) -> None:
        pair = view.pair(criterion.name)
        if pair is None:
            case.add_skipped_info("not judged: this criterion's mode is off")
            return
        missed = passing(pair) is False
        if pair.quarantined and (pair.errors or missed):
            case.add_skipped_info(_message(f"quarantined, does not block: {self._sentence(pair)}"))
        elif not pair.blocking and (pair.kind is ChangeKind.ERROR or pair.errors):
            message, output, kind = self._error(view, pair)
            case.add_error_info(_message(message), self._take(output), kind)
        elif not pair.blocking and pair.kind is ChangeKind.NOT_APPLICABLE:
            left_out = (view.result.unmeasured if view.result else "") or criterion.unmeasured
            case.add_skipped_info(_message(left_out or f"not applicable: {self._sentence(pair)}".rstrip(": ")))
        elif pair.blocking or missed:
            message, output = self._failure(view, pair)
            if pair.blocking:
                case.add_failure_info(_message(message), self._take(output), str(pair.kind))
            else:
                case.add_skipped_info(_message(f"advisory, does not block: {message}"), self._take(output))

    def _sentence(self, pair: PairChange) -> str:
        return str(self._report.view.messages.pair(pair))

    def _failure(self, view: CaseView, pair: PairChange) -> tuple[str, str]:
        """Return message (difference first) and text for a pair that is below its threshold or fell."""
        numbers = f"{fmt.pair_text(pair)}, needs {fmt.limits(pair)}"
        sentence = self._sentence(pair)
        # of this criterion only: the case's others may fail for other reasons
        difference = str(first_difference(replace(view, pairs=(pair,), telling=1)).text or sentence)
        lines = [f"{view.key}", f"{pair.criterion} {numbers}: {KIND_LABELS[pair.kind]}", sentence]
        if spread := fmt.interval(pair):
            lines.append(f"change with 95 % confidence: {spread}")
        if (attempt := view.worst_attempt(pair)) is not None:
            lines += attempt_lines(attempt, pair, len(view.attempts))
            diffs = turn_diffs(view.expected, view.baseline_turns, attempt.turns)
            lines += ["", *(line for diff in diffs for line in diff.text())]
        return f"{difference} ({numbers})" if clean(difference, _MESSAGE) else "", "\n".join(lines)

    def _error(self, view: CaseView, pair: PairChange) -> tuple[str, str, str]:
        """Return message, text and kind for a pair that could not be measured."""
        sentence, attempt = self._sentence(pair), view.failed_attempt(pair.criterion)
        if attempt is None:
            return sentence or f"{pair.criterion} has no score", str(view.key), "unmeasured"
        where = f"{str(view.key)[:_HEAD]}, repeat {attempt.repeat + 1}"
        if attempt.error is not None:
            head = error_line(attempt.error)
            trace = attempt.error.traceback[-LIMIT // 2 :]  # the last lines hold the error
            return head, f"{where}\n{head[:_HEAD]}\n{trace}".rstrip(), str(attempt.error.kind)
        score = score_of(attempt, pair.criterion)
        reason = score.reason if score else "the criterion gave no score"
        return reason or sentence, f"{where}\n{reason}", "scoring"

    def _take(self, output: str) -> str | None:
        """Return the cleaned text if the budget allows it, else None."""
        cleaned = clean(output, LIMIT, lines=True)
        size = len(cleaned.encode())
        if size > self._room:
            return None
        self._room -= size
        return cleaned

    def _suite(self, name: str, cases: Iterable[TestCase], path: str | None) -> _Suite:
        """Render junit-xml's suite, without ``disabled``, with times in milliseconds that add up."""
        timestamp, attributes = _timestamp(self._report.result.started_at), dict[str, str]()
        counts, total, texts, rest = Counter[str](), 0, list[str](), iter(cases)
        while (batch := list(islice(rest, _BATCH))) or not attributes:
            suite = TestSuite(clean(name, 400), batch, timestamp=timestamp, file=path and clean(path, 1_000))
            element: ET.Element = suite.build_xml_doc()
            for case in element:
                millis = round(float(case.get("time", "0")) * 1000)
                case.set("time", f"{millis / 1000:.3f}")
                total += millis
            counts.update({name: int(element.get(name, "0")) for name in _COUNTS})
            attributes = attributes or dict(element.attrib)
            if batch:  # indented for its place below the root
                root = ET.Element("testsuites")
                root.append(element)
                ET.indent(root, " ")
                text = ET.tostring(root, encoding="unicode")
                texts.append(text[text.index(">", text.index("<testsuite ")) + 1 : text.rindex("\n </testsuite>")])
        attributes |= {name: str(counts[name]) for name in _COUNTS} | {"time": f"{total / 1000:.3f}"}
        attributes.pop("disabled", None)
        return _Suite("\n " + _element("testsuite", attributes, "".join(texts), "\n "), counts, total)


def _message(message: str) -> str:
    """Return a message that is never empty: junit-xml treats a failure without one as a pass."""
    return clean(message, _MESSAGE) or "no reason given"


def _timestamp(started_at: str) -> str | None:
    """Return the time in UTC without a zone, as in the JUnit schemas; None if it is not a date."""
    try:
        return datetime.fromisoformat(started_at).astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds")
    except (ValueError, OverflowError):
        return None
