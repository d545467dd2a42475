"""Rule-based replies from JSON: the first rule whose conditions all hold answers.

``{"rules": [{"when": {"user": REGEX, "instruction": REGEX, "model": REGEX, "after_tool": NAME | null},
"reply": REPLY}]}``

``after_tool``: the last tool that answered since the user's message; null: none yet; absent: either. A REPLY holds
``text``, ``calls`` ([{name, args}]), ``thought``, ``finish_reason``; in its strings ``{1}`` is a group of the ``user``
pattern and ``{tool.KEY}`` a value of the last tool's answer; a string that is nothing else keeps the value's type, and
``{1:int}`` is a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from support.gemini_server.messages import ModelRequest, Reply

Answer = Callable[[ModelRequest], Reply]
SLOT = re.compile(r"\{(?:(?P<group>\d+)(?P<number>:int)?|tool\.(?P<key>\w+))\}")
CONDITIONS = {"user", "instruction", "model", "after_tool"}


@dataclass(frozen=True)
class Script:
    """Rules as an answer function. A request no rule fits is a LookupError: the test forgot it."""

    rules: list[dict[str, Any]]

    def __post_init__(self) -> None:
        unknown = {key for rule in self.rules for key in rule.get("when", {})} - CONDITIONS
        if unknown:
            raise ValueError(f"unknown conditions {sorted(unknown)}: known are {sorted(CONDITIONS)}")

    def __call__(self, request: ModelRequest) -> Reply:
        for rule in self.rules:
            groups = _fits(rule.get("when", {}), request)
            if groups is not None:
                last = request.tool_responses[-1]["response"] if request.tool_responses else {}
                return Reply(**_filled(rule["reply"], groups, last))
        raise LookupError(f"no rule for {request.user_text!r} after {[r['name'] for r in request.tool_responses]}")


def _fits(when: dict[str, Any], request: ModelRequest) -> tuple[str, ...] | None:
    for field in ("instruction", "model"):
        if field in when and not re.search(when[field], getattr(request, field)):
            return None
    if "after_tool" in when:
        last = request.tool_responses[-1]["name"] if request.tool_responses else None
        if last != when["after_tool"]:
            return None
    match = re.search(when.get("user", ""), request.user_text)
    return (match[0], *match.groups("")) if match else None


def _filled(value: Any, groups: tuple[str, ...], last: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, groups, last) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, groups, last) for item in value]
    if not isinstance(value, str):
        return value
    whole = SLOT.fullmatch(value)
    return _slot(whole, groups, last) if whole else SLOT.sub(lambda match: str(_slot(match, groups, last)), value)


def _slot(match: re.Match[str], groups: tuple[str, ...], last: dict[str, Any]) -> Any:
    if match["key"]:
        return last[match["key"]]
    text = groups[int(match["group"])]
    return int(text) if match["number"] else text
