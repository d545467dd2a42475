"""Turns and calls as reports show them: excerpts, never megabytes."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from agent_eval_action.model.base import Frozen


class CallBrief(Frozen):
    """A tool call as reports show it; ``args`` is shortened where it is huge."""

    name: str
    args: dict[str, Any] = Field(default_factory=dict)


class TurnBrief(Frozen):
    """A turn as reports show it: excerpts, never megabytes."""

    user: str = ""
    calls: tuple[CallBrief, ...] = ()
    response: str = ""
