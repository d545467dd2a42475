"""tool_trajectory_avg_score: did each turn make the expected tool calls? 1 or 0 a turn."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from agent_eval_action.criteria.base import ExpectedCalls, Relaxed, Sample, TurnCriterion, becomes, later_in
from agent_eval_action.criteria.deterministic.arguments import ArgumentRules, matched_calls, same_call
from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.results.evalset import FunctionCall
from agent_eval_action.results.run_result import CriterionInfo, TurnScore
from agent_eval_action.results.trajectory import call_key, diff_calls, explain

Calls = tuple[FunctionCall, ...]

_SHOWN = 4


class MatchType(enum.StrEnum):
    """How the calls must match; ADK also writes them 0, 1, 2."""

    EXACT = "EXACT"  # the same calls, in the same order, none extra
    IN_ORDER = "IN_ORDER"  # the expected calls in their order, others in between
    ANY_ORDER = "ANY_ORDER"  # the expected calls, each as often as expected


_ANY_CASE = r"^ *([Ee][Xx][Aa][Cc][Tt]|([Ii][Nn]|[Aa][Nn][Yy])[-_ ][Oo][Rr][Dd][Ee][Rr]) *$"
_Written = Literal["EXACT", "IN_ORDER", "ANY_ORDER", 0, 1, 2] | Annotated[str, Field(pattern=_ANY_CASE)]
"""What the schema lets an editor accept: ADK reads a match type in any case, and by number."""

_ALLOWED: dict[MatchType, frozenset[str]] = {
    MatchType.EXACT: frozenset(),
    MatchType.IN_ORDER: frozenset({"extra"}),
    MatchType.ANY_ORDER: frozenset({"extra", "moved"}),
}


class ToolTrajectoryAvgScore(TurnCriterion):
    """ADK's trajectory criterion, with ADK's scores. ``arguments`` are rules by tool or ``*``; ADK has none."""

    name: ClassVar[str] = "tool_trajectory_avg_score"
    needs_reference: ClassVar[bool] = True
    relaxed_when: ClassVar[Mapping[str, Relaxed]] = {"match_type": later_in(*MatchType), "ignore_args": becomes(True)}

    match_type: MatchType = MatchType.EXACT
    ignore_args: bool = False
    arguments: ArgumentRules = Field(default_factory=dict, exclude_if=lambda rules: not rules)

    @field_validator("match_type", mode="before", json_schema_input_type=_Written)
    @classmethod
    def _adk_spellings(cls, value: Any) -> Any:
        if isinstance(value, int | float) and not isinstance(value, MatchType) and value in (0, 1, 2):
            return list(MatchType)[int(value)]
        if isinstance(value, str):
            return value.strip().upper().replace("-", "_").replace(" ", "_")
        return value

    @classmethod
    def expected_calls(cls, info: CriterionInfo) -> ExpectedCalls:
        return "exact" if info.options.get("match_type") == MatchType.EXACT else "matched"

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        want, got = sample.case.turns[turn].tool_calls(), sample.actual[turn].tool_calls()
        try:
            agreed = self._matches(want, got)
            reason = _agreement(want, got) if agreed else self._differences(want, got)
        except RecursionError:
            return self.unscored(turn, "arguments of a call are nested too deeply to be compared")
        return TurnScore(turn=turn, score=float(agreed), reason=reason)

    def _matches(self, want: Calls, got: Calls) -> bool:
        if self.match_type is MatchType.EXACT:
            return len(want) == len(got) and all(map(self._equal, want, got))
        if self.match_type is MatchType.IN_ORDER:
            rest = iter(got)
            return all(any(self._equal(call, other) for other in rest) for call in want)
        if self.arguments and not self.ignore_args:
            return len(matched_calls(want, got, self.arguments)) == len(want)
        keys = (Counter(call_key(call, ignore_args=self.ignore_args) for call in calls) for calls in (want, got))
        return next(keys) <= next(keys)

    def _equal(self, want: FunctionCall, got: FunctionCall) -> bool:
        if self.arguments and not self.ignore_args:
            return same_call(want, got, self.arguments)
        return want.name == got.name and (self.ignore_args or (want.args or {}) == (got.args or {}))

    def _differences(self, want: Calls, got: Calls) -> str:
        """The first few differences in words, and how many more there are."""
        allowed = _ALLOWED[self.match_type]
        found = [d for d in diff_calls(want, got, ignore_args=self.ignore_args) if d.kind not in allowed]
        shown = "; ".join(explain(difference, ignore_args=self.ignore_args) for difference in found[:_SHOWN])
        rest = len(found) - _SHOWN
        return shown + (f"; and {plural(rest, 'more difference')}" if rest > 0 else "")


def _agreement(want: Calls, got: Calls) -> str:
    if not want:
        return "no call expected" + (f", {len(got)} made" if got else ", none made")
    extra = len(got) - len(want)
    made = "the expected call made" if len(want) == 1 else f"all {len(want)} expected calls made"
    return made + (f", and {plural(extra, 'other')}" if extra else "")
