"""What a function of the user's gave back, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FunctionReply:
    """What a metric function gave back, as JSON, or why it gave nothing (one sentence, and its traceback)."""

    value: Any = None
    error: str = ""
    traceback: str = ""
