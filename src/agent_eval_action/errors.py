"""Every error a user sees, and the exit codes.

The tree (each leaf has one exit code)::

    AgentEvalError                 a sentence, a hint, an exit code
    ├── UsageError            2    the command line contradicts itself or names nothing
    ├── ConfigError           2    agent-eval.yaml, an INPUT_* variable or a criteria file is wrong
    ├── EvalFileError         2    an eval file cannot be read or is refused; carries every problem
    ├── ResultsError          2    results.json, attempts.jsonl or a baseline cannot be read
    ├── AgentEnvironmentError 3    the agent's interpreter cannot be found, built or started
    ├── CredentialsError      3    a model that judges or plays users has no credentials here
    └── OutputError           3    a report cannot be written (disk full, permission)

Anything else that escapes is a defect of ours and exits 70.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal


class ExitCode(enum.IntEnum):
    """The exit codes of the process; each value has one meaning."""

    PASS = 0
    FAIL = 1
    USAGE = 2
    INCONCLUSIVE = 3
    BUG = 70
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem in a file, as a value: all problems of a file are collected and shown together.

    ``line`` is 1-based; None if lines do not apply. ``json_path`` is like
    ``$.eval_cases[3].conversation[0].user_content``. ``value`` is the offending value, shortened for display. ``hint``
    suggests a remedy ("did you mean ...").
    """

    path: Path
    message: str
    line: int | None = None
    json_path: str | None = None
    value: str | None = None
    hint: str | None = None
    severity: Literal["error", "warning"] = "error"

    @property
    def shown_path(self) -> Path:
        """The path, relative to the current folder if it lies inside."""
        here = Path.cwd()
        return self.path.relative_to(here) if self.path.is_relative_to(here) else self.path

    @property
    def where(self) -> str:
        """``path:line`` if the line is known, else the path."""
        return f"{self.shown_path}:{self.line}" if self.line is not None else str(self.shown_path)

    @property
    def fields(self) -> dict[str, Any]:
        """The problem as ``--json`` prints it."""
        return {**asdict(self), "path": str(self.shown_path)}

    def __str__(self) -> str:
        at = f" at {self.json_path}" if self.json_path else ""
        value = f" (got {self.value})" if self.value is not None else ""
        hint = f" — {self.hint}" if self.hint else ""
        return f"{self.where}: {self.message}{at}{value}{hint}"


class Unreadable(Exception):  # noqa: N818 - internal signal; the caller raises its own error from it
    """Carries the problem that ends the reading of a file."""

    def __init__(self, path: Path, message: str, line: int | None = None, **fields: str | None) -> None:
        super().__init__(message)
        self.problem = Problem(path, message, line, value=fields.get("value"), hint=fields.get("hint"))


@dataclass
class AgentEvalError(Exception):
    """Base of all intentional errors: one sentence, a hint, the problems with their places, an exit code."""

    message: str
    hint: str | None = None
    problems: Sequence[Problem] = field(default_factory=tuple)

    exit_code: ClassVar[ExitCode] = ExitCode.USAGE

    def __str__(self) -> str:
        lines = [self.message, *(f"  {p}" for p in self.problems)]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

    @property
    def fields(self) -> dict[str, Any]:
        """The error as ``--json`` prints it."""
        problems = [problem.fields for problem in self.problems]
        return {"message": self.message, "hint": self.hint, "problems": problems, "exit_code": int(self.exit_code)}


class UsageError(AgentEvalError):
    """The command line contradicts itself or selects nothing."""


class ConfigError(AgentEvalError):
    """A setting, policy or criteria file is wrong."""


class EvalFileError(AgentEvalError):
    """An eval file cannot be read, or its content is invalid."""


class ResultsError(AgentEvalError):
    """A results file, transcript or baseline cannot be read."""


class AgentEnvironmentError(AgentEvalError):
    """The agent's interpreter cannot be found, built or started, so that nothing could be measured."""

    exit_code = ExitCode.INCONCLUSIVE


class CredentialsError(AgentEvalError):
    """A model that judges or plays users has no credentials here; nothing was run."""

    exit_code = ExitCode.INCONCLUSIVE


class OutputError(AgentEvalError):
    """A report or result file cannot be written, so that the measurements cannot be kept."""

    exit_code = ExitCode.INCONCLUSIVE


@contextlib.contextmanager
def writing(shown: object, hint: str | None = None) -> Iterator[None]:
    """Turn an OSError into an OutputError that names ``shown``."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{shown} cannot be written: {error.strerror or error}", hint=hint) from error
