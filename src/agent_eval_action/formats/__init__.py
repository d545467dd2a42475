"""Eval files to EvalSet, with line numbers. A format is one file and one line of ``FORMATS``."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from agent_eval_action.diagnostics.reader import Source, shorten
from agent_eval_action.errors import EvalFileError
from agent_eval_action.formats.adk import ADK
from agent_eval_action.formats.adk_legacy import ADK_LEGACY
from agent_eval_action.formats.adk_scenarios import ADK_SCENARIOS
from agent_eval_action.formats.base import Findings, Format, LoadedEvalFile, Reading, in_file_order, recognise_foreign
from agent_eval_action.formats.digest import case_digest
from agent_eval_action.formats.selectors import Selector, match_cases, parse_selector, select_cases
from agent_eval_action.formats.session_file import read_session_file
from agent_eval_action.registry import Registry
from agent_eval_action.results.evalset import EvalSet, JsonObject

FORMATS: Final[Registry[Format]] = Registry(
    "agent_eval.formats",
    "format of eval files",
    {"adk": ADK, "adk_scenarios": ADK_SCENARIOS, "adk_legacy": ADK_LEGACY},
    lambda _, entry: "" if isinstance(entry, Format) else "it is no agent_eval_action.formats.base.Format",
)
"""Asked in this order, those of packages last; the first that recognises the shape reads the file."""

_SUFFIXES: Final = (".test.json", ".evalset.json", ".json", ".yaml", ".yml")

__all__ = [
    "FORMATS",
    "Format",
    "LoadedEvalFile",
    "Selector",
    "case_digest",
    "dump_eval_set",
    "load_eval_file",
    "match_cases",
    "parse_selector",
    "select_cases",
]


def load_eval_file(path: Path, *, workspace: Path, session_file: Path | None = None) -> LoadedEvalFile:
    """Read one eval file of any known format.

    ``session_file`` gives app, user and state to a file of the older list schema and to a list of scenarios.
    Raises EvalFileError with all problems of the file.
    """
    with _collector_paused():
        return _load(path, workspace, session_file)


def _load(path: Path, workspace: Path, session_file: Path | None) -> LoadedEvalFile:
    source = Source.read(path, workspace=workspace, error=EvalFileError)
    findings = Findings(source, warnings=list(source.warnings))
    session, session_warnings = read_session_file(session_file, workspace) if session_file else (None, [])
    chosen = _recognise(source.value, findings)
    findings.raise_errors()
    eval_set = chosen.read(Reading(source.value, findings, _name(path, workspace), session))
    findings.raise_errors()
    if eval_set is None:
        raise AssertionError(f"{chosen.name} gave neither a set nor an error")
    if not eval_set.eval_cases:
        findings.warn((), "this eval set holds no cases: nothing to measure")
    warnings = (*sorted(findings.warnings, key=in_file_order), *session_warnings)
    return LoadedEvalFile(eval_set.from_path(path), chosen.name, warnings)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Loading makes hundreds of thousands of objects and no cycles; walking them is 70 % of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def dump_eval_set(eval_set: EvalSet) -> JsonObject:
    """The set as JSON values in the current schema, snake_case; reading them again gives an equal set."""
    dumped: JsonObject = _lists(eval_set.model_dump())
    return dumped


def _recognise(value: Any, findings: Findings) -> Format:
    foreign = recognise_foreign(value)
    known = next((one for one in FORMATS.builtin.values() if one.recognises(value)), None)
    if known is not None and not foreign:
        return known
    packaged = (FORMATS[name] for name in FORMATS if name not in FORMATS.builtin)
    if (found := next((one for one in packaged if one.recognises(value)), None)) is not None:
        return found
    if foreign:
        name, hint = foreign
        findings.error((), f"this is {name}, which is not read", hint=hint)
    else:
        hint = 'an eval file is `{"eval_set_id": ..., "eval_cases": [...]}`, or a list of turns'
        findings.error((), "this is no eval file", value=shorten(value), hint=hint)
    return known or ADK


def _name(path: Path, workspace: Path) -> str:
    relative = Path(os.path.relpath(os.path.realpath(path.parent), os.path.realpath(workspace)), path.name)
    name = relative.as_posix()
    return next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)), name)


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value
