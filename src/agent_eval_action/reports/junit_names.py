"""Names by which CI systems group and recognise a testcase: they split ``classname`` at its dots."""

from __future__ import annotations

import hashlib

from agent_eval_action.reports.escape_xml import xml

_PART = 120


def suite_name(agent: str, eval_set: str) -> str:
    """``agent / set``."""
    return f"{part(agent)} / {part(eval_set)}"


class Names:
    """``agent.set.case``, each given out once: Jenkins takes what is before the last dot for the package."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def of(self, *parts: str) -> str:
        """The parts joined by dots, with a number behind when another had the same name."""
        name = ".".join(part(one).replace(".", "_") for one in parts) if len(parts) > 1 else part(parts[0])
        self._seen[name] = self._seen.get(name, 0) + 1
        return name if self._seen[name] == 1 else self.of(f"{name}~{self._seen[name]}")


def part(text: str) -> str:
    """One name, never empty; a huge one ends in its digest."""
    cleaned = xml(text, len(text) + 1) or "(empty)"
    if len(cleaned) <= _PART:
        return cleaned
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{cleaned[: _PART - 10]}…{digest}"
