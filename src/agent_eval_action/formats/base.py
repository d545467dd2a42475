"""Base types of formats, and the state of reading an eval file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic.alias_generators import to_camel

from agent_eval_action.diagnostics.reader import JsonPath, Source, plural
from agent_eval_action.errors import EvalFileError, Problem
from agent_eval_action.results.evalset import ColumnMapping, EvalSet, JsonObject

MAX_PROBLEMS: Final = 50  # per file; thousands of copies of one mistake help nobody


@dataclass
class Reading:
    """An eval file that is being read, with the problems found so far.

    ``name``: the file's path in the workspace without suffix; used as the id of sets without one. ``session``: the
    content of an initial-session file. ``columns``: what the columns of a table contain. ``workspace``: the folder that
    must contain related files; None: anywhere. ``first_case``: the index of the first case being validated.
    """

    source: Source
    name: str = ""
    session: JsonObject | None = None
    columns: ColumnMapping | None = None
    workspace: Path | None = None
    first_case: int = 0
    errors: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    @property
    def value(self) -> Any:
        """The file's value. Formats may rename its keys; problems still show them as written."""
        return self.source.value

    def error(self, json_path: JsonPath, message: str, *, value: str | None = None, hint: str | None = None) -> None:
        """Record an error at a path. Raises EvalFileError once there are more than MAX_PROBLEMS."""
        self.add_error(self.source.problem(self._as_written(json_path), message, value=value, hint=hint))

    def add_error(self, problem: Problem) -> None:
        """Record an error that has a location. Raises EvalFileError once there are more than MAX_PROBLEMS."""
        if len(self.errors) >= MAX_PROBLEMS:
            self.raise_errors(more=True)
        self.errors.append(problem)

    def warn(self, json_path: JsonPath, message: str, *, value: str | None = None, hint: str | None = None) -> None:
        """Record a warning about something readable that looks wrong."""
        if len(self.warnings) < MAX_PROBLEMS:
            at = self._as_written(json_path)
            self.warnings.append(self.source.problem(at, message, value=value, hint=hint, severity="warning"))

    def raise_errors(self, *, more: bool = False) -> None:
        """Raise EvalFileError with all errors, if any, in file order. ``more``: the rest was not checked."""
        if not self.errors:
            return
        self.errors.sort(key=in_file_order)
        hint = "the file was checked no further: correct these first" if more else None
        count = f"{'more than ' if more else ''}{plural(len(self.errors), 'problem')}"
        raise EvalFileError(f"{Problem(self.source.path, '').where} is refused: {count}", hint, tuple(self.errors))

    def _as_written(self, json_path: JsonPath) -> JsonPath:
        """The path with keys as spelled in the file, even if the format renamed camelCase keys."""
        if self.first_case and len(json_path) > 1 and json_path[0] == "eval_cases" and isinstance(json_path[1], int):
            json_path = ("eval_cases", json_path[1] + self.first_case, *json_path[2:])
        written: JsonPath = ()
        for step in json_path:
            spellings = (step, to_camel(step)) if isinstance(step, str) else ()
            found = (name for name in spellings if self.source.line((*written, name)) is not None)
            written = (*written, next(found, step))
        return written


def list_of(value: Any) -> list[Any]:
    """The value if it is a list, else an empty list; the wrong type is reported elsewhere."""
    return value if isinstance(value, list) else []


def objects_of(value: Any) -> Iterator[tuple[int, JsonObject]]:
    """The objects in a list, with their indices; nothing if the value is not a list."""
    return ((index, item) for index, item in enumerate(list_of(value)) if isinstance(item, dict))


def in_file_order(problem: Problem) -> tuple[int, str]:
    """Sort key that puts problems into file order."""
    return problem.line or 0, problem.json_path or ""


@dataclass(frozen=True)
class Format:
    """A schema of eval files. ``recognises`` checks only the shape; ``read`` returns None after errors."""

    name: str
    recognises: Callable[[Any], bool]
    read: Callable[[Reading], EvalSet | None]


@dataclass(frozen=True)
class LoadedEvalFile:
    """An eval file that was read without errors. Its set may have no cases."""

    eval_set: EvalSet
    format: str
    warnings: tuple[Problem, ...] = ()
