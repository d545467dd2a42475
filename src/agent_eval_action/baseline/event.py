"""What GitHub says of this run, as far as baselines need it: from GITHUB_* and the event's file.

Everything else that is read of an event is built on this reading (``github.events``), so that there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agent_eval_action.baseline.lookup import Event
from agent_eval_action.errors import ResultsError
from agent_eval_action.git.repository import is_sha
from agent_eval_action.source import Source

_HEADS: Final = "refs/heads/"


def event_of(environ: Mapping[str, str]) -> Event:
    """The event of this job; an empty one outside of GitHub Actions. A file that cannot be read says nothing."""
    return event_from(environ, payload_of(environ))


def payload_of(environ: Mapping[str, str]) -> Any:
    """The event's file as JSON; None outside of GitHub Actions, and where it cannot be read."""
    path = environ.get("GITHUB_EVENT_PATH", "")
    if not in_actions(environ) or not path:
        return None
    try:
        return Source.read(Path(path), workspace=None, error=ResultsError).value
    except ResultsError:
        return None


def in_actions(environ: Mapping[str, str]) -> bool:
    """Whether this is a job of GitHub Actions."""
    return environ.get("GITHUB_ACTIONS") == "true"


def event_from(environ: Mapping[str, str], payload: Any) -> Event:
    """The event from the environment and its payload, which may be anything. Pure."""
    if not in_actions(environ):
        return Event()
    pull, group = at(payload, "pull_request"), at(payload, "merge_group")
    name = environ.get("GITHUB_EVENT_NAME", "")
    base_repo, head_repo = at(pull, "base", "repo", "id"), at(pull, "head", "repo", "id")
    return Event(
        name=name,
        ref=environ.get("GITHUB_REF", ""),
        sha=sha_of(environ.get("GITHUB_SHA")),
        default_branch=text_of(at(payload, "repository", "default_branch")),
        base_ref=environ.get("GITHUB_BASE_REF", "") or text_of(at(group, "base_ref")).removeprefix(_HEADS),
        base_sha=sha_of(at(group, "base_sha")) if name == "merge_group" else sha_of(at(pull, "base", "sha")),
        head_sha=sha_of(at(group, "head_sha")) if name == "merge_group" else sha_of(at(pull, "head", "sha")),
        # of a deleted fork there is no repository any more
        fork=bool(pull) and base_repo != head_repo,
    )


def at(value: Any, *keys: str) -> Any:
    """What lies under these keys; None where a step is missing or is no object."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def sha_of(value: Any) -> str | None:
    """A whole object name, or None: a text that is put into a command line must be nothing else."""
    return value if isinstance(value, str) and is_sha(value) else None


def text_of(value: Any) -> str:
    """The text, "" for everything else."""
    return value if isinstance(value, str) else ""
