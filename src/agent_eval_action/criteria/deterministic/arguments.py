"""When two tool calls are the same: by name and arguments, compared as the criterion's options say for each tool."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import Field

from agent_eval_action.criteria.base import RegexPattern, matches
from agent_eval_action.results.base import AdkModel
from agent_eval_action.results.evalset import FunctionCall

EVERY_TOOL: Final = "*"
"""The rule of tools without one of their own."""
_SPACES: Final = re.compile(r"\s+")


class ArgumentRule(AdkModel):
    """How arguments of a tool are compared. A place like ``address.zip`` or ``items.0.id`` lies inside an argument.

    ``ignore``: places that are not compared. ``subset``: the call may have more than what is expected, in mappings at
    any depth. ``tolerance``: by how much numbers may differ. ``patterns``: by place, what a text must match instead
    of being equal. ``ignore_case``, ``ignore_whitespace``: in texts.
    """

    ignore: tuple[str, ...] = ()
    subset: bool = False
    tolerance: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    patterns: dict[str, RegexPattern] = Field(default_factory=dict)
    ignore_case: bool = False
    ignore_whitespace: bool = False

    def equal(self, want: Any, got: Any, place: str = "") -> bool:
        """Whether a value is as expected."""
        if place in self.patterns:
            return isinstance(got, str) and matches(self.patterns[place], got)
        if isinstance(want, dict) and isinstance(got, dict):
            return self._equal_mappings(want, got, place)
        if isinstance(want, list) and isinstance(got, list):
            pairs = enumerate(zip(want, got, strict=False))
            return len(want) == len(got) and all(self._equal_inside(*pair, _inside(place, at)) for at, pair in pairs)
        if isinstance(want, str) and isinstance(got, str):
            return self._plain(want) == self._plain(got)
        close = self.tolerance and _is_number(want) and _is_number(got)
        return math.isclose(want, got, rel_tol=0, abs_tol=self.tolerance) if close else bool(want == got)

    def _equal_inside(self, want: Any, got: Any, place: str) -> bool:
        return place in self.ignore or self.equal(want, got, place)

    def _equal_mappings(self, want: dict[str, Any], got: dict[str, Any], place: str) -> bool:
        names = want.keys() if self.subset else want.keys() | got.keys()
        named = {pattern[len(place) + 1 if place else 0 :] for pattern in self.patterns if pattern.startswith(place)}
        for name in names | (named & got.keys()):
            inside = _inside(place, name)
            if inside in self.ignore:
                continue
            if name not in got or (name not in want and inside not in self.patterns):
                return False
            if not self.equal(want.get(name), got[name], inside):
                return False
        return True

    def _plain(self, text: str) -> str:
        text = _SPACES.sub(" ", text).strip() if self.ignore_whitespace else text
        return text.casefold() if self.ignore_case else text


def _inside(place: str, name: object) -> str:
    return f"{place}.{name}" if place else str(name)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


ArgumentRules = dict[str, ArgumentRule]
_EXACT: Final = ArgumentRule()


def same_call(want: FunctionCall, got: FunctionCall, rules: Mapping[str, ArgumentRule]) -> bool:
    """Whether a call is the expected one, by the rule of its tool, else by that of every tool, else exactly."""
    rule = rules.get(want.name or "", rules.get(EVERY_TOOL, _EXACT))
    return want.name == got.name and rule.equal(want.args or {}, got.args or {})


def matched_calls(
    want: Sequence[FunctionCall], got: Sequence[FunctionCall], rules: Mapping[str, ArgumentRule]
) -> dict[int, int]:
    """Which expected call each call is, by their numbers: as many as can be matched, each once."""
    fits = [[at for at, call in enumerate(want) if same_call(call, made, rules)] for made in got]
    taken: dict[int, int] = {}

    def place(number: int, tried: set[int]) -> bool:
        for at in fits[number]:
            if at not in tried:
                tried.add(at)
                if at not in taken or place(taken[at], tried):
                    taken[at] = number
                    return True
        return False

    for number in range(len(got)):
        place(number, set())
    return {number: at for at, number in taken.items()}
