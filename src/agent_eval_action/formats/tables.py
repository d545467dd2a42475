"""Datasets as tables: CSV, TSV and JSON Lines with a case a row. Which column is what is configured, or known by name.

The names that are known are those of Vertex AI, LangSmith, OpenAI evals and Inspect.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import from_json

from agent_eval_action.diagnostics.reader import did_you_mean, shorten
from agent_eval_action.diagnostics.suggestions import plural
from agent_eval_action.diagnostics.tables import Row, Table
from agent_eval_action.errors import Problem, Unreadable
from agent_eval_action.formats.base import Format, Reading
from agent_eval_action.formats.messages import (
    Messages,
    NoMessages,
    read_history,
    read_messages,
    to_content,
    tool_calls,
)
from agent_eval_action.results.evalset import (
    ColumnMapping,
    Content,
    DatasetCase,
    EvalSet,
    IntermediateData,
    Invocation,
    JsonObject,
    PastEvent,
    SessionInput,
)

_KNOWN: Final[dict[str, tuple[str, ...]]] = {
    "id": ("id", "eval_case_id", "case_id", "example_id", "sample_id", "eval_id"),
    "prompt": ("prompt", "input", "inputs", "question", "query", "user_input", "messages", "request"),
    "reference": (
        *("reference", "ideal", "target", "expected_output", "expected_response", "expected_answer", "expected"),
        *("reference_output", "reference_outputs", "reference_answer", "ground_truth", "outputs", "output", "answer"),
    ),
    "expected_tools": (
        *("expected_tools", "reference_trajectory", "expected_trajectory", "expected_tool_calls"),
        "expected_tool_use",
    ),
    "history": ("history", "conversation_history", "chat_history"),
    "state": ("session_inputs", "state"),
}
"""Names of columns by role, the likeliest first; case, blanks and dashes do not count."""
_OF_EARLIER_RUNS: Final = frozenset(
    {"response", "responses", "predicted_trajectory", "intermediate_events", "baseline_model_response", "completion"}
)
_TEXT_KEYS: Final = (
    *("question", "query", "prompt", "input", "message", "text", "content"),
    *("answer", "output", "response", "reference", "expected"),
)
_WORD: Final = re.compile(r"[a-z0-9]+")
_SLUG: Final = 40
_NO_PROMPT: Final = "columns: {prompt: NAME} beside the path under evals says which column holds the message"


def _read(reading: Reading) -> EvalSet | None:
    """A set whose id is the file's path in the workspace."""
    table = reading.value
    if reading.session is not None:
        reading.error((), "an initial-session file does not go with a table", hint="give it a column `state`")
    roles = _roles(table, reading)
    if roles is None:
        return None
    cases = _Cases(reading, roles)
    try:
        for row in table.rows():
            cases.add(row)
    except Unreadable as unreadable:
        reading.add_error(unreadable.problem)
    cases.add_notes()
    return None if reading.errors else EvalSet(eval_set_id=reading.name, eval_cases=tuple(cases.cases))


TABLE: Final = Format("table", lambda value: isinstance(value, Table), _read)


def _roles(table: Table, reading: Reading) -> dict[str, str] | None:
    """The column of each role; None after an error."""
    mapping = reading.columns or ColumnMapping()
    plain: dict[str, str] = {}
    for column in table.columns:
        plain.setdefault(re.sub(r"[\s\-]+", "_", column.strip().lower()), column)
    roles: dict[str, str] = {}
    for role, names in _KNOWN.items():
        given = getattr(mapping, role)
        found = given or next(
            (plain[name] for name in names if name in plain and plain[name] not in mapping.named), None
        )
        if found is not None:
            roles[role] = found
    for column in (*mapping.named, *(mapping.metadata or ())):
        if column not in table.columns and column.partition(".")[0] not in table.columns:
            hint = did_you_mean(column, table.columns) or f"it has {', '.join(map(shorten, table.columns[:10]))}"
            reading.error((), f"the table has no column {shorten(column)}", hint=hint)
    if "prompt" not in roles:
        listed = ", ".join(map(shorten, table.columns[:10]))
        hint = _misspelt_prompt(table) or _NO_PROMPT
        reading.error((), f"no column is known to hold the prompt, of: {listed}", hint=hint)
    return None if reading.errors else roles


def _misspelt_prompt(table: Table) -> str | None:
    """The hint for a column whose name nearly is one of those that hold the prompt."""
    meant = [(column, hint) for column in table.columns if (hint := did_you_mean(column, _KNOWN["prompt"]))]
    return f"{meant[0][0]}: {meant[0][1]}" if meant else None


class _BadCell(Exception):  # noqa: N818 - internal signal; becomes a problem of the row
    """A value that cannot be what its column is for."""

    def __init__(self, role: str, message: str, value: Any = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.role, self.message, self.value, self.hint = role, message, value, hint


@dataclass
class _Cases:
    """The cases of the rows read so far.

    ``noted`` is what several rows have, with the first line, ``counts`` how many have it; ``same`` counts rows that ask
    the same by the id of the first.
    """

    reading: Reading
    roles: dict[str, str]
    cases: list[DatasetCase] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)
    noted: dict[str, tuple[int, str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    same: Counter[str] = field(default_factory=Counter)

    def add(self, row: Row) -> None:
        """Add the case of a row, or what is wrong with it."""
        try:
            case = self._case(row, _named(row.values, self.roles))
        except _BadCell as bad:
            column = self.roles.get(bad.role, bad.role)
            value = None if bad.value is None else shorten(bad.value)
            where = self.reading.source.path
            problem = Problem(where, f"column `{column}`: {bad.message}", row.line, value=value, hint=bad.hint)
            self.reading.add_error(problem)
            return
        self.cases.append(case.at_line(row.line))

    def note(self, line: int, message: str, hint: str) -> None:
        """Warn once of what several rows may have."""
        self.noted.setdefault(message, (line, hint))
        self.counts[message] += 1

    def add_notes(self) -> None:
        """Add a warning for each thing noted, at the first row that has it."""
        for message, (line, hint) in self.noted.items():
            count = self.counts[message]
            more = f" (so in {plural(count, 'row')})" if count > 1 else ""
            where = self.reading.source.path
            self.reading.warnings.append(Problem(where, f"{message}{more}", line, hint=hint, severity="warning"))

    def _case(self, row: Row, given: JsonObject) -> DatasetCase:
        name = self._given_id(row, given.get("id"))
        asked = self._asked(row, given)
        reference = self._reference(row, given.get("reference")) or asked.reference
        calls = self._calls(given.get("expected_tools"))
        if calls is None and asked.expected_calls:
            calls = asked.expected_calls
        session = _session(given.get("state"))
        message = asked.message
        fields = self._metric_fields(row)
        if asked.history:
            events = [*asked.history, PastEvent(author="user", content=message)]
            fields["agent_data"] = {"turns": [{"turn_index": 0, "events": [_dump(event) for event in events]}]}
            if reference is not None:
                fields["reference"] = {"response": _dump(reference)}
        turn = Invocation(
            user_content=message,
            final_response=reference,
            intermediate_data=None if calls is None else IntermediateData(tool_uses=calls),
        )
        return DatasetCase(
            eval_id=name or self._made_id(row, asked, session),
            conversation=(turn,),
            history=asked.history,
            session_input=session,
            metric_fields=fields,
        )

    def _given_id(self, row: Row, given: Any) -> str:
        """The id in the row, "" where it has none."""
        if given is None:
            return ""
        name = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        if (line := self.ids.setdefault(name, row.line)) != row.line:
            raise _BadCell("id", f"this id is already used in line {line}", name, "ids name results: each once")
        if not name.isprintable() or not name.strip():
            raise _BadCell("id", "an id is printable text", name)
        return name

    def _made_id(self, row: Row, asked: Messages, session: SessionInput | None) -> str:
        """An id made of what the case asks, so that it stays when rows are moved and references change."""
        text = asked.message.text
        parts = [_dump(asked.message), [_dump(event) for event in asked.history], session and _dump(session)]
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]
        words = "-".join(_WORD.findall(text[: 4 * _SLUG].lower()))[:_SLUG].strip("-")
        name = f"{words}-{digest}" if words else digest
        if self.ids.setdefault(name, row.line) != row.line:
            self.note(row.line, "asks the same as an earlier row", "each is a case; a column `id` would name them")
            self.same[name] += 1
            while self.ids.setdefault(numbered := f"{name}-{self.same[name] + 1}", row.line) != row.line:
                self.same[name] += 1
            return numbered
        return name

    def _asked(self, row: Row, given: JsonObject) -> Messages:
        value = given.get("prompt")
        if value is None:
            raise _BadCell("prompt", "this row has no message for the agent")
        try:
            past = read_history(_from_cell(given["history"])) if "history" in given else ()
            asked = read_messages(_from_cell(value), _text_of).after(past)
        except NoMessages as wrong:
            raise _BadCell(
                wrong.role, str(wrong), wrong.value, wrong.hint or self._nested_hint(wrong.value, "prompt")
            ) from None
        if asked.instructions:
            self.note(row.line, "system messages are not sent", "the agent has its own instruction")
        if isinstance(value, str) and value.startswith(('[{"', '{"')) and _from_cell(value) is value:
            self.note(row.line, "this prompt looks like JSON and is none: it is sent as it is", "is the cell cut off?")
        return asked

    def _reference(self, row: Row, value: Any) -> Content | None:
        value = _from_cell(value)
        if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            if len(value) > 1:
                self.note(row.line, "of several references the first counts", "criteria compare with one answer")
            value = value[0]
        if value is None or value == []:
            return None
        try:
            return to_content(value, _text_of, "model")
        except NoMessages as wrong:
            raise _BadCell("reference", str(wrong), wrong.value, self._nested_hint(value, "reference")) from None

    def _nested_hint(self, value: Any, role: str) -> str | None:
        if isinstance(value, dict) and value:
            return f"name a key of it: `columns: {{{role}: {self.roles[role]}.{next(iter(value))}}}`"
        return None

    def _calls(self, value: Any) -> Any:
        try:
            return None if value is None else tool_calls(_from_cell(value))
        except NoMessages as wrong:
            raise _BadCell("expected_tools", str(wrong), wrong.value, wrong.hint) from None

    def _metric_fields(self, row: Row) -> JsonObject:
        """What metrics read beside the conversation, under the names of its columns."""
        chosen = self.reading.columns.metadata if self.reading.columns else None
        if chosen is not None:
            found = {name: _get(row.values, name) for name in chosen}
            return {name: _from_cell(value) for name, value in found.items() if value is not None}
        used = {*self.roles.values(), *(name.partition(".")[0] for name in self.roles.values())} | _OF_EARLIER_RUNS
        return {name: _from_cell(value) for name, value in row.values.items() if name not in used and value is not None}


def _named(values: JsonObject, roles: dict[str, str]) -> JsonObject:
    """The values of a row by role, without empty ones."""
    found = {role: _get(values, column) for role, column in roles.items()}
    return {role: value for role, value in found.items() if value is not None and value != ""}


def _get(values: JsonObject, column: str) -> Any:
    """The value of a column; ``inputs.question`` leads into an object, also one that is a cell's JSON."""
    if column in values or "." not in column:
        return values.get(column)
    name, _, rest = column.partition(".")
    inner = _from_cell(values.get(name))
    return _get(inner, rest) if isinstance(inner, dict) else None


def _from_cell(value: Any) -> Any:
    """The object or list that a cell's text is as JSON, else the value."""
    if isinstance(value, str) and value[:1] in "[{" and value[-1:] in "]}" and len(value) > 1:
        try:
            found = from_json(value, allow_inf_nan=False)  # refuses deep nesting and lone surrogates as well
        except ValueError:
            return value
        return found if isinstance(found, dict | list) else value
    return value


def _text_of(value: JsonObject) -> str | None:
    """The text of an object of named values, such as LangSmith's inputs and outputs; None where that is not clear."""
    named = [value[key] for key in _TEXT_KEYS if isinstance(value.get(key), str)]
    texts = [item for item in value.values() if isinstance(item, str)] if len(value) == 1 else named[:1]
    return texts[0] if len(texts) == 1 else None


def _session(value: Any) -> SessionInput | None:
    """Vertex AI's ``session_inputs`` (user and state), or the state alone."""
    value = _from_cell(value)
    if value is None:
        return None
    if not isinstance(value, dict):
        raise _BadCell("state", "must be a JSON object", value)
    is_session = value.keys() <= {"user_id", "state", "app_name"} and isinstance(value.get("state", {}), dict)
    user, app = (value.get(key) for key in ("user_id", "app_name")) if is_session else (None, None)
    state = value.get("state", {}) if is_session else value
    return SessionInput(app_name=str(app or "agent_eval"), user_id=str(user or "test_user_id"), state=state)


def _dump(value: Any) -> JsonObject:
    dumped: JsonObject = value.model_dump(mode="json", exclude_none=True)
    return dumped
