"""The port to CI: what a run is of, where its results are published, how its log is commanded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agent_eval_action.errors import UsageError
from agent_eval_action.git.base_commit import Event, EventKind

if TYPE_CHECKING:
    from agent_eval_action.ci.comment import CommentHost
    from agent_eval_action.results.evalset import Annotation

_COMMENTED = frozenset({EventKind.CHANGE, EventKind.PRIVILEGED_CHANGE})


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """A pull or merge request, which takes comments. ``repository``: like "owner/name"; ``sign``: of its number."""

    repository: str
    number: int
    sign: str = "#"

    def __str__(self) -> str:
        return f"{self.repository}{self.sign}{self.number}"


@dataclass(frozen=True, slots=True)
class Job:
    """What CI says about this run, and what follows from it.

    ``change_request``: None where there is nothing to comment on. ``commit``: what the results are of, the head of a
    pull request and not the merge commit that CI made of it. ``withheld``: why CI gives this run neither secrets nor
    a token that writes; "" where it gives both. ``refusal``: why nothing may be run, unless asked for by name, with
    ``hint`` what to do instead and ``warning`` what to print where it was asked for. ``workflow``, ``name`` and
    ``leg`` (of a matrix) tell the comments of one repository apart. ``definition``: the file that defines the job,
    its path in the repository. ``url``: the page of this run. Numbers are 0 where CI does not say them.
    """

    event: Event = field(default_factory=Event)
    repository: str = ""
    change_request: ChangeRequest | None = None
    commit: str | None = None
    withheld: str = ""
    refusal: str = ""
    hint: str = ""
    warning: str = ""
    workflow: str = ""
    name: str = ""
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

    @property
    def may_skip(self) -> bool:
        """Whether a change that touches nothing relevant ends the run at once.

        Of main every commit is run: a record that is missing there would be missed by later comparisons.
        """
        return self.event.is_change

    @property
    def may_comment(self) -> bool:
        """Whether the job's token may be able to comment; the first call shows whether it is."""
        return self.change_request is not None and not self.withheld

    def refuse(self, *, allowed: bool) -> str:
        """The warning to print before anything is run, or "". Raises UsageError where nothing may be run.

        ``allowed``: somebody asked by name for running it all the same.
        """
        if self.refusal and not allowed:
            raise UsageError(self.refusal, hint=self.hint)
        return self.warning

    @property
    def key(self) -> str:
        """The key of this run's comment: workflow, job and leg of the matrix."""
        leg = f" ({self.leg})" if self.leg else ""
        return f"{self.workflow} / {self.name}{leg}".strip(" /") or "agent-eval"


def takes_comments(event: Event) -> bool:
    """Whether the event is of one pull or merge request."""
    return event.kind in _COMMENTED


class LogCommands(Protocol):
    """Lines that command the log of a job; each carries any text."""

    def mask(self, secret: str) -> str:
        """Replace a text in everything that follows."""
        ...

    def group(self, title: str) -> str:
        """Begin lines that can be folded."""
        ...

    def end_group(self) -> str:
        """End them."""
        ...

    def annotation(self, remark: Annotation) -> str:
        """Show a remark at its place."""
        ...


class PostedRun(Protocol):
    """The earlier run whose results ``agent-eval post`` publishes. ``fork``: a stranger could change it."""

    @property
    def head_sha(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def fork(self) -> bool: ...
    @property
    def run_id(self) -> int: ...
    @property
    def run_number(self) -> int: ...
    @property
    def run_attempt(self) -> int: ...

    def targets(self, host: Any) -> tuple[list[ChangeRequest], str]:
        """The open change requests the run is of, or why there is none. ``host``: as ``connect`` returned it."""
        ...


class Ci:
    """One CI. This class is none: a run on somebody's machine, which publishes files and an exit code.

    ``log_commands``: None where the log takes none, and jobs publish nothing themselves. ``token_variable``: holds
    the token to comment with; ``token_hint``: how a job gets it.
    """

    log_commands: LogCommands | None = None
    token_variable = ""
    token_hint = ""

    def is_running(self, environ: Mapping[str, str]) -> bool:  # noqa: ARG002 - for those that are a CI
        """Whether this process is part of one of its jobs."""
        return False

    def job(self, environ: Mapping[str, str]) -> Job:  # noqa: ARG002 - as above
        """The job of this process. Raises nothing: what cannot be read says nothing."""
        return Job()

    def write_outputs(self, values: Mapping[str, str], environ: Mapping[str, str]) -> str:  # noqa: ARG002 - as above
        """Give values to later steps. Returns what went wrong, or ""."""
        return ""

    def append_summary(self, render: Callable[[int], str], environ: Mapping[str, str]) -> str:  # noqa: ARG002 - as above
        """Show Markdown on the page of the run; ``render`` takes a budget in bytes. Returns what went wrong, or ""."""
        return ""

    def posted_run(self, environ: Mapping[str, str]) -> PostedRun:  # noqa: ARG002 - as above
        """The run whose results this job is to post. Raises UsageError where there is none."""
        raise UsageError(
            "agent-eval post posts the results of an earlier run: it belongs on workflow_run of GitHub Actions or in a "
            "merge request pipeline of GitLab",
            hint="docs/forks.md and docs/ci.md have the whole workflows",
        )

    def connect(self, environ: Mapping[str, str], token: str, ca_bundle: Path | None) -> CommentHost:  # noqa: ARG002 - as above
        """The host of the change request. Raises UsageError where it takes no comments."""
        raise UsageError("comments are written on GitHub and GitLab only")


@dataclass(frozen=True, slots=True)
class StepReports:
    """What a finished run publishes, each made when it is its turn.

    ``summary`` takes a budget in bytes of UTF-8. ``show`` prints the verdict, in CI or not. ``publish`` posts the
    comment and returns what went wrong in one sentence, or ""; None: no comment is wanted.
    """

    outputs: Callable[[], Mapping[str, str]]
    summary: Callable[[int], str]
    show: Callable[[], str | None]
    annotations: Callable[[], Sequence[Annotation]]
    publish: Callable[[], str] | None = None


def publish_step(
    reports: StepReports,
    ci: Ci,
    environ: Mapping[str, str],
    warn: Callable[[str], None],
    command: Callable[[str], None],
) -> None:
    """Outputs, summary, the verdict on the log, annotations, comment. Never raises, and changes no verdict.

    ``warn`` takes a sentence, ``command`` a line for the log. The log comes before the comment, which may have to
    wait for its host.
    """
    commands = ci.log_commands

    def annotate() -> None:
        if commands is not None:
            for remark in reports.annotations():
                command(commands.annotation(remark))

    shown = ("the verdict could not be shown", reports.show)
    steps: list[tuple[str, Callable[[], str | None]]] = [
        ("the step's outputs could not be written", lambda: ci.write_outputs(reports.outputs(), environ)),
        ("the step's summary could not be written", lambda: ci.append_summary(reports.summary, environ)),
        shown,
        ("the annotations could not be made", annotate),
        ("the comment could not be posted", reports.publish or (lambda: "")),
    ]
    for failed, step in steps if commands else [shown]:
        try:
            problem = step()
        except Exception as error:  # noqa: BLE001 - whatever it is, the verdict stands and the next step is tried
            problem = f"{failed}: {error or type(error).__name__}"
        if problem:
            with contextlib.suppress(OSError):  # nobody reads the log any more
                warn(problem)
