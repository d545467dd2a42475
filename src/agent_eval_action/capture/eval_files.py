"""Edits eval files: adds cases or replaces expectations, and keeps every other byte.

The new text is read back before it replaces the file: all other cases must still mean the same.
"""

from __future__ import annotations

import codecs
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent_eval_action.baseline.stores import replace_committed
from agent_eval_action.capture.case_editors import JSON_FORMATS, JsonEditor, NotEditable, RowEditor
from agent_eval_action.capture.cases import ExpectedTurn, expected_turns, same_turns
from agent_eval_action.config.discovery import DiscoveredSet
from agent_eval_action.diagnostics.reader import MAX_JSON_BYTES, YAML_SUFFIXES, read_bytes, refusal
from agent_eval_action.diagnostics.suggestions import clip, did_you_mean
from agent_eval_action.diagnostics.tables import Table
from agent_eval_action.errors import EvalFileError, OutputError, Problem, Unreadable, UsageError, writing
from agent_eval_action.folders import relative
from agent_eval_action.formats import LoadedEvalFile, case_digest, load_eval_file
from agent_eval_action.formats.base import Reading
from agent_eval_action.formats.tables import column_roles
from agent_eval_action.results.evalset import ColumnMapping, DatasetCase, EvalCase, JsonObject

_REFUSED: Final = {
    "adk_session": "a session is a recording: it is one case, which is made by recording it again",
    "adk_scenarios": "a list of scenarios has no expectations, and its cases no ids",
}


@dataclass(frozen=True, slots=True)
class EvalFile:
    """An eval file to edit. ``columns``: of a table, by role; ``session_file``: session input for older lists."""

    path: Path
    workspace: Path
    columns: ColumnMapping | None = None
    session_file: Path | None = None

    @classmethod
    def of_set(cls, found: DiscoveredSet, workspace: Path) -> EvalFile:
        """Return the file of a discovered set."""
        return cls(found.path, workspace, found.columns, found.session_file)

    def load(self) -> LoadedEvalFile:
        """Read the file. Raises EvalFileError."""
        return self._load(self.path, self.workspace)

    def _load(self, path: Path, workspace: Path) -> LoadedEvalFile:
        return load_eval_file(path, workspace=workspace, session_file=self.session_file, columns=self.columns)

    def add(self, cases: Iterable[JsonObject], *, force: bool = False) -> tuple[str, ...]:
        """Add cases in the schema of ADK's eval sets, creating the file if needed; return their ids.

        Raises UsageError for an id that is taken and, without ``force``, for a conversation that the file already has;
        EvalFileError if the file cannot be edited; OutputError if it cannot be written.
        """
        cases = list(cases)
        if not os.path.lexists(self.path):
            self.refuse_unless_extensible()
            self._refuse_taken((), cases, force=force)
            name = self.path.name.removesuffix(".json").removesuffix(".evalset").removesuffix(".test")
            value = {"eval_set_id": name, "name": name, "eval_cases": cases}
            self._replace_file(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
            return tuple(case["eval_id"] for case in cases)
        loaded = self.load()
        known = loaded.eval_set.eval_cases
        self._refuse_taken(known, cases, force=force)
        editor = self._editor(loaded)
        try:
            for case in cases:
                editor.add(case)
        except NotEditable as why:
            raise self._error(str(why)) from None
        added = range(len(known), len(known) + len(cases))
        return tuple(case.eval_id for case in self._write(editor.text(), known, dict.fromkeys(added))[len(known) :])

    def refuse_unless_extensible(self) -> None:
        """Raise an AgentEvalError if no case can be added or the file cannot be created. Call it before capturing."""
        if os.path.lexists(self.path):
            self._editor(self.load())
        elif not self.path.name.endswith(".json"):
            raise UsageError(f"there is no file {self._where}", hint="a new file is an eval set: NAME.evalset.json")
        folder = next(place for place in self.path.parents if place.exists())
        if not os.access(folder, os.W_OK):
            raise OutputError(f"{self._where} cannot be written: {relative(folder, self.workspace)} is read-only")

    def replace_expectations(self, case_id: str, turns: Sequence[ExpectedTurn]) -> None:
        """Replace a case's expectations.

        Raises UsageError if there is no such case, EvalFileError if it cannot be edited, and OutputError.
        """
        if refused := self.replace_many({case_id: turns}):
            raise self._error(f"case {clip(case_id, 200)}: {refused[case_id]}")

    def replace_many(self, wanted: Mapping[str, Sequence[ExpectedTurn]]) -> dict[str, str]:
        """Replace the expectations of cases by id. Returns, by id, why some cases were left unchanged.

        Raises UsageError if there is no such case, EvalFileError if the file cannot be edited, and OutputError.
        """
        loaded = self.load()
        editor = self._editor(loaded)
        places = {case.eval_id: index for index, case in enumerate(loaded.eval_set.eval_cases)}
        refused: dict[str, str] = {}
        changed: dict[int, Sequence[ExpectedTurn]] = {}
        for case_id, turns in wanted.items():
            if case_id not in places:
                message = f"{self._where} has no case {clip(case_id, 200)!r}"
                raise UsageError(message, hint=did_you_mean(case_id, places))
            case = loaded.eval_set.eval_cases[places[case_id]]
            expected = expected_turns(case)
            if same_turns(expected, turns):
                continue
            why_not = ""
            if case.conversation_scenario is not None:
                why_not = "its user is simulated, so it expects no fixed turns"
            elif isinstance(case, DatasetCase) and case.recorded and loaded.format != "agents_cli":
                why_not = "it is a recording, whose turns are scored as they stand"
            else:
                changes = [after.differing_from(before) for before, after in zip(expected, turns, strict=True)]
                try:
                    editor.replace(places[case_id], case, changes)
                except NotEditable as why:
                    why_not = str(why)
            if why_not:
                refused[case_id] = why_not
            else:
                changed[places[case_id]] = turns
        if changed:
            self._write(editor.text(), loaded.eval_set.eval_cases, changed)
        return refused

    @property
    def _where(self) -> str:
        return Problem(self.path, "").where

    def _error(self, why: str, line: int | None = None) -> EvalFileError:
        return EvalFileError(f"{self._where} is left as it is", problems=(Problem(self.path, why, line),))

    def _refuse_taken(self, there: Iterable[EvalCase], cases: Iterable[JsonObject], *, force: bool) -> None:
        known = list(there)
        for case in cases:
            read = EvalCase.model_validate({**case})
            if any(other.eval_id == read.eval_id for other in known):
                message = f"{self._where} has a case {clip(read.eval_id, 200)!r} already"
                raise UsageError(message, hint="give this one another name, or change that one: `agent-eval update`")
            if not force and (same := next((other for other in known if _inputs(other) == _inputs(read)), None)):
                message = f"case {clip(same.eval_id, 200)!r} of {self._where} has the same conversation already"
                raise UsageError(message, hint="--force adds it all the same")
            known.append(read)

    def _editor(self, loaded: LoadedEvalFile) -> JsonEditor | RowEditor:
        text = self._text()
        if loaded.format == "table":
            table = Table(self.path, self.workspace)
            reading = Reading(table.source(), columns=self.columns)
            return RowEditor(table, text, column_roles(table, reading) or {})
        if self.path.suffix.lower() in YAML_SUFFIXES:
            raise self._error("YAML is not edited, for its comments and its form would be lost: write it by hand")
        if loaded.format not in JSON_FORMATS:
            why = _REFUSED.get(loaded.format, f"the format {loaded.format} is not edited: write it by hand")
            raise self._error(why)
        return JsonEditor(loaded.format, text)

    def _text(self) -> str:
        """Read the file with its line ends, without its byte order mark."""
        try:
            data = read_bytes(self.path, self.workspace, MAX_JSON_BYTES)
        except Unreadable as unreadable:
            raise refusal(self.path, unreadable, EvalFileError) from None
        return data.removeprefix(codecs.BOM_UTF8).decode("utf-8")

    def _write(
        self, text: str, known: Sequence[EvalCase], changed: Mapping[int, Sequence[ExpectedTurn] | None]
    ) -> Sequence[EvalCase]:
        """Replace the file's text if all cases outside ``changed`` still mean the same; return its cases.

        ``changed``: by index, the new expectations of a case's turns; None for an added case.
        """
        with tempfile.TemporaryDirectory(prefix="agent-eval-") as folder:
            copy = Path(folder).resolve() / self.path.name
            copy.write_bytes(text.encode())
            read = self._load(copy, Path(copy.anchor)).eval_set.eval_cases
        before, after = (
            [case_digest(case) for index, case in enumerate(cases) if index not in changed] for cases in (known, read)
        )
        wanted = {index: turns for index, turns in changed.items() if turns is not None}
        meant = len(read) > max(changed) and before == after
        if not meant or not all(same_turns(expected_turns(read[index]), turns) for index, turns in wanted.items()):
            raise self._error("what is to be written would be read otherwise than it is meant: edit it by hand")
        with self.path.open("rb") as file:
            is_marked = file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8
        self._replace_file(("\ufeff" if is_marked else "") + text)
        return read

    def _replace_file(self, text: str) -> None:
        with writing(self._where):
            replace_committed(self.path, text, self.workspace)


def _inputs(case: EvalCase) -> str:
    """Return a key of what a case asks: user messages and initial state."""
    messages = [turn.user_content.model_dump(mode="json", exclude={"role"}, exclude_none=True) for turn in case.turns]
    history = [event.model_dump(mode="json") for event in case.history] if isinstance(case, DatasetCase) else []
    state = case.session_input.state if case.session_input else {}
    scenario = case.conversation_scenario.model_dump(mode="json") if case.conversation_scenario else None
    return json.dumps([messages, history, state, scenario], sort_keys=True, default=str)
