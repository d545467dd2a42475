"""GitHub Actions: the job, log commands, and the runner's files for outputs and the summary."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent_eval_action.ci.base import Ci, FindTargets, Job
from agent_eval_action.ci.github import event
from agent_eval_action.ci.log import neutralize

if TYPE_CHECKING:
    from agent_eval_action.ci.github.client import GitHubClient
    from agent_eval_action.results.evalset import Annotation

_DATA: Final = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY: Final = {**_DATA, ":": "%3A", ",": "%2C"}
_NAME: Final = re.compile(r"[a-z][a-z-]*")
_VALUE_LIMIT: Final = 50_000  # all outputs of a job share about 500,000 characters
SUMMARY_LIMIT: Final = 1_048_576
"""Bytes of a step's summary; the runner drops a larger one entirely."""
_SPARE: Final = 32_768
"""Bytes left for other writers of the same step."""
_LEAST: Final = 2_000


def command(name: str, message: str = "", **properties: str | int | None) -> str:
    """Return ``::name key=value,…::message`` on one line, with all values escaped and empty properties omitted."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no command")
    given = {key: str(value) for key, value in properties.items() if value not in (None, "")}
    pairs = ",".join(f"{key}={_escape(value, _PROPERTY)}" for key, value in given.items())
    return f"::{name}{' ' if pairs else ''}{pairs}::{_escape(message, _DATA)}"


class WorkflowCommands:
    """Commands for the log of a step; they take any text."""

    def mask(self, secret: str) -> str:
        """Mask a text in all later output."""
        return command("add-mask", secret)

    def group(self, title: str) -> str:
        """Begin a foldable group."""
        return command("group", title)

    def end_group(self) -> str:
        return command("endgroup")

    def annotation(self, remark: Annotation) -> str:
        """Show an annotation at its file and line."""
        # the runner reads old-style commands only in lines without a new-style one; disarm them all the same
        message, title = neutralize(remark.message), neutralize(remark.title)
        return command(remark.level, message, file=remark.path, line=remark.line, title=title)


def _escape(value: str, table: Mapping[str, str]) -> str:
    encodable = value.encode("utf-8", "replace").decode()  # a lone surrogate would break the stream
    return "".join(table.get(char, char) for char in encodable)


class GitHubActions(Ci):
    """A step of a workflow."""

    log_commands = log_groups = WorkflowCommands()
    token_variable = "GITHUB_TOKEN"  # noqa: S105 - a name
    token_hint = "env: GITHUB_TOKEN: ${{ github.token }}"  # noqa: S105 - no token

    def is_running(self, environ: Mapping[str, str]) -> bool:
        return environ.get("GITHUB_ACTIONS") == "true"

    def job(self, environ: Mapping[str, str]) -> Job:
        return event.read_job(environ, event.read_payload(environ))

    def write_outputs(self, values: Mapping[str, str], environ: Mapping[str, str]) -> str:
        """Append to the file in GITHUB_OUTPUT, with random delimiters, so that no value can forge another."""
        lines: list[str] = []
        for name, value in values.items():
            delimiter = f"agent-eval-{secrets.token_hex(16)}"
            text = value.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")[:_VALUE_LIMIT]
            lines.append(f"{name}<<{delimiter}\n{text}\n{delimiter}\n")
        try:
            if target := environ.get("GITHUB_OUTPUT"):
                append(Path(target), "".join(lines))
        except OSError as error:
            return f"the step's outputs could not be written: {error.strerror or error}"
        return ""

    def append_summary(self, render: Callable[[int], str], environ: Mapping[str, str]) -> str:
        """Append to the file in GITHUB_STEP_SUMMARY; ``render`` gets the number of bytes left."""
        if not (target := environ.get("GITHUB_STEP_SUMMARY")):
            return ""
        path = Path(target)
        try:
            size = path.stat().st_size if path.exists() else 0
            room = SUMMARY_LIMIT - _SPARE - size
            if room < _LEAST:
                return f"the step's summary has no room left: {size:,} of {SUMMARY_LIMIT:,} bytes were there already"
            append(path, f"\n{render(room - 2)}\n" if size else render(room))
        except OSError as error:
            return f"the step's summary could not be written: {error.strerror or error}"
        return ""

    def posted_run(self, environ: Mapping[str, str]) -> tuple[Job, FindTargets]:
        from agent_eval_action.ci.github.client import read_posted_run

        return read_posted_run(environ, event.read_payload(environ))

    def connect(self, environ: Mapping[str, str], token: str, ca_bundle: Path | None) -> GitHubClient:
        from agent_eval_action.ci.github.client import GitHubClient

        return GitHubClient(environ, token, ca_bundle)


def append(path: Path, text: str) -> None:
    """Append all of ``text`` to one of the runner's files, or nothing: half an entry fails the step. Raises OSError."""
    data = text.encode("utf-8", "backslashreplace")
    with path.open("ab", buffering=0) as file:
        before = file.tell()
        written = 0
        try:
            while written < len(data):
                written += file.write(data[written:]) or 0
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(before)
            raise
