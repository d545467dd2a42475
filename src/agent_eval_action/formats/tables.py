"""Datasets as tables (CSV, TSV, JSON Lines, JSON lists) with one case per row.

The roles of columns are configured, or follow from the names that Vertex AI, LangSmith, OpenAI evals and Inspect use.
Cells contain text, Gemini's contents, or messages in OpenAI's or LangChain's form.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import ValidationError
from pydantic_core import from_json

from agent_eval_action.diagnostics.reader import did_you_mean, shorten
from agent_eval_action.diagnostics.suggestions import plural
from agent_eval_action.diagnostics.tables import Row, Table
from agent_eval_action.errors import Problem, Unreadable
from agent_eval_action.formats.base import Format, Reading
from agent_eval_action.results.evalset import (
    ColumnMapping,
    Content,
    DatasetCase,
    EvalSet,
    FunctionCall,
    FunctionResponse,
    IntermediateData,
    Invocation,
    JsonObject,
    Part,
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
"""Column names by role, the most likely first; case, blanks and dashes are ignored."""
_OF_EARLIER_RUNS: Final = frozenset(
    {"response", "responses", "predicted_trajectory", "intermediate_events", "baseline_model_response", "completion"}
)
_TEXT_KEYS: Final = (
    *("question", "query", "prompt", "input", "message", "text", "content"),
    *("answer", "output", "response", "reference", "expected"),
)
_OF_LISTS: Final = frozenset({"query", "data", "initial_session"})
"""Keys that distinguish ADK's list schemas from rows."""
_ROWS_SEEN: Final = 100
_WORD: Final = re.compile(r"[a-z0-9]+")
_SLUG: Final = 40
_NO_PROMPT: Final = "columns: {prompt: NAME} beside the path under evals says which column holds the message"


def _read(reading: Reading) -> EvalSet | None:
    """A set whose id is the file's path in the workspace."""
    table = reading.value
    if reading.session is not None:
        reading.error((), "an initial-session file does not go with a table", hint="give it a column `state`")
    roles = column_roles(table, reading)
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


def holds_rows(value: Any) -> bool:
    """Whether a value is a list of rows: objects with a known prompt key, and no key of ADK's list schemas."""
    if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
        return False
    names = {_plain_name(key) for item in value[:_ROWS_SEEN] for key in item}
    if "item" in names and all(isinstance(item.get("item"), dict) for item in value[:_ROWS_SEEN]):
        return True
    return bool(names & set(_KNOWN["prompt"])) and not names & _OF_LISTS


def _plain_name(column: str) -> str:
    return re.sub(r"[\s\-]+", "_", column.strip().lower())


def column_roles(table: Table, reading: Reading) -> dict[str, str] | None:
    """Columns by role; None after an error."""
    mapping = reading.columns or ColumnMapping()
    plain: dict[str, str] = {}
    for column in table.columns:
        plain.setdefault(_plain_name(column), column)
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
        similar = ((column, did_you_mean(column, _KNOWN["prompt"])) for column in table.columns)
        hint = next((f"{column}: {meant}" for column, meant in similar if meant), _NO_PROMPT)
        listed = ", ".join(map(shorten, table.columns[:10]))
        reading.error((), f"no column is known to hold the prompt, of: {listed}", hint=hint)
    return None if reading.errors else roles


class WrongValue(Exception):  # noqa: N818 - internal signal; becomes a problem of the row
    """A value that does not fit its column's role."""

    def __init__(self, message: str, value: Any = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.value, self.hint = value, hint


@dataclass
class _Cases:
    """The cases of the rows read so far.

    ``role``: that of the value which is being read. ``noted`` maps a warning to its first line and hint, ``counts`` to
    its number of rows. ``same`` counts repetitions of equal cases, by the first one's id.
    """

    reading: Reading
    roles: dict[str, str]
    role: str = "prompt"
    cases: list[DatasetCase] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)
    noted: dict[str, tuple[int, str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    same: Counter[str] = field(default_factory=Counter)

    def add(self, row: Row) -> None:
        """Add a row's case, or the problem with the row."""
        found = {role: _get(row.values, column) for role, column in self.roles.items()}
        try:
            case = self._case(row, {role: value for role, value in found.items() if value is not None and value != ""})
        except WrongValue as wrong:
            column, value, hint = self.roles[self.role], wrong.value, wrong.hint
            if hint is None and isinstance(value, dict) and value:
                hint = f"name a key of it: `columns: {{{self.role}: {column}.{next(iter(value))}}}`"
            shown = None if value is None else shorten(value)
            where = self.reading.source.path
            self.reading.add_error(Problem(where, f"column `{column}`: {wrong}", row.line, value=shown, hint=hint))
            return
        self.cases.append(case.at_line(row.line))

    def note(self, line: int, message: str, hint: str) -> None:
        """Note a warning; those that several rows share are reported once."""
        self.noted.setdefault(message, (line, hint))
        self.counts[message] += 1

    def add_notes(self) -> None:
        """Report each noted warning at its first row."""
        for message, (line, hint) in self.noted.items():
            count = self.counts[message]
            more = f" (so in {plural(count, 'row')})" if count > 1 else ""
            where = self.reading.source.path
            self.reading.warnings.append(Problem(where, f"{message}{more}", line, hint=hint, severity="warning"))

    def _case(self, row: Row, given: JsonObject) -> DatasetCase:
        name = self._given_id(row, given["id"]) if "id" in given else ""
        past, asked, answers = self._messages(row, given)
        message = asked[-1][1]
        history = tuple(
            PastEvent(author="user" if side == "user" else "model", content=content)  # the measured agent, by any name
            for side, content in (*past, *asked[:-1])
            if side != "system"
        )
        reference = self._reference(row, _from_cell(given.get("reference")))
        reference = reference or next((_text_alone(content) for content in reversed(answers) if content.text), None)
        self.role = "expected_tools"
        expected = given.get("expected_tools")
        parts = (part for content in answers for part in content.parts or ())
        calls = tuple(part.function_call for part in parts if part.function_call) or None
        if expected is not None:
            calls = _tool_calls(_from_cell(expected.strip() if isinstance(expected, str) else expected))
        self.role = "state"
        session = _session(_from_cell(given.get("state")))
        fields = self._metric_fields(row)
        if history:
            events = [*history, PastEvent(author="user", content=message)]
            fields["agent_data"] = {"turns": [{"turn_index": 0, "events": [event.wire() for event in events]}]}
            if reference is not None:
                fields["reference"] = {"response": reference.wire()}
        data = None if calls is None else IntermediateData(tool_uses=calls)
        return DatasetCase(
            eval_id=name or self._made_id(row, message, history, session),
            conversation=(Invocation(user_content=message, final_response=reference, intermediate_data=data),),
            history=history,
            session_input=session,
            metric_fields=fields,
        )

    def _given_id(self, row: Row, given: Any) -> str:
        self.role = "id"
        name = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        if (line := self.ids.setdefault(name, row.line)) != row.line:
            raise WrongValue(f"this id is already used in line {line}", name, "ids name results: each once")
        if not name.isprintable() or not name.strip():
            raise WrongValue("an id is printable text", name)
        return name

    def _made_id(self, row: Row, message: Content, history: tuple[PastEvent, ...], session: SessionInput | None) -> str:
        """Derive an id from what the case asks, so that moving rows or changing references keeps it."""
        parts = [message.wire(), [event.wire() for event in history], session and session.wire()]
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]
        words = "-".join(_WORD.findall(message.text[: 4 * _SLUG].lower()))[:_SLUG].strip("-")
        name = f"{words}-{digest}" if words else digest
        if self.ids.setdefault(name, row.line) != row.line:
            self.note(row.line, "asks the same as an earlier row", "each is a case; a column `id` would name them")
            self.same[name] += 1
            while self.ids.setdefault(numbered := f"{name}-{self.same[name] + 1}", row.line) != row.line:
                self.same[name] += 1
            return numbered
        return name

    def _messages(self, row: Row, given: JsonObject) -> tuple[list[_Message], list[_Message], list[Content]]:
        """The history, the messages up to the last one of the user, and the answers after it."""
        self.role = "prompt"
        if (value := given.get("prompt")) is None:
            raise WrongValue("this row has no message for the agent")
        past: list[_Message] = []
        if "history" in given:
            self.role = "history"
            earlier = _from_cell(given["history"])
            if (listed := _message_list(earlier)) is None:
                raise WrongValue("must be a list of messages", earlier, _FORM)
            past = list(_conversation(listed))
        self.role = "prompt"
        prompt = _from_cell(value)
        if (listed := _message_list(prompt)) is None:
            message = _to_content(prompt, "user")
            if not message.text.strip() and not any(part.is_other_than_text for part in message.parts or ()):
                raise WrongValue("the message is empty")
            messages: list[_Message] = [("user", message)]
        else:
            messages = list(_conversation(listed))
        end = max((number for number, (side, _) in enumerate(messages, 1) if side == "user"), default=0)
        if not end:
            raise WrongValue("none of the messages is the user's", prompt)
        if any(side == "system" for side, _ in messages):
            self.note(row.line, "system messages are not sent", "the agent has its own instruction")
        if prompt is value and isinstance(value, str) and value.startswith(('[{"', '{"')):
            self.note(row.line, "this prompt looks like JSON and is none: it is sent as it is", "is the cell cut off?")
        return past, messages[:end], [content for side, content in messages[end:] if side == "model"]

    def _reference(self, row: Row, value: Any) -> Content | None:
        self.role = "reference"
        if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            if len(value) > 1:
                self.note(row.line, "of several references the first counts", "criteria compare with one answer")
            value = value[0]
        return None if value is None or value == [] else _to_content(value, "model")

    def _metric_fields(self, row: Row) -> JsonObject:
        """Values for metrics other than the conversation, by column."""
        chosen = self.reading.columns.metadata if self.reading.columns else None
        used = {*self.roles.values(), *(name.partition(".")[0] for name in self.roles.values())} | _OF_EARLIER_RUNS
        names = chosen if chosen is not None else [name for name in row.values if name not in used]
        found = {name: _get(row.values, name) for name in names}
        return {name: _from_cell(value) for name, value in found.items() if value is not None}


def _get(values: JsonObject, column: str) -> Any:
    """The value of a column; ``inputs.question`` reaches into an object, even one that is JSON in a cell."""
    if column in values or "." not in column:
        return values.get(column)
    name, _, rest = column.partition(".")
    inner = _from_cell(values.get(name))
    return _get(inner, rest) if isinstance(inner, dict) else None


def _from_cell(value: Any) -> Any:
    """Parse a text that is a JSON object or list; return other values unchanged."""
    if isinstance(value, str) and value[:1] in "[{" and value[-1:] in "]}" and len(value) > 1:
        try:
            found = from_json(value, allow_inf_nan=False)  # refuses deep nesting and lone surrogates as well
        except ValueError:
            return value
        return found if isinstance(found, dict | list) else value
    return value


def _session(value: Any) -> SessionInput | None:
    """Read Vertex AI's ``session_inputs`` (user and state), or a plain state. Raises WrongValue."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise WrongValue("must be a JSON object", value)
    is_session = value.keys() <= {"user_id", "state", "app_name"} and isinstance(value.get("state", {}), dict)
    user, app = (value.get(key) for key in ("user_id", "app_name")) if is_session else (None, None)
    state = value.get("state", {}) if is_session else value
    return SessionInput(app_name=str(app or "agent_eval"), user_id=str(user or "test_user_id"), state=state)


_Side = Literal["user", "model", "tool", "system"]
_SIDES: Final[dict[str, _Side]] = {
    **dict.fromkeys(("user", "human", "humanmessage"), "user"),
    **dict.fromkeys(("assistant", "model", "ai", "agent", "aimessage", "aimessagechunk"), "model"),
    **dict.fromkeys(("tool", "function", "toolmessage", "functionmessage"), "tool"),
    **dict.fromkeys(("system", "developer", "systemmessage"), "system"),
}
_FORM: Final = '[{"role": "user", "content": "..."}]'
_CALLS: Final = '[{"name": "roll_die", "args": {"sides": 6}}]'
_MAX_MESSAGES: Final = 10_000


_Message = tuple[_Side, Content]


def _to_content(value: Any, role: str) -> Content:
    """Turn a text, a number, a content or an object with one text into a content. Raises WrongValue."""
    if isinstance(value, Mapping) and isinstance(value.get("response"), Mapping) and "parts" in value["response"]:
        value = value["response"]  # Vertex AI's reference
    listed = _message_list(value)
    if listed is not None:  # LangSmith's outputs: the last of their messages is the answer
        answer = next((content for _, content in reversed(list(_conversation(listed))) if content.text), None)
        if answer is None:
            raise WrongValue("none of the messages has a text", value)
        return _text_alone(answer)
    if isinstance(value, Mapping):
        if "parts" in value:
            return _content(value, role)
        if "content" in value and ("role" in value or "type" in value):
            return next(_conversation([value]))[1]
        names = list(value) if len(value) == 1 else _TEXT_KEYS  # such as LangSmith's inputs and outputs
        text = next((value[name] for name in names if isinstance(value.get(name), str)), None)
        if text is None:
            raise WrongValue("is an object, and which of its values is meant is not clear", value)
        value = text
    if isinstance(value, list) or value is None:
        raise WrongValue("must be a text", value)
    text = value if isinstance(value, str) else json.dumps(value)
    return Content(parts=(Part(text=text),), role=role)


def _tool_calls(value: Any) -> tuple[FunctionCall, ...]:
    """Read expected calls: objects with name and arguments, names, or names in a text separated by commas.

    Raises WrongValue.
    """
    if isinstance(value, str):
        if value.lstrip()[:1] in ("[", "{"):  # no name of a tool begins so: str() of a list in Python does
            raise WrongValue("looks like JSON and is none", value, _CALLS)
        value = [name.strip() for name in value.replace("\n", ",").split(",") if name.strip()]
    if isinstance(value, Mapping):
        value = value.get("tool_uses", value.get("tool_calls", [value]))
    if not isinstance(value, list):
        raise WrongValue("must be a list of tool calls", value, _CALLS)
    return tuple(map(_call, value))


def _call(value: Any) -> FunctionCall:
    if isinstance(value, str) and value.strip():
        return FunctionCall(name=value.strip())
    inner = value.get("function", value) if isinstance(value, Mapping) else None
    if isinstance(inner, str) and isinstance(value, Mapping):  # Inspect's: {"function": name, "arguments": {...}}
        inner = {**value, "name": inner}
    if isinstance(inner, Mapping):
        name = next((inner[key] for key in ("name", "tool_name", "tool") if isinstance(inner.get(key), str)), None)
        keys = ("args", "tool_input", "arguments", "parameters", "input")
        args = next((inner[key] for key in keys if inner.get(key) is not None), None)
        if isinstance(args, str):
            args = None if args.strip() in ("", "null") else _from_cell(args.strip())
        if name and (args is None or isinstance(args, Mapping)):
            return FunctionCall(name=name, args=dict(args) if args is not None else None)
    raise WrongValue("is no tool call", value, _CALLS.strip("[]"))


def _message_list(value: Any) -> list[Any] | None:
    """The messages of a conversation; None for other values."""
    if isinstance(value, Mapping):
        value = next((value[key] for key in ("messages", "contents") if isinstance(value.get(key), list)), None)
    if not isinstance(value, list) or not value:
        return None
    if len(value) == 1 and isinstance(value[0], list):  # LangSmith's runs nest the messages of a call
        value = value[0]
    return value if value and all(isinstance(item, Mapping) for item in value) else None


def _conversation(listed: list[Any]) -> Iterator[_Message]:
    if len(listed) > _MAX_MESSAGES:
        raise WrongValue(f"has more than {_MAX_MESSAGES:,} messages")
    names: dict[str, str] = {}
    for item in listed:
        kwargs: Mapping[str, Any] = next(
            (item[key] for key in ("kwargs", "data") if isinstance(item.get(key), Mapping)), {}
        )
        message = {**item, **kwargs}
        side = _side(item, message)
        if side is None:
            raise WrongValue("is no message: it has no known role", item, _FORM)
        yield side, _message_content(message, side, names)


def _side(item: Mapping[str, Any], message: Mapping[str, Any]) -> _Side | None:
    named = item.get("id")
    words = [message.get("role"), message.get("author"), item.get("type"), message.get("type")]
    words += named[-1:] if isinstance(named, list) else []
    sides = (_SIDES.get(word.lower()) for word in words if isinstance(word, str))
    found = next((side for side in sides if side is not None), None)
    if found is None and "parts" in message and not any(isinstance(word, str) for word in words):
        return "user"
    return found


def _message_content(message: JsonObject, side: _Side, names: dict[str, str]) -> Content:
    role = "model" if side == "model" else "user"
    body = message.get("content")
    if "parts" in message or (isinstance(body, Mapping) and "parts" in body):
        return _content(message if "parts" in message else body, role)
    text = _message_text(body)
    if side == "tool":
        name = message.get("name") or names.get(str(message.get("tool_call_id")), "") or "tool"
        answer = FunctionResponse(name=str(name), response={"result": text})
        return Content(parts=(Part(function_response=answer),), role=role)
    parts = [Part(text=text)] if text else []
    calls = message.get("tool_calls") if side == "model" else None
    for call in calls if isinstance(calls, list) else ():
        made = _call(call)
        names[str(call.get("id")) if isinstance(call, Mapping) else ""] = made.name or ""
        parts.append(Part(function_call=made))
    return Content(parts=tuple(parts), role=role)


def _message_text(body: Any) -> str:
    """The text of a message's content, which may be a list of typed parts. Raises WrongValue."""
    if body is None or isinstance(body, str):
        return body or ""
    texts = []
    for part in body if isinstance(body, list) else [body]:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif not (isinstance(part, Mapping) and part.get("type") in {"tool_use", "thinking", "reasoning"}):
            raise WrongValue("is a part of a message that is no text", part)
    return "\n".join(texts)


def _content(value: Any, role: str) -> Content:
    """Read a content in Gemini's form. Raises WrongValue."""
    parts = value.get("parts")
    parts = [{"text": part} if isinstance(part, str) else part for part in parts] if isinstance(parts, list) else parts
    try:
        return Content.model_validate({"parts": parts, "role": value.get("role") or role})
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        raise WrongValue(f"is no content: {detail['msg'].lower()}", value) from None


def _text_alone(content: Content) -> Content:
    return Content(parts=(Part(text=content.text),), role="model")
