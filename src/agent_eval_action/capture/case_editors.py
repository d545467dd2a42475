"""Editors for each format of eval file: add a case, or replace a case's expectations, in JSON or in a table.

JSON text keeps every byte outside the members that changed, and new text follows the style around it: indentation, line
ends, escapes, one line or several.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from pydantic.alias_generators import to_camel

from agent_eval_action.capture.cases import ExpectedTurn, call_value
from agent_eval_action.diagnostics.reader import Member, members, skip_space
from agent_eval_action.diagnostics.tables import Table, row_values
from agent_eval_action.results.evalset import EvalCase, FunctionCall, JsonObject

_ESCAPED: Final = re.compile(r"\\u(?!00[0-7])[0-9a-fA-F]{4}")
_LINE_START: Final = re.compile(r"[ \t]*")
_FREE: Final = frozenset({"args", "response", "state", "final_session_state"})


class NotEditable(Exception):  # noqa: N818 - internal signal; becomes the error of a file
    """A file or a case cannot be edited; the message is a sentence."""


def _make_for_eval_set(cases: Sequence[JsonObject], case: JsonObject) -> JsonObject:
    """Return a case for a set of ADK, ADK-Rust or trpc-agent."""
    turns = [turn for other in cases for turn in other.get("conversation") or () if isinstance(turn, dict)]
    chat = any(_is_chat(_get(turn, "user_content")) for turn in turns)
    made = {**case, "conversation": [_chat_turn(turn) if chat else turn for turn in case["conversation"]]}
    return _camel(made) if any(map(_is_camel, cases)) else made


def _change_in_eval_set(case: JsonObject, changes: Sequence[ExpectedTurn]) -> JsonObject:
    camel = _is_camel(case)
    turns = zip(case["conversation"], changes, strict=True)
    return {**case, "conversation": [_changed_turn(turn, change, camel=camel) for turn, change in turns]}


_SIDES: Final = (("user", "user_content"), ("model", "final_response"))


def _make_for_dataset(cases: Sequence[JsonObject], case: JsonObject) -> JsonObject:
    """Return a case for a dataset of agents-cli; all turns but the last become its history."""
    *past, last = case["conversation"]
    made: JsonObject = {
        "evalCaseId" if any("evalCaseId" in other for other in cases) else "eval_case_id": case["eval_id"]
    }
    if past:
        spoken = [(side, turn.get(key)) for turn in past for side, key in _SIDES if turn.get(key)]
        events = [*spoken, ("user", last["user_content"])]
        turn = {"turn_index": 0, "events": [{"author": author, "content": content} for author, content in events]}
        made["agent_data"] = {"turns": [turn]}
    else:
        made["prompt"] = last["user_content"]
    if last.get("final_response"):
        made["reference"] = {"response": last["final_response"]}
    return made


def _change_in_dataset(case: JsonObject, changes: Sequence[ExpectedTurn]) -> JsonObject:
    """Return a case with another reference; a dataset has expectations only for the last turn."""
    if changes[-1].answer is None:
        return case
    old = case.get("reference")
    inner = old if isinstance(old, dict) and old.keys() & {"role", "parts"} else (old or {}).get("response")
    answer = _answer(inner, changes[-1].answer, chat=False)
    return {**case, "reference": answer if inner is old and old is not None else {**(old or {}), "response": answer}}


def _make_for_legacy_list(cases: Sequence[JsonObject], case: JsonObject) -> JsonObject:
    """Return a case for a list in ADK's older schema."""
    if cases and not any("data" in other for other in cases):
        raise NotEditable("the file is one conversation, a list of turns: name another file for this case")
    data = []
    for turn in case["conversation"]:
        calls = [FunctionCall(**call) for call in turn["intermediate_data"]["tool_uses"]]
        made = {"query": _text(turn["user_content"]), "expected_tool_use": [_legacy_call(call) for call in calls]}
        data.append({**made, **({"reference": _text(turn["final_response"])} if turn.get("final_response") else {})})
    session = case.get("session_input")
    return {"name": case["eval_id"], "data": data, **({"initial_session": session} if session else {})}


def _change_in_legacy_list(case: JsonObject, changes: Sequence[ExpectedTurn]) -> JsonObject:
    return {**case, "data": list(map(_changed_legacy_turn, case["data"], changes))}


def _changed_legacy_turn(turn: JsonObject, change: ExpectedTurn) -> JsonObject:
    made = dict(turn)
    if change.calls is not None:
        known = [
            (item, FunctionCall(name=item.get("tool_name"), args=item.get("tool_input") or None))
            for item in made.get("expected_tool_use") or ()
        ]
        made["expected_tool_use"] = _kept_or_new(known, change.calls, _legacy_call)
    if change.answer is not None:
        made["reference"] = change.answer
    return made


def _legacy_call(call: FunctionCall) -> JsonObject:
    return {"tool_name": call.name or "", "tool_input": call.args or {}}


def _changed_turn(turn: JsonObject, change: ExpectedTurn, *, camel: bool) -> JsonObject:
    made, chat = dict(turn), _is_chat(_get(turn, "user_content"))
    if change.calls is not None:
        if "tools" in turn or (chat and _get(turn, "intermediate_data") is None):
            tools = [item for item in turn.get("tools") or () if isinstance(item, dict)]
            known = [(item, _call(item, item.get("arguments", item.get("args")))) for item in tools]
            made["tools"] = _kept_or_new(known, change.calls, _chat_call)
        else:
            key = _key(turn, "intermediate_data", camel=camel)
            made[key] = _changed_data(turn.get(key) or {}, change.calls, camel=camel)
    if change.answer is not None:
        key = _key(turn, "final_response", camel=camel)
        made[key] = _answer(turn.get(key), change.answer, chat=chat)
    return made


def _changed_data(data: JsonObject, calls: Sequence[FunctionCall], *, camel: bool) -> JsonObject:
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


_TEXTS_ALONE: Final = "this file's format holds texts alone, and a message of the conversation is more than text"


def _text(content: Any, why_not: str = _TEXTS_ALONE) -> str:
    """Return a message's text. Raises NotEditable if it has other parts."""
    parts = content.get("parts") or []
    if not all(isinstance(part, dict) and "text" in part for part in parts):
        raise NotEditable(why_not)
    return "\n".join(part["text"] for part in parts)


def _get(value: Mapping[str, Any], name: str) -> Any:
    return value.get(name, value.get(to_camel(name)))


def _key(value: Mapping[str, Any], name: str, *, camel: bool = False) -> str:
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


_Make = Callable[[Sequence[JsonObject], JsonObject], JsonObject]
_Change = Callable[[JsonObject, Sequence[ExpectedTurn]], JsonObject]

JSON_FORMATS: Final[Mapping[str, tuple[_Make, _Change]]] = {
    **dict.fromkeys(("adk", "adk_rust", "trpc"), (_make_for_eval_set, _change_in_eval_set)),
    "agents_cli": (_make_for_dataset, _change_in_dataset),
    "adk_legacy": (_make_for_legacy_list, _change_in_legacy_list),
}
"""For each JSON format, the functions that make a case for a file's cases, and that change a case's expectations."""


class JsonEditor:
    """Edits a JSON file in one of ``JSON_FORMATS``; ``text`` applies the edits."""

    def __init__(self, form: str, text: str) -> None:
        self._make, self._change = JSON_FORMATS[form]
        self._before, self._value = text, json.loads(text)
        self._key = "" if isinstance(self._value, list) else _key(self._value, "eval_cases")
        self._cases = list((self._value.get(self._key) or ()) if self._key else self._value)

    def add(self, case: JsonObject) -> None:
        """Add a case. Raises NotEditable."""
        self._cases.append(self._make(self._cases, case))

    def replace(self, index: int, _: EvalCase, changes: Sequence[ExpectedTurn]) -> None:
        """Change a case's expectations: what is None in a turn stays. Raises NotEditable."""
        if not self._key and not any("data" in item for item in self._cases):  # the list is one conversation
            self._cases = list(map(_changed_legacy_turn, self._cases, changes))
        else:
            self._cases[index] = self._change(self._cases[index], changes)

    def text(self) -> str:
        """Return the edited file."""
        return edit_json(self._before, {**self._value, self._key: self._cases} if self._key else self._cases)


_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")


class RowEditor:
    """Edits a table with the contents ``text``. ``roles``: columns by what they hold."""

    def __init__(self, table: Table, text: str, roles: Mapping[str, str]) -> None:
        self._table, self._text, self._roles = table, text, roles
        self._delimiter = table.delimiter(re.split(r"[\r\n]", text, maxsplit=1)[0])
        self._lines = [found.start() for found in _LINE.finditer(text)]
        self._splices: list[tuple[int, int, str]] = []

    def add(self, case: JsonObject) -> None:
        """Add a case after the last row. Raises NotEditable if a row cannot hold it."""
        text, turn = self._text, case["conversation"][0]
        if (turns := len(case["conversation"])) > 1:
            raise NotEditable(
                f"a row of a table holds one message, and this conversation has {turns}: name a JSON file"
            )
        why_not = "a row of a table holds a text, and the message is more than text: name a JSON file"
        state = (case.get("session_input") or {}).get("state")
        given = {
            "id": case["eval_id"],
            "prompt": _text(turn["user_content"], why_not),
            "reference": _text(turn.get("final_response") or {}),
            "expected_tools": turn["intermediate_data"]["tool_uses"],
            "state": state,
        }
        if state and "state" not in self._roles:
            raise NotEditable("the table has no column for the state that this conversation begins with")
        cells = {name: given[role] for role, name in self._roles.items() if given.get(role) not in (None, "")}
        if self._table.is_csv:
            if missing := [name for name in cells if name not in self._table.columns]:
                raise NotEditable(f"the column {missing[0]} is inside another one: add the row by hand")
            written = self._delimiter.join(self._cell(cells.get(name, "")) for name in self._table.columns)
        else:
            first = json.loads(next(line for line in text.split("\n") if line.strip()))
            row: JsonObject = {}
            for name, value in cells.items():
                _set(row, name, value)
            row = row if row_values(first) is first else {"item": row}
            written = json.dumps(row, ensure_ascii=text.isascii() and "\\u" in text)
        line_end = "\r\n" if "\r\n" in text else "\n"
        self._text += written + line_end if text.endswith(("\n", "\r")) else line_end + written

    def replace(self, _: int, case: EvalCase, changes: Sequence[ExpectedTurn]) -> None:
        """Change the expectations of a row's case: what is None stays. Raises NotEditable."""
        last, cells = changes[-1], JsonObject()
        if last.answer is not None:
            cells[_column(self._roles, "reference")] = last.answer
        if last.calls is not None:
            cells[_column(self._roles, "expected_tools")] = [call_value(call) for call in last.calls]
        start = self._lines[(case.line or 1) - 1]
        if self._table.is_csv:
            self._splices += self._changed_cells(start, cells)
            return
        end = next((line for line in self._lines if line > start), len(self._text))
        body = self._text[start:end].rstrip("\r\n")
        row = json.loads(body)
        for name, value in cells.items():
            _set(row_values(row), name, value)
        self._splices.append((start, start + len(body), edit_json(body, row)))

    def text(self) -> str:
        """Return the edited table."""
        text = self._text
        for begin, end, written in sorted(self._splices, reverse=True):
            text = text[:begin] + written + text[end:]
        return text

    def _changed_cells(self, start: int, changes: JsonObject) -> list[tuple[int, int, str]]:
        cell = re.compile(rf'(?:"((?:[^"]|"")*)"|([^{re.escape(self._delimiter)}\r\n]*))')
        splices, offset = [], start
        for column in self._table.columns:
            found = cell.match(self._text, offset)
            if found is None:
                raise NotEditable("the row cannot be taken apart: edit it by hand")
            if column in changes:
                old, value = found.group(1) or found.group(2) or "", changes[column]
                if isinstance(value, str) and old[:1] in {"{", "["}:
                    raise NotEditable(f"{column} is more than a text in this row: edit it by hand")
                splices.append((found.start(), found.end(), self._cell(value, quoted=found.group(1) is not None)))
            offset = found.end() + len(self._delimiter)
        if len(splices) < len(changes):
            raise NotEditable("the expectation is inside another column: edit it by hand")
        return splices

    def _cell(self, value: Any, *, quoted: bool = False) -> str:
        written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if quoted:
            return '"' + written.replace('"', '""') + '"'
        line = io.StringIO()
        csv.writer(line, delimiter=self._delimiter, lineterminator="").writerow([written, ""])
        return line.getvalue().removesuffix(self._delimiter)


def _column(roles: Mapping[str, str], role: str) -> str:
    if role not in roles:
        raise NotEditable(f"the table has no column for the {role.replace('_', ' ')}")
    return roles[role]


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


def edit_json(text: str, value: Any) -> str:
    """Return ``text`` with the fewest edits that turn it into ``value``; keeps key order and line ends."""
    editor = _JsonText(text)
    old, end = json.JSONDecoder().raw_decode(text, editor.start)
    return text[: editor.start] + editor.changed(editor.start, end, old, value, flat=False) + text[end:]


_Piece = tuple[int, str]
"""A member's text, and where it stood; -1 for a new one."""


class _JsonText:
    """Writes values in the style of ``text``. ``indent``: of one level; None if the text is on one line."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.start = start = skip_space(text, 0)
        found = list(members(text, start))
        lead = text[start : found[0].start] if found else ""
        self.indent = (lead.rpartition("\n")[2] or "  ") if "\n" in lead else None
        self.line_end = "\r\n" if "\r\n" in text else "\n"
        self.comma = text[found[0].end : found[1].start] if self.indent is None and len(found) > 1 else ", "
        self.ascii = text.isascii() and bool(_ESCAPED.search(text))
        first = next(iter(found), None)
        while first is not None and first.key == 0:  # the outermost object may be nested in lists
            first = next(members(text, first.value), None)
        self.colon = text[json.JSONDecoder().raw_decode(text, first.start)[1] : first.value] if first else ": "

    def write(self, value: Any, indentation: str, *, flat: bool) -> str:
        """Return a value in this style, for a line that begins with ``indentation``."""
        separators = (self.comma if flat else ",", self.colon)
        indent = None if flat else self.indent
        written = json.dumps(value, indent=indent, ensure_ascii=self.ascii, separators=separators)
        return written if indent is None else written.replace("\n", self.line_end + indentation)

    def changed(self, start: int, end: int, old: Any, new: Any, *, flat: bool) -> str:
        """Return the text of the value between two offsets, changed to ``new``. ``flat``: written on one line."""
        if same_json(old, new):
            return self.text[start:end]
        is_object, is_list = (isinstance(old, kind) and isinstance(new, kind) for kind in (dict, list))
        outer = self._indentation(start)
        if not is_object and not is_list:
            return self.write(new, outer, flat=flat)
        if not new:
            return self.text[start] + self.text[end - 1]
        places = list(members(self.text, start))
        if not places:
            flat, indentation = self.indent is None, outer + (self.indent or "")
            lead, trail = ("", "") if flat else (self.line_end + indentation, self.line_end + outer)
        else:
            lead, trail = self.text[start + 1 : places[0].start], self.text[places[-1].end : end - 1]
            flat, indentation = "\n" not in lead, lead.rpartition("\n")[2]
        edit = self._object if is_object else self._list
        pieces = edit(places, old, new, indentation, flat=flat)
        gap = self.comma if flat else "," + lead
        if len(places) > 1:
            gap = self.text[places[0].end : places[1].start]
        between = {(a.start, b.start): self.text[a.end : b.start] for a, b in pairwise(places)}
        joined = pieces[0][1]
        for (before, _), (after, written) in pairwise(pieces):
            joined += between.get((before, after), gap) + written
        return self.text[start] + lead + joined + trail + self.text[end - 1]

    def _object(self, places: list[Member], old: Any, new: Any, indentation: str, *, flat: bool) -> list[_Piece]:
        remaining = [member for member in places if member.key in new]
        last = {member.key: number for number, member in enumerate(remaining)}
        pieces: list[_Piece] = []
        for number, member in enumerate(remaining):  # of duplicate keys the last one counts
            value = self.text[member.value : member.end]
            if last[member.key] == number:
                value = self.changed(member.value, member.end, old[member.key], new[member.key], flat=flat)
            pieces.append((member.start, self.text[member.start : member.value] + value))
        order = [member.key for member in remaining]
        before: str | int = -1
        for key, value in new.items():
            if key not in old:
                place = len(order) - order[::-1].index(before) if before in order else 0
                written = json.dumps(key, ensure_ascii=self.ascii) + self.colon
                pieces.insert(place, (-1, written + self.write(value, indentation, flat=flat)))
                order.insert(place, key)
            before = key
        return pieces

    def _list(self, places: list[Member], old: Any, new: Any, indentation: str, *, flat: bool) -> list[_Piece]:
        """Keep equal items at the end, pair old and new items from the beginning, and edit each pair."""
        tail, shorter = 0, min(len(old), len(new))
        while tail < shorter and same_json(old[-1 - tail], new[-1 - tail]):
            tail += 1
        flat_items = flat or (bool(places) and not any("\n" in self.text[item.value : item.end] for item in places))
        pieces: list[_Piece] = []
        for number, value in enumerate(new):
            at = number if number < shorter - tail else number - len(new) + len(old)
            if shorter - tail <= number < len(new) - tail:
                pieces.append((-1, self.write(value, indentation, flat=flat_items)))
            else:
                place = places[at]
                pieces.append((place.start, self.changed(place.value, place.end, old[at], value, flat=flat)))
        return pieces

    def _indentation(self, offset: int) -> str:
        line = self.text.rfind("\n", 0, offset) + 1
        found = _LINE_START.match(self.text, line)
        return found.group() if found else ""


def same_json(first: Any, second: Any) -> bool:
    """Return whether two JSON values are equal: 1, 1.0 and true differ, key order is ignored."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same_json(item, second[key]) for key, item in first.items())
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(same_json, first, second))
    return type(first) is type(second) and first == second
