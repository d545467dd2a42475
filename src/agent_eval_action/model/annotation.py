"""A remark at a place in a file, as code hosts show them beside the lines of a change."""

from __future__ import annotations

from typing import Literal

from agent_eval_action.model.base import Frozen

AnnotationLevel = Literal["error", "warning", "notice"]


class Annotation(Frozen):
    """``path`` is relative to the workspace, "" for what concerns no file; ``line`` counts from 1."""

    level: AnnotationLevel
    message: str
    title: str = ""
    path: str = ""
    line: int | None = None
