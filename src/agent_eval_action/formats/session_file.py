"""Initial sessions: ``{id?, app_name, user_id, state, events...}``, in a file of their own or within a case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel

from agent_eval_action.diagnostics.reader import JsonPath, Source, shorten
from agent_eval_action.errors import EvalFileError, Problem
from agent_eval_action.formats.base import Findings
from agent_eval_action.results.evalset import JsonObject


def read_session_file(path: Path, workspace: Path) -> tuple[JsonObject | None, list[Problem]]:
    """App, user and state for the cases of a test file, and warnings; None when the file says nothing."""
    source = Source.read(path, workspace=workspace, error=EvalFileError)
    findings = Findings(source, warnings=list(source.warnings))
    session = initial_session(source.value, (), findings) if source.value != {} else None
    findings.raise_errors()
    if not (session and session["state"]):
        hint = "the state is read from the key `state`; recorded events are not"
        findings.warn((), "this initial-session file holds no state", hint=hint)
    return session, findings.warnings


def initial_session(value: Any, at: JsonPath, findings: Findings) -> JsonObject | None:
    """The three keys that count; the rest of a recorded session (events, artifacts) is left alone, as in ADK."""
    if not isinstance(value, dict):
        findings.error(at, "must be an object: {app_name, user_id, state}", value=shorten(value))
        return None
    session: JsonObject = {}
    for key, empty, kind in (("app_name", "", "a string"), ("user_id", "", "a string"), ("state", {}, "an object")):
        item = value.get(key, value.get(to_camel(key)))
        if item is not None and not isinstance(item, type(empty)):
            findings.error((*at, key), f"must be {kind}", value=shorten(item))
            item = None
        session[key] = empty if item is None else item
    return session
