"""Names by which CI systems group and recognise a testcase: they split ``classname`` at its dots."""

from __future__ import annotations

import hashlib

from agent_eval_action.model.result import CaseKey
from agent_eval_action.reports.escape_xml import xml

_PART = 120


def suite_name(agent: str, eval_set: str) -> str:
    """``agent / set``."""
    return f"{_part(agent)} / {_part(eval_set)}"


class ClassNames:
    """``agent.set.case``, unique within a suite: Jenkins takes the part before the last dot for the package."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def of(self, key: CaseKey) -> str:
        """The classname of a case. Two cases never share one."""
        name = ".".join(_part(part).replace(".", "_") for part in key)
        self._seen[name] = self._seen.get(name, 0) + 1
        return name if self._seen[name] == 1 else f"{name}~{self._seen[name]}"


def _part(text: str) -> str:
    cleaned = xml(text, len(text) + 1) or "(empty)"
    if len(cleaned) <= _PART:
        return cleaned
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{cleaned[: _PART - 10]}…{digest}"
