"""The port to CI: what a run is of, where its results are published, which commands its log takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from agent_eval_action.errors import UsageError
from agent_eval_action.git.base_commit import Event, EventKind
from agent_eval_action.git.repository import is_sha

if TYPE_CHECKING:
    from agent_eval_action.ci.github_actions import WorkflowCommands
    from agent_eval_action.ci.host import CommentHost

_NAME_LIMIT: Final = 200
_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """A pull or merge request. ``repository``: like "owner/name"; ``sign``: the character before its number."""

    repository: str
    number: int
    sign: str = "#"

    def __str__(self) -> str:
        return f"{self.repository}{self.sign}{self.number}"


@dataclass(frozen=True, slots=True)
class Job:
    """What CI says about a run.

    ``change_request``: None if there is nothing to comment on. ``commit``: the commit the results belong to, for a
    pull request its head and not CI's merge commit. ``withheld``: why CI gives this run neither secrets nor a token
    that may write, or "". ``refusal``: why nothing may be run unless the user explicitly allows it; ``hint``: what to
    do instead; ``warning``: what to print if it is allowed. ``key`` names the comment of this run: workflow, job and
    matrix ``leg``. ``definition``: path of the file that defines the job, in the repository. ``url``: the page of
    this run. Numbers are 0 if CI does not give them.
    """

    event: Event = field(default_factory=Event)
    change_request: ChangeRequest | None = None
    commit: str | None = None
    withheld: str = ""
    refusal: str = ""
    hint: str = ""
    warning: str = ""
    key: str = "agent-eval"
    leg: str = ""
    definition: str = ""
    url: str = ""
    run_id: int = 0
    run_number: int = 0
    run_attempt: int = 0

    @property
    def may_lack_credentials(self) -> bool:
        """Whether missing credentials may be intended: CI decides which ones a pull request gets."""
        return self.event.kind is EventKind.CHANGE

    def refuse(self, *, allowed: bool) -> str:
        """Return a warning to print before the run, or "". Raises UsageError if nothing may be run.

        ``allowed``: the user explicitly allowed the run.
        """
        if self.refusal and not allowed:
            raise UsageError(self.refusal, hint=self.hint)
        return self.warning


class LogGroups(Protocol):
    """Foldable groups of log lines: the lines that begin and end one."""

    def group(self, title: str) -> str: ...

    def end_group(self) -> str: ...


FindTargets = Callable[[Any], tuple[list[ChangeRequest], str]]
"""Takes the host from ``Ci.connect``; returns the open change requests of a run, and why there are none or ""."""


class Ci:
    """A CI system. The base class stands for a local run, which publishes only files and an exit code.

    ``log_commands``: None if the log takes none; such jobs publish nothing themselves. ``log_groups``: None if the
    log cannot fold lines. ``token_variable`` holds the token to comment with; ``token_hint``: how a job gets it.
    """

    log_commands: WorkflowCommands | None = None
    log_groups: LogGroups | None = None
    token_variable = ""
    token_hint = ""

    def is_running(self, environ: Mapping[str, str]) -> bool:  # noqa: ARG002 - for those that are a CI
        """Return whether this process runs in a job of this CI."""
        return False

    def job(self, environ: Mapping[str, str]) -> Job:  # noqa: ARG002 - as above
        """Return the job of this process. Never raises: fields that cannot be read keep their defaults."""
        return Job()

    def write_outputs(self, values: Mapping[str, str], environ: Mapping[str, str]) -> str:  # noqa: ARG002 - as above
        """Pass values to later steps. Returns what went wrong, or ""."""
        return ""

    def append_summary(self, render: Callable[[int], str], environ: Mapping[str, str]) -> str:  # noqa: ARG002 - as above
        """Show Markdown on the page of the run; ``render`` takes a budget in bytes. Returns what went wrong, or ""."""
        return ""

    def posted_run(self, environ: Mapping[str, str]) -> tuple[Job, FindTargets]:  # noqa: ARG002 - as above
        """Return the run whose results this job posts, and how to find its targets. Raises UsageError without one."""
        raise UsageError(
            "agent-eval post posts the results of an earlier run: it belongs on workflow_run of GitHub Actions or in a "
            "merge request pipeline of GitLab",
            hint="docs/forks.md and docs/ci.md have the whole workflows",
        )

    def connect(self, environ: Mapping[str, str], token: str, ca_bundle: Path | None) -> CommentHost:  # noqa: ARG002 - as above
        """Connect to the host of the change request. Raises UsageError if we cannot comment there."""
        raise UsageError("comments are written on GitHub and GitLab only")


def text_of(value: Any) -> str:
    """Return a string as it is and "" for any other value: variables and event files are not trusted."""
    return value if isinstance(value, str) else ""


def line_of(value: Any) -> str:
    """Return a name on one line, of bounded length; "" for any value that is not a string."""
    return " ".join(text_of(value).split())[:_NAME_LIMIT]


def number_of(value: Any) -> int:
    """Return a positive integer, also from its digits; 0 for any other value."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _DIGITS:
        value = int(value)
    return value if type(value) is int and 0 < value < 10**_DIGITS else 0


def sha_of(value: Any) -> str | None:
    """Return a full commit SHA, or None: nothing else may get into a git command line."""
    return value if isinstance(value, str) and is_sha(value) else None
