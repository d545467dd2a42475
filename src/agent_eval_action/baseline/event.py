"""What GitHub says of this run, as far as baselines need it: from GITHUB_* and the event's file."""

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
    if environ.get("GITHUB_ACTIONS") != "true":
        return Event()
    data = _payload(environ.get("GITHUB_EVENT_PATH", ""))
    pull, group = _at(data, "pull_request"), _at(data, "merge_group")
    name = environ.get("GITHUB_EVENT_NAME", "")
    base_repo, head_repo = _at(pull, "base", "repo", "id"), _at(pull, "head", "repo", "id")
    return Event(
        name=name,
        ref=environ.get("GITHUB_REF", ""),
        sha=_sha(environ.get("GITHUB_SHA")),
        default_branch=_text(_at(data, "repository", "default_branch")),
        base_ref=environ.get("GITHUB_BASE_REF", "") or _text(_at(group, "base_ref")).removeprefix(_HEADS),
        base_sha=_sha(_at(group, "base_sha")) if name == "merge_group" else _sha(_at(pull, "base", "sha")),
        head_sha=_sha(_at(group, "head_sha")) if name == "merge_group" else _sha(_at(pull, "head", "sha")),
        # of a deleted fork there is no repository any more
        fork=bool(pull) and base_repo != head_repo,
    )


def _payload(path: str) -> Any:
    try:
        return Source.read(Path(path), workspace=None, error=ResultsError).value if path else None
    except ResultsError:
        return None


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _sha(value: Any) -> str | None:
    return value if isinstance(value, str) and is_sha(value) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
