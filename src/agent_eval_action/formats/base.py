"""What a format is, and the collector of everything wrong in one file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel

from agent_eval_action.diagnostics.reader import JsonPath, Source, plural
from agent_eval_action.diagnostics.suggestions import recognise_foreign_criteria
from agent_eval_action.errors import EvalFileError, Problem
from agent_eval_action.results.evalset import EvalSet, JsonObject

MAX_PROBLEMS = 50  # of one file; ten thousand copies of one mistake help nobody


@dataclass
class Findings:
    """Problems of one file as they are found. ``value`` may be spelled anew by the reader; places are not.

    ``first_case``: the index of the case that is the first of those being validated.
    """

    source: Source
    errors: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    first_case: int = 0

    def error(self, json_path: JsonPath, message: str, *, value: str | None = None, hint: str | None = None) -> None:
        """Something that ends in a refusal; beyond the most that is shown, at once."""
        if len(self.errors) >= MAX_PROBLEMS:
            self.raise_errors(more=True)
        self.errors.append(self.source.problem(self._as_written(json_path), message, value=value, hint=hint))

    def warn(self, json_path: JsonPath, message: str, *, value: str | None = None, hint: str | None = None) -> None:
        """Something that is read and still looks wrong."""
        if len(self.warnings) < MAX_PROBLEMS:
            at = self._as_written(json_path)
            self.warnings.append(self.source.problem(at, message, value=value, hint=hint, severity="warning"))

    def raise_errors(self, *, more: bool = False) -> None:
        """All errors of the file at once, in file order. ``more``: there are others, which are not looked for."""
        if not self.errors:
            return
        self.errors.sort(key=in_file_order)
        count = f"{'more than ' if more else ''}{plural(len(self.errors), 'problem')}"
        hint = "the file was checked no further: correct these first" if more else None
        where = Problem(self.source.path, "").where
        raise EvalFileError(f"{where} is refused: {count}", hint, tuple(self.errors))

    def _as_written(self, json_path: JsonPath) -> JsonPath:
        """The path with each key as the file spells it (readers rename camelCase keys)."""
        written: JsonPath = ()
        if self.first_case and len(json_path) > 1 and json_path[0] == "eval_cases" and isinstance(json_path[1], int):
            json_path = ("eval_cases", json_path[1] + self.first_case, *json_path[2:])
        for step in json_path:
            camel = (*written, to_camel(step)) if isinstance(step, str) else None
            if camel and self.source.line((*written, step)) is None and self.source.line(camel) is not None:
                written = camel
            else:
                written = (*written, step)
        return written


def in_file_order(problem: Problem) -> tuple[int, str]:
    """Sort key of problems."""
    return problem.line or 0, problem.json_path or ""


@dataclass(frozen=True)
class Reading:
    """One file being read: its value, where problems go, and what the file does not say itself.

    ``name`` is the file's path in the workspace without its suffix, the id of sets that have none;
    ``session`` is the content of an initial-session file.
    """

    value: Any
    findings: Findings
    name: str
    session: JsonObject | None = None
    session_path: Path | None = None


@dataclass(frozen=True)
class Format:
    """A schema of eval files: how it is recognised by shape, and read. ``read`` returns None after errors."""

    name: str
    recognises: Callable[[Any], bool]
    read: Callable[[Reading], EvalSet | None]


@dataclass(frozen=True)
class LoadedEvalFile:
    """An eval file that was understood. A set without cases loads: who runs it says there is nothing to measure."""

    eval_set: EvalSet
    format: str
    warnings: tuple[Problem, ...] = ()


AGENTS_CLI = "an agents-cli evaluation dataset"
TRPC_GO = "a trpc-agent-go eval set (chat messages, not parts)"


def recognise_foreign(value: Any) -> tuple[str, str] | None:
    """What the value is and what to do, or None. Claims nothing that google-adk loads."""
    if foreign := recognise_foreign_criteria(value):
        return foreign[0], "name an eval file; criteria are written in test_config.json"
    if not isinstance(value, dict):
        return None
    cases = value.get("eval_cases", value.get("evalCases"))
    first = next((case for case in cases if isinstance(case, dict)), {}) if isinstance(cases, list) else {}
    if first.keys() & {"eval_case_id", "prompt", "agent_data"} and not first.keys() & {"eval_id", "evalId"}:
        return AGENTS_CLI, "write it as an ADK eval set: `eval_id` and `conversation` in each case"
    if "evalCases" in value and _speaks_chat(first):
        return TRPC_GO, 'write it as an ADK eval set: snake_case at the top, `"parts": [{"text": ...}]` for messages'
    return None if cases is not None else _without_cases(value)


def _speaks_chat(case: dict[str, Any]) -> bool:
    turns = [*(case.get("conversation") or ()), *(case.get("actualConversation") or ())]
    for turn in turns:
        user = turn.get("userContent") if isinstance(turn, dict) else None
        if isinstance(user, dict) and "content" in user:
            return True
    return False


def _without_cases(value: dict[str, Any]) -> tuple[str, str] | None:
    keys = value.keys()
    wrap = 'wrap it: `{"eval_set_id": "...", "eval_cases": [ ... ]}`'
    known = (
        ({"eval_case_id"}, "one case of an agents-cli dataset", "write it as a case of an ADK eval set"),
        ({"eval_id"}, "one eval case without its set", wrap),
        ({"evalId"}, "one eval case without its set", wrap),
        ({"conversation"}, "a conversation without its case and set", wrap + ", and give the case an `eval_id`"),
        ({"query"}, "one turn of the older list schema", "put it into a list: `[ ... ]`"),
        ({"input", "expected"}, "an adk-rust prompt-optimizer case", "write it as a case of an ADK eval set"),
        ({"test_cases"}, "a list of test cases in no schema of ADK", "write it as an ADK eval set"),
        ({"criteria"}, "a criteria file, not an eval file", "name it test_config.json, beside the eval files"),
        ({"metrics"}, "a metrics file, not an eval file", "criteria are written in test_config.json"),
        ({"state"}, "an initial session, not an eval file", "it goes with a list of turns, as its session file"),
        ({"events"}, "a recorded run, not an eval file", "write its turns as an ADK eval set"),
    )
    return next(((name, hint) for needed, name, hint in known if needed <= keys), None)
