"""The comment on a pull request: found, merged with what other jobs wrote, written, and looked at again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from agent_eval_action.github.rest import GitHub, PullRequest
from agent_eval_action.github.sections import Stamp

Mode = Literal["update", "recreate", "changes", "off"]


@dataclass(frozen=True, slots=True)
class Section:
    """What this job has to say. ``render`` gives it in at most so many bytes of UTF-8, without any marker."""

    stamp: Stamp
    render: Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Published:
    """What became of it. ``note`` is one sentence for the log, "" when it went as it should; ``url`` of the comment.

    ``written``: whether anything on GitHub was changed. ``ok`` is False when the note is a warning.
    """

    note: str = ""
    url: str = ""
    written: bool = False
    ok: bool = True


def publish(github: GitHub, target: PullRequest, section: Section, mode: Mode = "update") -> Published:
    """Bring the section into the pull request's comment. Never raises: a comment that fails is a warning."""
    raise NotImplementedError
