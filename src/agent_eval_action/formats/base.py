"""What a format is, and the collector of everything wrong in one file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel

from agent_eval_action.errors import EvalFileError, Problem
from agent_eval_action.model.evalset import EvalSet, JsonObject
from agent_eval_action.source import JsonPath, Source, plural

MAX_PROBLEMS = 100  # of one file; ten thousand copies of one mistake help nobody


@dataclass
class Findings:
    """Problems of one file as they are found. ``value`` may be spelled anew by the reader; places are not."""

    source: Source
    errors: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    unshown: int = 0

    def error(self, json_path: JsonPath, message: str, *, value: str | None = None, hint: str | None = None) -> None:
        """Something that ends in a refusal."""
        if len(self.errors) >= MAX_PROBLEMS:
            self.unshown += 1
            return
        self.errors.append(self.source.problem(self._as_written(json_path), message, value=value, hint=hint))

    def warn(self, json_path: JsonPath, message: str, *, value: str | None = None, hint: str | None = None) -> None:
        """Something that is read and still looks wrong."""
        if len(self.warnings) < MAX_PROBLEMS:
            at = self._as_written(json_path)
            self.warnings.append(self.source.problem(at, message, value=value, hint=hint, severity="warning"))

    def raise_errors(self) -> None:
        """All errors of the file at once, in file order."""
        if not self.errors:
            return
        self.errors.sort(key=in_file_order)
        count = len(self.errors) + self.unshown
        more = f"and {plural(self.unshown, 'more problem')} in this file" if self.unshown else None
        where = Problem(self.source.path, "").where
        raise EvalFileError(f"{where} is refused: {plural(count, 'problem')}", more, tuple(self.errors))

    def _as_written(self, json_path: JsonPath) -> JsonPath:
        """The path with each key as the file spells it (readers rename camelCase keys)."""
        written: JsonPath = ()
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
