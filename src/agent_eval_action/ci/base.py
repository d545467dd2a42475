"""The port to CI: what a run is of, where its results are published, how its log is commanded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from agent_eval_action.errors import UsageError
from agent_eval_action.git.base_commit import Event, EventKind
from agent_eval_action.git.repository import is_sha

if TYPE_CHECKING:
    from agent_eval_action.ci.github import WorkflowCommands
    from agent_eval_action.ci.host import CommentHost

_NAME_LIMIT: Final = 200
_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """A pull or merge request. ``repository``: like "owner/name"; ``sign``: of its number."""

    repository: str
    number: int
    sign: str = "#"

    def __str__(self) -> str:
        return f"{self.repository}{self.sign}{self.number}"


@dataclass(frozen=True, slots=True)
class Job:
    """What CI says about a run.

    ``change_request``: None where there is nothing to comment on. ``commit``: what the results are of, the head of a
    pull request and not the merge commit that CI made of it. ``withheld``: why CI gives this run neither secrets nor
    a token that writes; "" where it gives both. ``refusal``: why nothing may be run, unless asked for by name, with
    ``hint`` what to do instead and ``warning`` what to print where it was asked for. ``key`` names the comment of this
    run: workflow, job and ``leg`` of the matrix. ``definition``: the file that defines the job, its path in the
    repository. ``url``: the page of this run. Numbers are 0 where CI does not give them.
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
        """Whether missing credentials may be intended: it is CI that gives those of a pull request."""
        return self.event.kind is EventKind.CHANGE

    def refuse(self, *, allowed: bool) -> str:
        """Return the warning to print before anything is run, or "". Raises UsageError where nothing may be run.

        ``allowed``: the user asked by name for running it all the same.
        """
        if self.refusal and not allowed:
            raise UsageError(self.refusal, hint=self.hint)
        return self.warning


class LogGroups(Protocol):
    """Lines of a log that can be folded; neither text may hold more than one line."""

    def group(self, title: str) -> str:
        """The line that begins them."""

    def end_group(self) -> str:
        """The line that ends them."""


FindTargets = Callable[[Any], tuple[list[ChangeRequest], str]]
"""Takes what ``Ci.connect`` returned; returns the open change requests that a run is of, or why there is none."""


class Ci:
    """One CI. This class is none: a run on somebody's machine, which publishes files and an exit code.

    ``log_commands``: None where the log takes none, and jobs publish nothing themselves. ``log_groups``: None
    where the log folds no lines. ``token_variable``: holds
    the token to comment with; ``token_hint``: how a job gets it.
    """

    log_commands: WorkflowCommands | None = None
    log_groups: LogGroups | None = None
    token_variable = ""
    token_hint = ""

    def is_running(self, environ: Mapping[str, str]) -> bool:  # noqa: ARG002 - for those that are a CI
        """Whether this process is part of one of its jobs."""
        return False

    def job(self, environ: Mapping[str, str]) -> Job:  # noqa: ARG002 - as above
        """The job of this process. Raises nothing: what cannot be read is left at its default."""
        return Job()

    def write_outputs(self, values: Mapping[str, str], environ: Mapping[str, str]) -> str:  # noqa: ARG002 - as above
        """Give values to later steps. Returns what went wrong, or ""."""
        return ""

    def append_summary(self, render: Callable[[int], str], environ: Mapping[str, str]) -> str:  # noqa: ARG002 - as above
        """Show Markdown on the page of the run; ``render`` takes a budget in bytes. Returns what went wrong, or ""."""
        return ""

    def posted_run(self, environ: Mapping[str, str]) -> tuple[Job, FindTargets]:  # noqa: ARG002 - as above
        """The run whose results this job is to post, and its targets. Raises UsageError where there is none."""
        raise UsageError(
            "agent-eval post posts the results of an earlier run: it belongs on workflow_run of GitHub Actions or in a "
            "merge request pipeline of GitLab",
            hint="docs/forks.md and docs/ci.md have the whole workflows",
        )

    def connect(self, environ: Mapping[str, str], token: str, ca_bundle: Path | None) -> CommentHost:  # noqa: ARG002 - as above
        """The host of the change request. Raises UsageError where it takes no comments."""
        raise UsageError("comments are written on GitHub and GitLab only")


def text_of(value: Any) -> str:
    """The text; "" for everything else: variables and event files may hold anything."""
    return value if isinstance(value, str) else ""


def line_of(value: Any) -> str:
    """A name on one line, of bounded length."""
    return " ".join(text_of(value).split())[:_NAME_LIMIT]


def number_of(value: Any) -> int:
    """A number from 1, or its digits; 0 for everything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _DIGITS:
        value = int(value)
    return value if type(value) is int and 0 < value < 10**_DIGITS else 0


def sha_of(value: Any) -> str | None:
    """A whole object name, or None: a text that is put into a command line must be nothing else."""
    return value if isinstance(value, str) and is_sha(value) else None
