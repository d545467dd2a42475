"""GitHub Actions: the job from its environment and event, log commands, and the runner's files for outputs and summary.

The table in docs/events.md describes ``read_job``; a test for each row keeps them consistent.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent_eval_action.ci.base import ChangeRequest, Ci, FindTargets, Job, line_of, number_of, sha_of, text_of
from agent_eval_action.ci.log import neutralize
from agent_eval_action.errors import ResultsError, UsageError
from agent_eval_action.git.base_commit import Event, EventKind

if TYPE_CHECKING:
    from agent_eval_action.ci.host import GitHubClient
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
        return command("add-mask", secret)

    def group(self, title: str) -> str:
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
        return read_job(environ, read_payload(environ))

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
        return read_posted_run(environ, read_payload(environ))

    def connect(self, environ: Mapping[str, str], token: str, ca_bundle: Path | None) -> GitHubClient:
        from agent_eval_action.ci.host import GitHubClient

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


# --- the job --------------------------------------------------------------------------------------

DEPENDABOT: Final = "dependabot[bot]"
REPOSITORY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}/[A-Za-z0-9._-]{1,100}")
"""Like ``owner/name``; the names of enterprise-managed users have an underscore."""
_MATRIX_LIMIT: Final = 10_000
_COMMENTED: Final = frozenset({EventKind.CHANGE, EventKind.PRIVILEGED_CHANGE})

_KINDS: Final = {
    "pull_request": EventKind.CHANGE,
    "pull_request_review": EventKind.CHANGE,
    "pull_request_review_comment": EventKind.CHANGE,
    "pull_request_target": EventKind.PRIVILEGED_CHANGE,
    "merge_group": EventKind.QUEUE,
    "push": EventKind.PUSH,
    "schedule": EventKind.SCHEDULE,
    "workflow_dispatch": EventKind.MANUAL,
    "repository_dispatch": EventKind.MANUAL,
    "workflow_run": EventKind.FOLLOW_UP,
}

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


def read_payload(environ: Mapping[str, str]) -> Any:
    """Return the event's payload; None if it cannot be read."""
    from agent_eval_action.diagnostics.reader import Source

    path = environ.get("GITHUB_EVENT_PATH", "")
    try:
        return path and Source.read(Path(path), workspace=None, error=ResultsError).value
    except ResultsError:
        return None


def value_at(value: Any, *keys: str) -> Any:
    """Return the value at this path of keys; None if a key is missing or a value on the way is not an object."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def read_event(environ: Mapping[str, str], payload: Any) -> Event:
    """Return the part of the event that git needs. ``payload`` may be any value."""
    pull, group = value_at(payload, "pull_request"), value_at(payload, "merge_group")
    name = environ.get("GITHUB_EVENT_NAME", "")
    kind = _KINDS.get(name, EventKind.OTHER)
    queued = kind is EventKind.QUEUE
    base_repo, head_repo = value_at(pull, "base", "repo", "id"), value_at(pull, "head", "repo", "id")
    base_ref = environ.get("GITHUB_BASE_REF", "") or text_of(value_at(group, "base_ref")).removeprefix("refs/heads/")
    return Event(
        kind=kind,
        name=name,
        ref=environ.get("GITHUB_REF", ""),
        sha=sha_of(environ.get("GITHUB_SHA")),
        default_branch=text_of(value_at(payload, "repository", "default_branch")),
        base_ref=base_ref,
        base_sha=sha_of(value_at(group, "base_sha") if queued else value_at(pull, "base", "sha")),
        head_sha=sha_of(value_at(group, "head_sha") if queued else value_at(pull, "head", "sha")),
        # the repository of a deleted fork is null
        fork=bool(pull) and base_repo != head_repo,
        keeps_branch=True,
        clone_hint="actions/checkout: fetch-depth: {}",
    )


def read_job(environ: Mapping[str, str], payload: Any) -> Job:
    """Return the job. ``payload`` is the event's JSON, or any other value. Pure; never raises."""
    event = read_event(environ, payload)
    name = environ.get("GITHUB_REPOSITORY", "")
    repository = name if REPOSITORY.fullmatch(name) else ""
    number = number_of(value_at(payload, "pull_request", "number"))
    commented = event.kind in _COMMENTED and repository and number
    run_id = number_of(environ.get("GITHUB_RUN_ID"))
    leg = _matrix(environ.get("INPUT_MATRIX"))
    workflow = line_of(environ.get("GITHUB_WORKFLOW"))
    job_name = line_of(environ.get("GITHUB_JOB")) + (f" ({leg})" if leg else "")
    server = environ.get("GITHUB_SERVER_URL", "").rstrip("/")
    job = Job(
        event=event,
        # the event of a pull request always comes from its base repository
        change_request=ChangeRequest(repository, number) if commented else None,
        commit=event.head_sha or event.sha,
        withheld=_why_secrets_are_withheld(event, environ, payload),
        key=" / ".join(filter(None, (workflow, job_name))) or "agent-eval",
        leg=leg,
        definition=_workflow_file(environ.get("GITHUB_WORKFLOW_REF", ""), repository),
        url=f"{server}/{repository}/actions/runs/{run_id}" if server and run_id else "",
        run_id=run_id,
        run_number=number_of(environ.get("GITHUB_RUN_NUMBER")),
        run_attempt=number_of(environ.get("GITHUB_RUN_ATTEMPT")),
    )
    if event.kind is EventKind.PRIVILEGED_CHANGE:
        return replace(job, refusal=_TARGET_REFUSED, hint=_TARGET_HINT, warning=_TARGET_WARNING)
    if event.kind is EventKind.FOLLOW_UP and _is_from_fork(payload):
        return replace(job, refusal=_FOREIGN_RUN, hint=_FOREIGN_RUN_HINT, warning=_TARGET_WARNING)
    return job


def _why_secrets_are_withheld(event: Event, environ: Mapping[str, str], payload: Any) -> str:
    """Return why GitHub gives no secrets, or "". If a person re-runs a bot's job, the actor is still the bot."""
    if event.kind is not EventKind.CHANGE:
        return ""
    if event.fork:
        return "GitHub gives no secrets to a pull request from a fork"
    if DEPENDABOT in (environ.get("GITHUB_ACTOR"), value_at(payload, "sender", "login")):
        return "GitHub gives Dependabot's pull requests none but Dependabot's own secrets"
    return ""


def _is_from_fork(payload: Any) -> bool:
    """Return whether the triggering run came from another repository; True if the payload does not say."""
    ours = value_at(payload, "repository", "id")
    return ours is None or value_at(payload, "workflow_run", "head_repository", "id") != ours


def _matrix(text: str | None) -> str:
    """Return the values of ``toJSON(matrix)``, sorted by their names; "" without a valid matrix."""
    try:
        value = json.loads(text) if text and len(text) <= _MATRIX_LIMIT else None
    except (ValueError, RecursionError):
        return ""
    if not isinstance(value, dict):
        return ""
    words = [item if isinstance(item, str) else json.dumps(item, sort_keys=True) for _, item in sorted(value.items())]
    return line_of(", ".join(words))


def _workflow_file(text: str, repository: str) -> str:
    """Return the path in ``owner/name/.github/workflows/x.yml@refs/…``; "" if it is in another repository."""
    path = text.partition("@")[0].removeprefix(f"{repository}/")
    return path if repository and path.startswith(".github/") and ".." not in path else ""


# --- the run whose results are posted ---------------------------------------------------------------


def read_posted_run(environ: Mapping[str, str], payload: Any) -> tuple[Job, FindTargets]:
    """Return the run whose results are posted: on workflow_run the triggering run, on a pull request this one.

    Raises UsageError for any other event, or if the event does not name its run.
    """
    event_name = environ.get("GITHUB_EVENT_NAME", "")
    own = read_job(environ, payload)
    if event_name == "pull_request" and own.change_request is not None:
        targets = [own.change_request]
        return own, lambda _: (targets, "")
    if event_name != "workflow_run":
        where = f"on pull_request or workflow_run, not on {event_name or 'a terminal'}"
        text = f"agent-eval post posts the results of a run: it belongs {where}"
        raise UsageError(text, hint="docs/forks.md has both workflows")
    run = value_at(payload, "workflow_run")
    repository = text_of(value_at(payload, "repository", "full_name"))
    repository_id = number_of(value_at(payload, "repository", "id"))
    head_sha = sha_of(value_at(run, "head_sha"))
    head_id = number_of(value_at(run, "head_repository", "id"))
    if not repository or not repository_id or not head_sha:
        raise UsageError("the event does not say which run it is of", hint="GITHUB_EVENT_PATH names its payload")

    def find_targets(host: GitHubClient) -> tuple[list[ChangeRequest], str]:
        # GitHub's search by commit does not find pull requests of forks. The search by owner and branch does, but may
        # find too many: the branch may have moved on, or another repository of the owner may have one of that name.
        event, branch = text_of(value_at(run, "event")), text_of(value_at(run, "head_branch"))
        owner = text_of(value_at(run, "head_repository", "owner", "login"))
        if event != "pull_request":
            return [], f"the run before was made on {event or 'an unknown event'}, not on a pull request"
        if not head_id or not owner or not branch:
            return [], "the repository the run's commits were in is gone"
        wanted = ("open", head_sha, head_id, repository_id)
        pulls = host.pulls_of_head(repository, owner, branch)
        found = [p.number for p in pulls if (p.state, p.head_sha, p.head_repository, p.base_repository) == wanted]
        why = "" if found else f"no open pull request has {head_sha[:10]} as its head any more"
        return [ChangeRequest(repository, number) for number in found], why

    job = Job(
        event=Event(fork=head_id != repository_id),
        commit=head_sha,
        key=text_of(value_at(run, "name")) or "agent-eval",
        run_id=number_of(value_at(run, "id")),
        run_number=number_of(value_at(run, "run_number")),
        run_attempt=number_of(value_at(run, "run_attempt")) or 1,
    )
    return job, find_targets
