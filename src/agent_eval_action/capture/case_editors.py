"""Editors for each format of eval file: add a case, or replace a case's expectations, in JSON or in a table.

The functions for JSON formats take the value of a whole file and return a new one; they do not change the old one.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic.alias_generators import to_camel

from agent_eval_action.capture.cases import ExpectedTurn, call_value
from agent_eval_action.capture.json_edits import edit_json
from agent_eval_action.diagnostics.tables import DELIMITERS, Table
from agent_eval_action.results.evalset import EvalCase, FunctionCall, JsonObject

_FREE: Final = frozenset({"args", "response", "state", "final_session_state"})
_Turns = Sequence[tuple[ExpectedTurn, ExpectedTurn]]
"""The old and the new expectations of each turn."""


class NotEditable(Exception):  # noqa: N818 - internal signal; becomes the error of a file
    """A file or a case cannot be edited; the message is a sentence."""


def _add_to_eval_set(value: Any, case: JsonObject) -> Any:
    """Add a case to a set of ADK, ADK-Rust or trpc-agent."""
    cases_key = "evalCases" if "evalCases" in value else "eval_cases"
    cases = value.get(cases_key) or []
    turns = [turn for other in cases for turn in other.get("conversation") or () if isinstance(turn, dict)]
    chat = any(_is_chat(_get(turn, "user_content")) for turn in turns)
    made = {**case, "conversation": [_chat_turn(turn) if chat else turn for turn in case["conversation"]]}
    return {**value, cases_key: [*cases, _camel(made) if any(map(_is_camel, cases)) else made]}


def _add_to_dataset(value: Any, case: JsonObject) -> Any:
    """Add a case to a dataset of agents-cli; all turns but the last become its history."""
    *past, last = case["conversation"]
    name = "evalCaseId" if any("evalCaseId" in other for other in value.get("eval_cases", ())) else "eval_case_id"
    made: JsonObject = {name: case["eval_id"]}
    if past:
        spoken = [(side, turn.get(key)) for turn in past for side, key in _SIDES if turn.get(key)]
        events = [*spoken, ("user", last["user_content"])]
        turn = {"turn_index": 0, "events": [{"author": author, "content": content} for author, content in events]}
        made["agent_data"] = {"turns": [turn]}
    else:
        made["prompt"] = last["user_content"]
    if last.get("final_response"):
        made["reference"] = {"response": last["final_response"]}
    key = "evalCases" if "evalCases" in value else "eval_cases"
    return {**value, key: [*value[key], made]}


_SIDES: Final = (("user", "user_content"), ("model", "final_response"))


def _add_to_legacy_list(value: Any, case: JsonObject) -> Any:
    """Add a case to a list in ADK's older schema."""
    if value and not any("data" in item for item in value):
        raise NotEditable("the file is one conversation, a list of turns: name another file for this case")
    data = []
    for turn in case["conversation"]:
        calls = [FunctionCall(**call) for call in turn["intermediate_data"]["tool_uses"]]
        made = {"query": _text(turn["user_content"]), "expected_tool_use": [_legacy_call(call) for call in calls]}
        data.append({**made, **({"reference": _text(turn["final_response"])} if turn.get("final_response") else {})})
    session = case.get("session_input")
    return [
        *value,
        {"name": case["eval_id"], "data": data, **({"initial_session": session} if session else {})},
    ]


def _replace_in_eval_set(value: Any, index: int, turns: _Turns) -> Any:
    """Replace a case's expectations in an eval set."""
    key = "evalCases" if "evalCases" in value else "eval_cases"
    case = value[key][index]
    made = [
        _replaced_turn(turn, before, after, camel=_is_camel(case))
        for turn, (before, after) in zip(case["conversation"], turns, strict=True)
    ]
    return {**value, key: _replaced(value[key], index, {**case, "conversation": made})}


def _replace_in_dataset(value: Any, index: int, turns: _Turns) -> Any:
    """Replace a case's reference in a dataset, which has expectations only for the last turn."""
    key = "evalCases" if "evalCases" in value else "eval_cases"
    case, (before, after) = value[key][index], turns[-1]
    if before.answer == after.answer:
        return value
    old = case.get("reference")
    inner = old if isinstance(old, dict) and old.keys() & {"role", "parts"} else (old or {}).get("response")
    answer = _answer(inner, after.answer or "", chat=False)
    reference = answer if inner is old and old is not None else {**(old or {}), "response": answer}
    return {**value, key: _replaced(value[key], index, {**case, "reference": reference})}


def _replace_in_legacy_list(value: Any, index: int, turns: _Turns) -> Any:
    """Replace a case's expectations in an older list, which may be a list of cases or the turns of a single one."""
    if not any("data" in item for item in value):
        return [_replaced_legacy(turn, *pair) for turn, pair in zip(value, turns, strict=True)]
    case = value[index]
    data = [_replaced_legacy(turn, *pair) for turn, pair in zip(case["data"], turns, strict=True)]
    return _replaced(value, index, {**case, "data": data})


def _replaced(items: list[Any], index: int, item: Any) -> list[Any]:
    return [*items[:index], item, *items[index + 1 :]]


def _replaced_legacy(turn: JsonObject, before: ExpectedTurn, after: ExpectedTurn) -> JsonObject:
    made = dict(turn)
    if after.calls is not None and before.comparable[0] != after.comparable[0]:
        known = [
            (item, FunctionCall(name=item.get("tool_name"), args=item.get("tool_input") or None))
            for item in made.get("expected_tool_use") or ()
        ]
        made["expected_tool_use"] = _kept_or_new(known, after.calls, _legacy_call)
    if after.answer is not None and before.answer != after.answer:
        made["reference"] = after.answer
    return made


def _legacy_call(call: FunctionCall) -> JsonObject:
    return {"tool_name": call.name or "", "tool_input": call.args or {}}


def _replaced_turn(turn: JsonObject, before: ExpectedTurn, after: ExpectedTurn, *, camel: bool) -> JsonObject:
    made, chat = dict(turn), _is_chat(_get(turn, "user_content"))
    if after.calls is not None and before.comparable[0] != after.comparable[0]:
        if "tools" in turn or (chat and _get(turn, "intermediate_data") is None):
            tools = [item for item in turn.get("tools") or () if isinstance(item, dict)]
            known = [(item, _call(item, item.get("arguments", item.get("args")))) for item in tools]
            made["tools"] = _kept_or_new(known, after.calls, _chat_call)
        else:
            key = _key(turn, "intermediate_data", camel=camel)
            made[key] = _replaced_data(turn.get(key) or {}, after.calls, camel=camel)
    if after.answer is not None and before.answer != after.answer:
        key = _key(turn, "final_response", camel=camel)
        made[key] = _answer(turn.get(key), after.answer, chat=chat)
    return made


def _replaced_data(data: JsonObject, calls: Sequence[FunctionCall], *, camel: bool) -> JsonObject:
    events = _key(data, "invocation_events", camel=camel)
    if events in data:
        author = next((event.get("author") for event in data[events] if isinstance(event, dict)), None) or "agent"
        parts = [{to_camel("function_call") if camel else "function_call": call_value(call)} for call in calls]
        new_events = [{"author": author, "content": {"parts": [part], "role": "model"}} for part in parts]
        return {**data, events: new_events}
    uses, answers = (_key(data, name, camel=camel) for name in ("tool_uses", "tool_responses"))
    known = [(item, _call(item, item.get("args"))) for item in data.get(uses) or ()]
    made = {**data, uses: _kept_or_new(known, calls, call_value)}
    if data.get(answers):  # drop responses of tools that are no longer called
        names = {call.name for call in calls}
        made[answers] = [item for item in data[answers] if item.get("name") in names]
    return made


def _call(item: Mapping[str, Any], args: Any) -> FunctionCall:
    return FunctionCall(name=item.get("name"), args=args if isinstance(args, dict) else None)


def _kept_or_new(
    known: Iterable[tuple[JsonObject, FunctionCall]],
    calls: Iterable[FunctionCall],
    write: Callable[[FunctionCall], JsonObject],
) -> list[JsonObject]:
    """Write calls; reuse the file's items for equal calls, with their ids and extra keys."""
    left, made = [(item, call_value(call)) for item, call in known], []
    for call in calls:
        same = next((number for number, (_, value) in enumerate(left) if value == call_value(call)), None)
        made.append(write(call) if same is None else left.pop(same)[0])
    return made


def _answer(old: Any, text: str, *, chat: bool) -> JsonObject:
    """Replace a message's text and keep its other keys."""
    if chat:
        return {**old, "content": text} if isinstance(old, dict) else {"role": "assistant", "content": text}
    if not isinstance(old, dict):
        return {"parts": [{"text": text}], "role": "model"}
    parts = [part for part in old.get("parts") or () if isinstance(part, dict) and part.get("text")]
    return {**old, "parts": [{**parts[0], "text": text} if len(parts) == 1 else {"text": text}]}


def _is_chat(message: Any) -> bool:
    return isinstance(message, dict) and "content" in message and "parts" not in message


def _chat_turn(turn: JsonObject) -> JsonObject:
    made: JsonObject = {"user_content": {"role": "user", "content": _text(turn["user_content"])}}
    if turn.get("final_response"):
        made["final_response"] = {"role": "assistant", "content": _text(turn["final_response"])}
    made["tools"] = [_chat_call(FunctionCall(**call)) for call in turn["intermediate_data"]["tool_uses"]]
    return made


def _chat_call(call: FunctionCall) -> JsonObject:
    return {"name": call.name or "", "arguments": call.args or {}}


def _text(content: Any) -> str:
    """Return a message's text. Raises NotEditable if it has other parts."""
    parts = content.get("parts") or []
    if not all(isinstance(part, dict) and "text" in part for part in parts):
        raise NotEditable("this file's format holds texts alone, and a message of the conversation is more than text")
    return "\n".join(part["text"] for part in parts)


def _get(value: Mapping[str, Any], name: str) -> Any:
    return value.get(name, value.get(to_camel(name)))


def _key(value: Mapping[str, Any], name: str, *, camel: bool) -> str:
    """Return the key as the object spells it, else in the case's style."""
    other = to_camel(name)
    return name if name in value else other if other in value or camel else name


def _is_camel(case: Any) -> bool:
    """Return whether a case's keys are in camelCase."""
    turns = [turn for turn in case.get("conversation") or () if isinstance(turn, dict)]
    keys = {key for part in (case, *turns) for key in part}
    return bool(keys & {"evalId", "userContent"})


def _camel(value: Any) -> Any:
    """Convert the keys of ADK's schema to camelCase; leave the agent's own objects."""
    if isinstance(value, dict):
        return {to_camel(key): item if key in _FREE else _camel(item) for key, item in value.items()}
    return [_camel(item) for item in value] if isinstance(value, list) else value


JSON_FORMATS: Final[Mapping[str, tuple[Callable[[Any, JsonObject], Any], Callable[[Any, int, _Turns], Any]]]] = {
    **dict.fromkeys(("adk", "adk_rust", "trpc"), (_add_to_eval_set, _replace_in_eval_set)),
    "agents_cli": (_add_to_dataset, _replace_in_dataset),
    "adk_legacy": (_add_to_legacy_list, _replace_in_legacy_list),
}
"""For each JSON format, the functions that add a case and that replace expectations."""


class JsonEditor:
    """Edits a JSON file in one of ``JSON_FORMATS``; ``text`` applies the edits."""

    def __init__(self, form: str, text: str) -> None:
        self._add, self._replace = JSON_FORMATS[form]
        self._before, self._value = text, json.loads(text)

    def add(self, case: JsonObject) -> None:
        """Add a case. Raises NotEditable."""
        self._value = self._add(self._value, case)

    def replace(self, index: int, _: EvalCase, turns: _Turns) -> None:
        """Replace a case's expectations. Raises NotEditable."""
        self._value = self._replace(self._value, index, turns)

    def text(self) -> str:
        """Return the edited file."""
        return edit_json(self._before, self._value)


_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")


def _with_row(table: Table, text: str, roles: Mapping[str, str], case: JsonObject) -> str:
    """Add a case to a table. Raises NotEditable if a row cannot hold it."""
    if len(case["conversation"]) > 1:
        turns = len(case["conversation"])
        raise NotEditable(f"a row of a table holds one message, and this conversation has {turns}: name a JSON file")
    turn = case["conversation"][0]
    parts = turn["user_content"]["parts"]
    if any(part.keys() != {"text"} for part in parts):
        raise NotEditable("a row of a table holds a text, and the message is more than text: name a JSON file")
    state = (case.get("session_input") or {}).get("state")
    if state and "state" not in roles:
        raise NotEditable("the table has no column for the state that this conversation begins with")
    calls = turn["intermediate_data"]["tool_uses"]
    answer = "\n".join(part["text"] for part in (turn.get("final_response") or {}).get("parts", ()))
    given = {
        "id": case["eval_id"],
        "prompt": "\n".join(part["text"] for part in parts),
        "reference": answer,
        "expected_tools": calls,
        "state": state,
    }
    cells = {roles[role]: value for role, value in given.items() if role in roles and value not in (None, "")}
    line_end = "\r\n" if "\r\n" in text else "\n"
    whole = text.endswith(("\n", "\r"))
    if table.is_csv:
        columns = list(table.columns)
        if missing := [name for name in cells if name not in columns]:
            raise NotEditable(f"the column {missing[0]} is inside another one: add the row by hand")
        written = _delimiter(table, text).join(_cell(cells.get(name, ""), _delimiter(table, text)) for name in columns)
    else:
        first = json.loads(next(line for line in text.split("\n") if line.strip()))
        row: JsonObject = {}
        for name, value in cells.items():
            _set(row, name, value)
        wrapped = isinstance(first.get("item"), dict) and first.keys() <= {"item", "sample"}
        written = json.dumps({"item": row} if wrapped else row, ensure_ascii=text.isascii() and "\\u" in text)
    return text + ("" if whole else line_end) + written + (line_end if whole else "")


class RowEditor:
    """Edits a table with the contents ``text``. ``roles``: columns by what they hold."""

    def __init__(self, table: Table, text: str, roles: Mapping[str, str]) -> None:
        self._table, self._before, self._roles = table, text, roles
        self._lines = [found.start() for found in _LINE.finditer(text)]
        self._splices: list[tuple[int, int, str]] = []

    def add(self, case: JsonObject) -> None:
        """Add a case after the last row. Raises NotEditable if a row cannot hold it."""
        added = _with_row(self._table, self._before, self._roles, case)
        self._splices.append((0, len(self._before), added))

    def replace(self, _: int, case: EvalCase, turns: _Turns) -> None:
        """Replace the expectations of a row's case. Raises NotEditable."""
        (before, after), changes = turns[-1], JsonObject()
        if after.answer is not None and before.answer != after.answer:
            changes[_column(self._roles, "reference")] = after.answer
        if after.calls is not None and before.comparable[0] != after.comparable[0]:
            changes[_column(self._roles, "expected_tools")] = [call_value(call) for call in after.calls]
        start = self._lines[(case.line or 1) - 1]
        if self._table.is_csv:
            self._splices += _changed_cells(self._table, self._before, start, changes)
        else:
            found = _LINE.match(self._before, start)
            row = found.group() if found else ""
            self._splices.append((start, start + len(row), _edited_object(row, changes)))

    def text(self) -> str:
        """Return the edited table."""
        text = self._before
        for begin, end, written in sorted(self._splices, reverse=True):
            text = text[:begin] + written + text[end:]
        return text


def _column(roles: Mapping[str, str], role: str) -> str:
    if role not in roles:
        raise NotEditable(f"the table has no column for the {role.replace('_', ' ')}")
    return roles[role]


def _edited_object(row: str, changes: JsonObject) -> str:
    old = json.loads(row)
    new = json.loads(row)
    wrapped = isinstance(old.get("item"), dict) and old.keys() <= {"item", "sample"}
    for name, value in changes.items():
        _set(new["item"] if wrapped else new, name, value)
    body = row.rstrip("\r\n")
    return edit_json(body, new) + row[len(body) :]


def _set(row: JsonObject, name: str, value: Any) -> None:
    """Set a column, which may be a dotted path. Raises NotEditable if a text would replace an object."""
    head, dot, rest = name.partition(".")
    if name not in row and dot:
        inner = row.setdefault(head, {})
        if not isinstance(inner, dict):
            raise NotEditable(f"{head} is no object in this row: edit it by hand")
        _set(inner, rest, value)
        return
    if isinstance(value, str) and not isinstance(row.get(name, ""), str):
        raise NotEditable(f"{name} is more than a text in this row: edit it by hand")
    row[name] = value


def _changed_cells(table: Table, text: str, start: int, changes: JsonObject) -> list[tuple[int, int, str]]:
    delimiter = _delimiter(table, text)
    cell = re.compile(rf'(?:"((?:[^"]|"")*)"|([^{re.escape(delimiter)}\r\n]*))')
    splices, offset = [], start
    for column in table.columns:
        found = cell.match(text, offset)
        if found is None:
            raise NotEditable("the row cannot be taken apart: edit it by hand")
        if column in changes:
            old, value = found.group(1) or found.group(2) or "", changes[column]
            if isinstance(value, str) and old[:1] in {"{", "["}:
                raise NotEditable(f"{column} is more than a text in this row: edit it by hand")
            splices.append((found.start(), found.end(), _cell(value, delimiter, quoted=found.group(1) is not None)))
        offset = found.end() + len(delimiter)
    if len(splices) < len(changes):
        raise NotEditable("the expectation is inside another column: edit it by hand")
    return splices


def _cell(value: Any, delimiter: str, *, quoted: bool = False) -> str:
    written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if quoted:
        return '"' + written.replace('"', '""') + '"'
    line = io.StringIO()
    csv.writer(line, delimiter=delimiter, lineterminator="").writerow([written, ""])
    return line.getvalue().removesuffix(delimiter)


def _delimiter(table: Table, text: str) -> str:
    if table.path.suffix.lower() == ".tsv":
        return "\t"
    first_line = re.split(r"[\r\n]", text, maxsplit=1)[0]
    return max(DELIMITERS, key=first_line.count)
