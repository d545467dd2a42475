"""Read eval files into EvalSets with line numbers. Each format is a module and an entry of ``FORMATS``."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Final

from agent_eval_action.diagnostics.foreign_files import recognise_eval_file
from agent_eval_action.diagnostics.reader import YAML_SUFFIXES, Source, read_text, shorten
from agent_eval_action.diagnostics.tables import TABLE_SUFFIXES, JsonRows, Table, is_table
from agent_eval_action.errors import EvalFileError
from agent_eval_action.formats.adk import ADK, ADK_SCENARIOS, read_plain
from agent_eval_action.formats.adk_legacy import ADK_LEGACY, read_session_file
from agent_eval_action.formats.adk_rust import ADK_RUST
from agent_eval_action.formats.adk_sessions import ADK_CONFORMANCE, ADK_SESSION
from agent_eval_action.formats.agents_cli import AGENTS_CLI
from agent_eval_action.formats.base import Format, LoadedEvalFile, Reading, in_file_order
from agent_eval_action.formats.selectors import Selector, match_cases, parse_selector, select_cases
from agent_eval_action.formats.tables import TABLE, holds_rows
from agent_eval_action.formats.trpc import TRPC
from agent_eval_action.registry import Registry
from agent_eval_action.results.base import Frozen
from agent_eval_action.results.evalset import CONFORMANCE_SPEC, EVAL_SUFFIXES, ColumnMapping, EvalCase
from agent_eval_action.results.run_result import collector_paused

FORMATS: Final[Registry[Format]] = Registry(
    "agent_eval.formats",
    "format of eval files",
    {
        "agents_cli": AGENTS_CLI,
        "adk_rust": ADK_RUST,
        "trpc": TRPC,
        "adk": ADK,
        "adk_scenarios": ADK_SCENARIOS,
        "adk_legacy": ADK_LEGACY,
        "adk_session": ADK_SESSION,
        "adk_conformance": ADK_CONFORMANCE,
        "table": TABLE,
    },
    lambda _, entry: "" if isinstance(entry, Format) else "it is no agent_eval_action.formats.base.Format",
)
"""Tried in this order, formats from packages last; the first that recognises the shape reads the file."""

# Names and traces of a recording. Calls are compared without ids, and roles follow from the structure.
_LEFT_OUT: Final = frozenset(
    {
        *("eval_id", "invocation_id", "creation_timestamp", "id", "role"),
        *("duration", "model_duration", "tool_duration", "spans", "inner_events", "app_details"),
        *("usage_metadata", "grounding_metadata", "model_version", "thought_signature"),
    }
)
_FREE: Final = frozenset(
    {"args", "response", "state", "state_delta", "final_session_state", "part_metadata", "metric_fields"}
)
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})
_OBJECTS: Final = (Frozen, dict)
_LISTS: Final = (list, tuple)

__all__ = [
    "FORMATS",
    "Format",
    "LoadedEvalFile",
    "Selector",
    "case_digest",
    "load_eval_file",
    "match_cases",
    "parse_selector",
    "select_cases",
]


@collector_paused(freeze=True)
def load_eval_file(
    path: Path, *, workspace: Path, session_file: Path | None = None, columns: ColumnMapping | None = None
) -> LoadedEvalFile:
    """Read an eval file of any known format. Raises EvalFileError with all problems of the file.

    ``session_file``: app, user and state for a file of the older list schema or a list of scenarios.
    ``columns``: what the columns of a table contain.
    """
    if is_table(path):
        source = Table(path, workspace).source()
    else:
        text = read_text(path, workspace=workspace, error=EvalFileError)
        is_json = path.suffix.lower() not in YAML_SUFFIXES
        if is_json and session_file is None and (plain := read_plain(text)) is not None:
            return LoadedEvalFile(plain, ADK.name)
        source = Source.parse(text, path=path, error=EvalFileError)
        if holds_rows(source.value) or (columns and isinstance(source.value, list)):
            source = JsonRows.of_list(source)
    session, session_warnings = read_session_file(session_file, workspace) if session_file else (None, [])
    reading = Reading(source, _name(path, workspace), session, columns, workspace, warnings=list(source.warnings))
    chosen = _recognise(reading)
    reading.raise_errors()
    eval_set = chosen.read(reading)
    reading.raise_errors()
    if eval_set is None:
        raise AssertionError(f"{chosen.name} gave neither a set nor an error")
    lists_files = isinstance(source.value, dict) and bool(source.value.get("test_files"))
    if not eval_set.eval_cases and not lists_files:
        reading.warn((), "this eval set holds no cases: nothing to measure")
    warnings = (*sorted(reading.warnings, key=in_file_order), *session_warnings)
    return LoadedEvalFile(eval_set, chosen.name, warnings)


def _recognise(reading: Reading) -> Format:
    """The format of the file; after an error, any format."""
    foreign = recognise_eval_file(reading.value)
    known = next((form for form in map(FORMATS.__getitem__, FORMATS.builtin) if form.recognises(reading.value)), None)
    if known is not None and not foreign:
        return known
    packaged = (FORMATS[name] for name in FORMATS if name not in FORMATS.builtin)
    if (found := next((form for form in packaged if form.recognises(reading.value)), None)) is not None:
        return found
    if foreign:
        reading.error((), f"this is {foreign.name}, which is not read", hint=foreign.hint)
    else:
        hint = 'an eval file is `{"eval_set_id": ..., "eval_cases": [...]}`, or a list of turns'
        reading.error((), "this is no eval file", value=shorten(reading.value), hint=hint)
    return known or ADK


def _name(path: Path, workspace: Path) -> str:
    folder = os.path.relpath(os.path.realpath(path.parent), os.path.realpath(workspace))
    name = Path(folder, path.name).as_posix()
    if path.name == CONFORMANCE_SPEC:
        return folder
    suffixes = (*EVAL_SUFFIXES, ".json", *YAML_SUFFIXES, *TABLE_SUFFIXES)
    return next((name.removesuffix(suffix) for suffix in suffixes if name.endswith(suffix)), name)


def case_digest(case: EvalCase) -> str:
    """Digest of a case in 16 hex digits. Ignores key order and spelling, ids, times, unknown keys and empty values."""
    session = case.session_input
    fields = {name: getattr(case, name) for name in type(case).model_fields}
    if session is not None:  # renaming the agent does not change the case
        fields["session_input"] = {name: item for name, item in _members(session).items() if name != "app_name"}
    return hashlib.sha256(_encoded(_canonical(fields)).encode()).hexdigest()[:16]


_encoded = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def _members(value: Frozen) -> dict[str, Any]:
    return value.__dict__ | extra if (extra := value.model_extra) else value.__dict__


def _canonical(value: Any, free: bool = False) -> Any:
    """Remove ignored and empty values at every depth, except inside ``free`` objects.

    Whole floats become integers: other JSON tools do not distinguish 1.0 and 1.
    """
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, _OBJECTS):
        members = value if isinstance(value, dict) else _members(value)
        if free:
            return {key: _canonical(item, True) for key, item in members.items()}
        pruned = {}
        for key, item in members.items():
            if item is not None and key not in _LEFT_OUT:
                canonical = _canonical(item, key in _FREE)
                if canonical or canonical not in _EMPTY:
                    pruned[key] = canonical
        return pruned
    if isinstance(value, _LISTS):
        items = [_canonical(item, free) for item in value]
        return items if free else [item for item in items if item or item not in _EMPTY]
    return int(value) if isinstance(value, float) and value.is_integer() else value
