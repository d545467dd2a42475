"""What a job of GitHub Actions is to do: one pure function from its environment and its event's payload.

The table of docs/events.md is this function's; a test per row holds them together.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from agent_eval_action.baseline.lookup import Event, at, event_from, in_actions, payload_of, text_of
from agent_eval_action.ci.github.client import ChangeRequest
from agent_eval_action.errors import UsageError

DEPENDABOT: Final = "dependabot[bot]"
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,99}/[A-Za-z0-9._-]{1,100}", re.ASCII)
_SHOWN: Final = 200


class Kind(enum.StrEnum):
    """What kind of run this is."""

    LOCAL = "local"  # no job of GitHub Actions
    PULL_REQUEST = "pull request"  # a change that asks to be merged, run without trust
    TARGET = "pull_request_target"  # the same, with the base's secrets
    QUEUE = "merge queue"
    PUSH = "push"
    SCHEDULE = "schedule"
    MANUAL = "manual"
    WORKFLOW_RUN = "workflow_run"
    OTHER = "other"


_KINDS: Final = {
    "pull_request": Kind.PULL_REQUEST,
    "pull_request_review": Kind.PULL_REQUEST,
    "pull_request_review_comment": Kind.PULL_REQUEST,
    "pull_request_target": Kind.TARGET,
    "merge_group": Kind.QUEUE,
    "push": Kind.PUSH,
    "schedule": Kind.SCHEDULE,
    "workflow_dispatch": Kind.MANUAL,
    "repository_dispatch": Kind.MANUAL,
    "workflow_run": Kind.WORKFLOW_RUN,
}
_COMMENTED: Final = frozenset({Kind.PULL_REQUEST, Kind.TARGET})

_TARGET_REFUSED: Final = (
    "pull_request_target runs with this repository's secrets and a token that may write: code of a pull request "
    "must not be run there"
)
_TARGET_HINT: Final = (
    "use `on: pull_request`, with a trusted workflow_run that posts the results of forks (docs/forks.md); who knows "
    "what is checked out sets allow-pull-request-target: true"
)
_TARGET_WARNING: Final = (
    "pull_request_target: whatever this job checked out is run with this repository's secrets; a pull request can "
    "take them all. allow-pull-request-target was asked for by name"
)
_FOREIGN_RUN: Final = (
    "workflow_run runs with this repository's secrets, and the run before it is of a fork: a fork's code must not be "
    "run here"
)
_FOREIGN_RUN_HINT: Final = (
    "a trusted workflow posts the results of a fork without running anything: agent-eval post RESULTS (docs/forks.md)"
)


@dataclass(frozen=True, slots=True)
class Job:
    """What the event says about this run, and what follows from it.

    ``event`` is the part baselines need (refs and commits). ``commit`` is what the results are of: the head
    of a pull request, not the merge commit GitHub made of it. ``pull_request`` is None where there is
    nothing to comment on. ``withheld`` says in words why GitHub gives this run neither secrets nor a token
    that writes; "" where it gives both. ``refusal`` says why nothing may be run, unless asked for by name,
    ``hint`` what to do instead; ``warning`` is to be said aloud when it was asked for.
    ``workflow``, ``job`` and ``matrix`` ("" without one) tell the comments of one repository apart;
    ``workflow_file`` is its path in the repository.
    ``run_id``, ``run_number`` and ``run_attempt`` are 0 where GitHub does not say.
    """

    kind: Kind = Kind.LOCAL
    event: Event = field(default_factory=Event)
    repository: str = ""
    pull_request: ChangeRequest | None = None
    commit: str | None = None
    withheld: str = ""
    refusal: str = ""
    hint: str = ""
    warning: str = ""
    workflow: str = ""
    job: str = ""
    matrix: str = ""
    run_id: int = 0
    run_number: int = 0
    run_attempt: int = 0
    workflow_file: str = ""

    @property
    def in_actions(self) -> bool:
        """Whether there is a GitHub to write to at all."""
        return self.kind is not Kind.LOCAL

    @property
    def is_pull_request(self) -> bool:
        """Whether missing credentials may be meant so: those of a pull request are GitHub's to give."""
        return self.kind is Kind.PULL_REQUEST

    @property
    def may_skip(self) -> bool:
        """Whether a change that touches nothing relevant ends the run at once.

        Of main every commit is run: a record that is missing there would be missed by later comparisons.
        """
        return self.kind in _COMMENTED or self.kind is Kind.QUEUE

    @property
    def writes(self) -> bool:
        """Whether the job's token may be able to comment; whether it is allowed to shows the first call."""
        return self.in_actions and not self.withheld

    def refuse(self, *, allowed: bool) -> str:
        """What to warn of before anything is run; "" for nothing. Raises UsageError where nothing may be run.

        ``allowed``: somebody asked by name for running it all the same.
        """
        if self.refusal and not allowed:
            raise UsageError(self.refusal, hint=self.hint)
        return self.warning

    @property
    def key(self) -> str:
        """What tells this run's section of a comment from others': workflow, job and leg of the matrix."""
        leg = f" ({self.matrix})" if self.matrix else ""
        return f"{self.workflow} / {self.job}{leg}".strip(" /") or "agent-eval"


def job_from(environ: Mapping[str, str]) -> Job:
    """The job of this process: ``job_of`` with the event's file read; a file that cannot be read says nothing."""
    return job_of(environ, payload_of(environ))


def job_of(environ: Mapping[str, str], payload: Any) -> Job:
    """What this job is to do. ``payload`` is the event as JSON, or anything else. Pure; raises nothing."""
    if not in_actions(environ):
        return Job()
    event = event_from(environ, payload)
    kind = _KINDS.get(event.name, Kind.OTHER)
    repository = _repository(environ.get("GITHUB_REPOSITORY"))
    job = Job(
        kind=kind,
        event=event,
        repository=repository,
        pull_request=_pull_request(repository, payload) if kind in _COMMENTED else None,
        commit=event.head_sha or event.sha,
        withheld=_withheld(kind, event, environ, payload),
        workflow=_line(environ.get("GITHUB_WORKFLOW")),
        job=_line(environ.get("GITHUB_JOB")),
        matrix=_matrix(environ.get("INPUT_MATRIX")),
        run_id=_number(environ.get("GITHUB_RUN_ID")),
        run_number=_number(environ.get("GITHUB_RUN_NUMBER")),
        run_attempt=_number(environ.get("GITHUB_RUN_ATTEMPT")),
        workflow_file=_workflow_file(environ.get("GITHUB_WORKFLOW_REF", ""), repository),
    )
    if kind is Kind.TARGET:
        return replace(job, refusal=_TARGET_REFUSED, hint=_TARGET_HINT, warning=_TARGET_WARNING)
    if kind is Kind.WORKFLOW_RUN and _of_fork(payload):
        return replace(job, refusal=_FOREIGN_RUN, hint=_FOREIGN_RUN_HINT, warning=_TARGET_WARNING)
    return job


def _pull_request(repository: str, payload: Any) -> ChangeRequest | None:
    """The pull request of the event. Its base is always the repository the event is of."""
    number = _number(at(payload, "pull_request", "number"))
    return ChangeRequest(repository, number) if repository and number else None


def _withheld(kind: Kind, event: Event, environ: Mapping[str, str], payload: Any) -> str:
    """Why GitHub gives no secrets. On a re-run by a person the actor is still who pushed, and still gets none."""
    if kind is not Kind.PULL_REQUEST:
        return ""
    if event.fork:
        return "GitHub gives no secrets to a pull request from a fork"
    if DEPENDABOT in (environ.get("GITHUB_ACTOR"), at(payload, "sender", "login")):
        return "GitHub gives Dependabot's pull requests none but Dependabot's own secrets"
    return ""


def _of_fork(payload: Any) -> bool:
    """Whether the run before is of another repository than this one; also where the payload does not say."""
    ours = at(payload, "repository", "id")
    return ours is None or at(payload, "workflow_run", "head_repository", "id") != ours


def _matrix(text: str | None) -> str:
    """``toJSON(matrix)`` in words: its values by their names' order; "" for no matrix and for what is none."""
    try:
        value = json.loads(text) if text and len(text) <= _SHOWN * 50 else None
    except (ValueError, RecursionError):
        return ""
    if not isinstance(value, dict):
        return ""
    words = [one if isinstance(one, str) else json.dumps(one, sort_keys=True) for _, one in sorted(value.items())]
    return _line(", ".join(words))


def _workflow_file(text: str, repository: str) -> str:
    """``.github/workflows/x.yml`` of ``owner/name/.github/workflows/x.yml@refs/…``; "" of another repository's."""
    path = text.partition("@")[0].removeprefix(f"{repository}/")
    return path if repository and path.startswith(".github/") and ".." not in path else ""


def _repository(text: str | None) -> str:
    return text if text and _REPOSITORY.fullmatch(text) else ""


def _number(value: Any) -> int:
    """A number GitHub counts with: from 1; 0 for everything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len("9" * 18):
        value = int(value)
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 < value < 10**18 else 0


def _line(value: Any) -> str:
    """A name on one line, of bounded length."""
    return " ".join(text_of(value).split())[:_SHOWN]
