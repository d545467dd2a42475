"""Reads a GitHub job from its environment and its event's payload.

The table in docs/events.md describes ``read_job``; a test for each row keeps them consistent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from agent_eval_action.ci.base import ChangeRequest, Job, line_of, number_of, sha_of, text_of
from agent_eval_action.errors import ResultsError
from agent_eval_action.git.base_commit import Event, EventKind

DEPENDABOT: Final = "dependabot[bot]"
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,99}/[A-Za-z0-9._-]{1,100}", re.ASCII)
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
    repository = name if _REPOSITORY.fullmatch(name) else ""
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
