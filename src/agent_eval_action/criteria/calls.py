"""Criteria about what agents did: expected and repeated tool calls, which agents acted, session state, events."""

from __future__ import annotations

import abc
import enum
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, field_validator
from pydantic.alias_generators import to_snake

from agent_eval_action.criteria.answers import TextRule
from agent_eval_action.criteria.base import (
    ExpectedCalls,
    RegexPattern,
    Relaxed,
    Sample,
    TurnCriterion,
    becomes,
    later_in,
    matches,
)
from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.results.decision import Unit
from agent_eval_action.results.evalset import FunctionCall, Invocation, JsonObject, Replay, ReplayCase
from agent_eval_action.results.run_result import CriterionInfo, Goal, ScoreStatus, TurnScore
from agent_eval_action.results.trajectory import call_key, diff_calls, explain, format_call, format_value

_EVERY: Final = "*"
"""In ``arguments``: tools without a rule of their own. In ``ignore`` of a rule: all arguments."""
_SHOWN: Final = 4
_TOO_DEEP: Final = "arguments of a call are nested too deeply to be compared"
_LONGEST: Final = 500
_LINE: Final = 80


class ArgumentRule(TextRule):
    """How a tool's arguments are compared. Paths like ``address.zip`` or ``items.0.id`` reach inside an argument.

    ``ignore``: paths that are not compared, ``*`` for all. ``only``: the only paths to compare, all if empty.
    ``subset``: mappings at any depth may have more keys than expected. ``tolerance``: how much numbers may differ.
    ``patterns``: by path, a pattern that a text must match instead of being equal. ``ignore_case`` and
    ``ignore_whitespace`` apply to texts.
    """

    ignore: tuple[str, ...] = ()
    only: tuple[str, ...] = Field(default=(), exclude_if=lambda places: not places)
    subset: bool = False
    tolerance: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    patterns: dict[str, RegexPattern] = Field(default_factory=dict)

    def equal(self, want: Any, got: Any, place: str = "") -> bool:
        """Whether the actual value ``got`` equals the expected ``want`` under this rule."""
        if place in self.patterns:
            return isinstance(got, str) and matches(self.patterns[place], got)
        if isinstance(want, dict) and isinstance(got, dict):
            return self._equal_mappings(want, got, place)
        if isinstance(want, list) and isinstance(got, list):
            places = [_inside(place, number) for number in range(len(want))]
            items = zip(want, got, places, strict=False)
            return len(want) == len(got) and all(self.equal(*item) for item in items if self._is_compared(item[2]))
        if isinstance(want, str) and isinstance(got, str):
            return self.plain(want) == self.plain(got)
        close = self.tolerance and _is_number(want) and _is_number(got)
        return math.isclose(want, got, rel_tol=0, abs_tol=self.tolerance) if close else bool(want == got)

    def _is_compared(self, place: str) -> bool:
        """Whether ``only`` names this place, one above it or one below it, and ``ignore`` does not."""
        inside = f"{place}."
        named = (inside.startswith(f"{chosen}.") or chosen.startswith(inside) for chosen in self.only)
        return (not self.only or any(named)) and place not in self.ignore

    def _equal_mappings(self, want: dict[str, Any], got: dict[str, Any], place: str) -> bool:
        names = want.keys() if self.subset else want.keys() | got.keys()
        named = {pattern[len(place) + 1 if place else 0 :] for pattern in self.patterns if pattern.startswith(place)}
        for name in names | (named & got.keys()):
            inside = _inside(place, name)
            if not self._is_compared(inside):
                continue
            if name not in got or (name not in want and inside not in self.patterns):
                return False
            if not self.equal(want.get(name), got[name], inside):
                return False
        return True


def json_fits(expected: Any, actual: Any, *, strict: bool) -> bool:
    """Whether two JSON values are equal: 1 and 1.0 are, 1 and true are not.

    Unless ``strict``, an actual object may have extra keys.
    """
    if isinstance(expected, dict) and isinstance(actual, dict):
        if strict and len(expected) != len(actual):
            return False
        return all(key in actual and json_fits(item, actual[key], strict=strict) for key, item in expected.items())
    if isinstance(expected, list) and isinstance(actual, list):
        pairs = zip(expected, actual, strict=False)
        return len(expected) == len(actual) and all(json_fits(item, other, strict=strict) for item, other in pairs)
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    return bool(expected == actual)


def _inside(place: str, name: object) -> str:
    return f"{place}.{name}" if place else str(name)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


ArgumentRules = dict[str, ArgumentRule]


def same_call(want: FunctionCall, got: FunctionCall, rules: Mapping[str, ArgumentRule]) -> bool:
    """Whether a call is the expected one, by the tool's rule, else by the rule ``*``, else exactly."""
    rule, wanted, made = rules.get(want.name or "", rules.get(_EVERY)), want.args or {}, got.args or {}
    if want.name != got.name or rule is None:
        return want.name == got.name and wanted == made
    return _EVERY in rule.ignore or rule.equal(wanted, made)


def matched_calls(
    want: Sequence[FunctionCall], got: Sequence[FunctionCall], rules: Mapping[str, ArgumentRule]
) -> dict[int, int]:
    """Match as many calls as possible to distinct expected calls; maps indexes of ``got`` to indexes of ``want``."""
    fits = [[at for at, call in enumerate(want) if same_call(call, made, rules)] for made in got]
    taken: dict[int, int] = {}

    def place(number: int, visited: set[int]) -> bool:
        for at in fits[number]:
            if at not in visited:
                visited.add(at)
                if at not in taken or place(taken[at], visited):
                    taken[at] = number
                    return True
        return False

    for number in range(len(got)):
        place(number, set())
    return {number: at for at, number in taken.items()}


Calls = tuple[FunctionCall, ...]


class MatchType(enum.StrEnum):
    """How the calls must match; ADK also writes the first three as 0, 1, 2."""

    EXACT = "EXACT"  # the same calls, in the same order, none extra
    IN_ORDER = "IN_ORDER"  # the expected calls in their order, others in between
    ANY_ORDER = "ANY_ORDER"  # the expected calls, each as often as expected
    UNORDERED = "UNORDERED"  # the same calls in any order, none extra; ADK has no such type


_ORDER = "[Oo][Rr][Dd][Ee][Rr]"
_ANY_CASE = rf"^ *([Ee][Xx][Aa][Cc][Tt]|([Ii][Nn]|[Aa][Nn][Yy])[-_ ]{_ORDER}|[Uu][Nn]{_ORDER}[Ee][Dd]) *$"
_Written = Literal["EXACT", "IN_ORDER", "ANY_ORDER", "UNORDERED", 0, 1, 2] | Annotated[str, Field(pattern=_ANY_CASE)]
"""What editors accept by the schema: ADK reads match types in any case, and as numbers."""

_ALLOWED: dict[MatchType, frozenset[str]] = {
    MatchType.EXACT: frozenset(),
    MatchType.IN_ORDER: frozenset({"extra"}),
    MatchType.ANY_ORDER: frozenset({"extra", "moved"}),
    MatchType.UNORDERED: frozenset({"moved"}),
}


class ToolTrajectoryAvgScore(TurnCriterion):
    """ADK's trajectory criterion, with ADK's scores. ``arguments`` (rules by tool or ``*``) is not in ADK."""

    name: ClassVar[str] = "tool_trajectory_avg_score"
    by_events: ClassVar[bool] = True
    needs_reference: ClassVar[bool] = True
    relaxed_when: ClassVar[Mapping[str, Relaxed]] = {
        "match_type": later_in("EXACT", "UNORDERED", "IN_ORDER", "ANY_ORDER"),
        "ignore_args": becomes(True),
    }

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
        return "exact" if info.options.get("match_type") in (MatchType.EXACT, MatchType.UNORDERED) else "matched"

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        want, got = sample.case.turns[turn].tool_calls(), sample.actual[turn].tool_calls()
        if sample.actual[turn].uncaptured and not self.ignore_args:
            return self.unscored(turn, sample.actual[turn].uncaptured)
        try:
            agreed = self._matches(want, got)
            reason = "" if agreed else self._differences(want, got)
        except RecursionError:
            return self.unscored(turn, _TOO_DEEP)
        extra = len(got) - len(want)
        if agreed and want:
            made = "the expected call made" if len(want) == 1 else f"all {len(want)} expected calls made"
            reason = made + (f", and {plural(extra, 'other')}" if extra else "")
        elif agreed:
            reason = f"no call expected, {extra or 'none'} made"
        return TurnScore(turn=turn, score=float(agreed), reason=reason)

    def _matches(self, want: Calls, got: Calls) -> bool:
        if self.match_type is MatchType.EXACT:
            return len(want) == len(got) and all(map(self._equal, want, got))
        if self.match_type is MatchType.IN_ORDER:
            rest = iter(got)
            return all(any(self._equal(call, other) for other in rest) for call in want)
        if self.match_type is MatchType.UNORDERED and len(want) != len(got):
            return False
        if self.arguments and not self.ignore_args:
            return len(matched_calls(want, got, self.arguments)) == len(want)
        keys = (Counter(call_key(call, ignore_args=self.ignore_args) for call in calls) for calls in (want, got))
        return next(keys) <= next(keys)

    def _equal(self, want: FunctionCall, got: FunctionCall) -> bool:
        return want.name == got.name if self.ignore_args else same_call(want, got, self.arguments)

    def _differences(self, want: Calls, got: Calls) -> str:
        """Describe the first few differences and count the rest."""
        allowed = _ALLOWED[self.match_type]
        found = [d for d in diff_calls(want, got, ignore_args=self.ignore_args) if d.kind not in allowed]
        shown = "; ".join(explain(difference, ignore_args=self.ignore_args) for difference in found[:_SHOWN])
        rest = len(found) - _SHOWN
        return shown + (f"; and {plural(rest, 'more difference')}" if rest > 0 else "")


InnerCalls = Annotated[bool, Field(exclude_if=lambda counted: not counted)]
"""Also count agents that an agent calls as tools, and their calls."""


def _calls(sample: Sample, turn: int, *, inner: bool) -> tuple[FunctionCall, ...]:
    made = sample.actual[turn]
    return made.all_tool_calls() if inner else made.tool_calls()


class MatchedCalls(TurnCriterion, abc.ABC):
    """Base of criteria that match each call to one expected call. ``arguments``: rules by tool or ``*``."""

    needs_reference: ClassVar[bool] = True
    by_events: ClassVar[bool] = True
    compared_calls: ClassVar[ExpectedCalls] = "matched"
    relaxed_when: ClassVar[Mapping[str, Relaxed]] = {"ignore_args": becomes(True)}

    ignore_args: bool = False
    arguments: ArgumentRules = Field(default_factory=dict, exclude_if=lambda rules: not rules)
    inner_calls: InnerCalls = False

    @abc.abstractmethod
    def share(self, want: Sequence[FunctionCall], got: Sequence[FunctionCall], found: int) -> float:
        """The score of a turn in which ``found`` calls match."""

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        want, got = sample.case.turns[turn].tool_calls(), _calls(sample, turn, inner=self.inner_calls)
        if max(len(want), len(got)) > _LONGEST:
            return self.unscored(turn, f"a turn of more than {_LONGEST} tool calls is not compared call by call")
        if sample.actual[turn].uncaptured and not self.ignore_args:
            return self.unscored(turn, sample.actual[turn].uncaptured)
        if self.ignore_args:
            want, got = (tuple(FunctionCall(name=call.name) for call in calls) for calls in (want, got))
        try:
            matched = matched_calls(want, got, self.arguments)
        except RecursionError:
            return self.unscored(turn, _TOO_DEEP)
        lost = [f"{format_call(call)} not called" for at, call in enumerate(want) if at not in matched.values()]
        extra = [f"{format_call(call)} was not expected" for number, call in enumerate(got) if number not in matched]
        reason = "; ".join([*lost, *extra][:_SHOWN]) or f"{plural(len(matched), 'call')} as expected"
        return TurnScore(turn=turn, score=self.share(want, got, len(matched)), reason=reason)


class TrajectoryPrecision(MatchedCalls):
    """The share of actual calls that were expected; 1 for a turn without calls."""

    name: ClassVar[str] = "trajectory_precision"

    def share(self, _: Sequence[FunctionCall], got: Sequence[FunctionCall], found: int) -> float:
        return found / len(got) if got else 1.0


class TrajectoryRecall(MatchedCalls):
    """The share of expected calls that were made; 1 for a turn that expects none."""

    name: ClassVar[str] = "trajectory_recall"

    def share(self, want: Sequence[FunctionCall], _: Sequence[FunctionCall], found: int) -> float:
        return found / len(want) if want else 1.0


class TrajectoryF1(MatchedCalls):
    """The harmonic mean of precision and recall; 1 if no call is expected and none made."""

    name: ClassVar[str] = "trajectory_f1"

    def share(self, want: Sequence[FunctionCall], got: Sequence[FunctionCall], found: int) -> float:
        return 2 * found / (len(want) + len(got)) if want or got else 1.0


class TrajectorySimilarity(MatchedCalls):
    """1 minus the edit distance between actual and expected calls, divided by the length of the longer list."""

    name: ClassVar[str] = "trajectory_similarity"

    def share(self, want: Sequence[FunctionCall], got: Sequence[FunctionCall], _: int) -> float:
        if not want and not got:
            return 1.0
        row = list(range(len(got) + 1))
        for at, call in enumerate(want, 1):
            before, row[0] = row[0], at
            for number, made in enumerate(got, 1):
                exchanged = before + (not same_call(call, made, self.arguments))
                before, row[number] = row[number], min(row[number] + 1, row[number - 1] + 1, exchanged)
        return 1 - row[-1] / max(len(want), len(got))


class TrajectorySingleToolUse(TurnCriterion):
    """1 if the turn calls the tool, whatever the arguments. Vertex AI has a metric of the same name."""

    name: ClassVar[str] = "trajectory_single_tool_use"
    by_events: ClassVar[bool] = True

    tool: str = Field(min_length=1)
    inner_calls: InnerCalls = False

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        times = sum(call.name == self.tool for call in _calls(sample, turn, inner=self.inner_calls))
        reason = f"{self.tool} called {plural(times, 'time')}" if times else f"{self.tool} not called"
        return TurnScore(turn=turn, score=float(times > 0), reason=reason)


class RedundantCalls(TurnCriterion):
    """The number of calls that repeat an earlier call of the turn with the same arguments, as in a loop."""

    name: ClassVar[str] = "redundant_calls"
    by_events: ClassVar[bool] = True
    goal: ClassVar[Goal] = "minimize"
    unit: ClassVar[Unit] = "calls"
    scale: ClassVar[tuple[float, float]] = (0.0, float("inf"))

    inner_calls: InnerCalls = False

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        calls = _calls(sample, turn, inner=self.inner_calls)
        if sample.actual[turn].uncaptured:
            return self.unscored(turn, sample.actual[turn].uncaptured)
        try:
            times = Counter(call_key(call) for call in calls)
            first = {call_key(call): call for call in reversed(calls)}
        except RecursionError:
            return self.unscored(turn, _TOO_DEEP)
        again = [f"{format_call(first[key])} {count} times" for key, count in times.items() if count > 1]
        reason = "; ".join(again[:_SHOWN]) or "no call is repeated"
        return TurnScore(turn=turn, score=float(sum(times.values()) - len(times)), reason=reason)


class AgentRoute(TurnCriterion):
    """1 if the turn's agents, in the order of their first events, are the expected ones.

    ``agents`` are expected in every turn; without it, the agents of the case's recorded events.
    """

    name: ClassVar[str] = "agent_route"
    by_events: ClassVar[bool] = True

    agents: tuple[str, ...] = ()
    inner_calls: InnerCalls = False

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        want = self.agents or (_route(sample.case.turns[turn]) if sample.case.conversation is not None else ())
        got = _route(sample.actual[turn], inner=self.inner_calls)
        if not want:
            reason = "the case says of no event which agent made it, and no `agents` are configured"
            return self.unscored(turn, reason, ScoreStatus.NOT_APPLICABLE)
        if not got:
            return self.unscored(turn, "the agent did not report which of its agents did what")
        same = tuple(want) == got
        reason = " → ".join(got) if same else f"{' → '.join(got)}, expected {' → '.join(want)}"
        return TurnScore(turn=turn, score=float(same), reason=reason)


def _route(turn: Invocation, *, inner: bool = False) -> tuple[str, ...]:
    """The agents of a turn's events, each once, in order."""
    events = turn.all_events() if inner else turn.events
    return tuple(dict.fromkeys(event.author for event in events if event.author != "user"))


class FinalSessionState(TurnCriterion):
    """1 if the final session state contains everything that the case expects, at any depth."""

    name: ClassVar[str] = "final_session_state"

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        want = sample.case.final_session_state or {}
        if turn + 1 < len(sample.actual) or not want:
            reason = "the state is looked at after the last turn" if want else "the case expects no final_session_state"
            return self.unscored(turn, reason, ScoreStatus.NOT_APPLICABLE)
        if sample.final_session_state is None:
            return self.unscored(turn, "the state of the session is not known")
        wrong = list(_state_differences(want, sample.final_session_state))
        return TurnScore(turn=turn, score=float(not wrong), reason="; ".join(wrong[:_SHOWN]) or "all as expected")


def _state_differences(want: Mapping[str, Any], got: Any, place: str = "") -> list[str]:
    found = []
    for name, value in want.items():
        here = f"{place}.{name}" if place else name
        if not isinstance(got, Mapping) or name not in got:
            found.append(f"{here} is missing")
        elif isinstance(value, Mapping) and isinstance(got[name], Mapping):
            found += _state_differences(value, got[name], here)
        elif not json_fits(value, got[name], strict=True):
            found.append(f"{here} is {format_value(got[name], _LINE)}, expected {format_value(value, _LINE)}")
    return found


_FREE: Final = frozenset({"args", "response", "state_delta", "output", "custom_metadata"})
"""Objects that belong to the agent: their keys and empty values are kept as they are."""
_LEFT_OUT: Final = {
    "test": frozenset(
        {"id", "timestamp", "invocation_id", "model_version", "finish_reason", "usage_metadata", "avg_logprobs"}
        | {"cache_metadata", "logprobs_result", "citation_metadata", "interaction_id", "turn_complete"}
    ),
    "conformance": frozenset({"id", "timestamp", "invocation_id", "long_running_tool_ids", "node_info"}),
}
_STATE_OF_ADK: Final = ("_adk_recordings_config", "_adk_replay_config")
_ASKED_OF_USER: Final = frozenset({"adk_request_input", "adk_request_confirmation", "adk_request_credential"})


class RecordedEvents(TurnCriterion):
    """1 if the agent, replaying the models' recorded answers, produces the recorded events."""

    # Compares fields as `adk test` and `adk conformance test` do (google-adk 2.13), with two differences: call ids
    # are renumbered on both sides, so that fixtures need not be rebuilt, and the user's messages are left out.

    name: ClassVar[str] = "recorded_events"
    compared_calls: ClassVar[ExpectedCalls] = "exact"

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        if not isinstance(sample.case, ReplayCase):
            return self.unscored(turn, "the case replays no recording", ScoreStatus.NOT_APPLICABLE)
        made = [actual.raw_events for actual in sample.actual[: turn + 1]]
        if made[-1] is None:
            return self.unscored(turn, "the events of this run were not kept")
        replay = sample.case.replay
        problem = made[-1][-1].get("replay_problem") if made[-1] else None
        try:
            want = _comparable(replay.expected[: turn + 1], replay)
            got = _comparable([events or () for events in made], replay)
        except RecursionError:
            return self.unscored(turn, "events are nested too deeply to be compared")
        reason = str(problem) if problem else _first_difference(want, got)
        return TurnScore(turn=turn, score=float(not reason), reason=reason or "as recorded")


def _comparable(turns: Sequence[Sequence[JsonObject]], replay: Replay) -> list[Any]:
    """The last turn's events, without what differs from run to run; earlier turns only number the call ids."""
    calls = (
        part.get("function_call", {}) for events in turns for event in events for part in _parts(_without_empty(event))
    )
    ids = dict.fromkeys(call["id"] for call in calls if isinstance(call.get("id"), str))
    last = json.dumps(list(turns[-1]))
    if ids:
        numbers = {name: f"call-{number}" for number, name in enumerate(ids, 1)}
        any_id = re.compile("|".join(rf"(?<![\w-]){re.escape(name)}(?![\w-])" for name in ids))
        last = any_id.sub(lambda match: numbers[match[0]], last)
    events = [_event(event, replay) for event in json.loads(last)]
    if replay.kind == "test":  # the order of parallel agents does not matter
        events.sort(key=lambda event: (event.get("author", ""), json.dumps(event, sort_keys=True)))
    return events


def _parts(event: JsonObject) -> Sequence[JsonObject]:
    parts: Sequence[JsonObject] = event.get("content", {}).get("parts", ())
    return parts


def _event(written: JsonObject, replay: Replay) -> JsonObject:
    plain: JsonObject = _without_empty(written)
    event = {name: value for name, value in plain.items() if name not in _LEFT_OUT[replay.kind]}
    parts = _parts(event)
    for part in parts:
        part.pop("thought_signature", None)
    actions = event.get("actions", {})
    state = actions.get("state_delta", {})
    dropped = [name for name in state if name in _STATE_OF_ADK or name.endswith("_join_state")]
    for name in dropped:
        del state[name]
    if replay.kind == "conformance":
        actions.pop("requested_auth_configs", None)
        actions.pop("requested_tool_confirmations", None)
    elif any(part.get("function_call", {}).get("name") in _ASKED_OF_USER for part in parts):
        event["content"].pop("role", None)
    if not state:
        actions.pop("state_delta", None)
    if not actions:
        event.pop("actions", None)
    if "long_running_tool_ids" in event:
        event["long_running_tool_ids"] = sorted(event["long_running_tool_ids"])
    return event


def _without_empty(value: Any) -> Any:
    """Convert keys to snake_case and drop empty values, except inside the agent's own objects."""
    if isinstance(value, dict):
        named = {to_snake(name): item for name, item in value.items()}
        plain = {name: item if name in _FREE else _without_empty(item) for name, item in named.items()}
        return {name: item for name, item in plain.items() if item is not None and item not in ({}, [])}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value


def _first_difference(want: list[Any], got: list[Any]) -> str:
    lost, added = [event for event in want if event not in got], [event for event in got if event not in want]
    if not lost and not added:
        return "" if want == got else "events are repeated or in another order"
    event = (added or lost)[0]
    of_agent = f"an event of {event.get('author', 'an agent')}"
    if lost and added:
        return f"{of_agent}: {_difference(lost[0], event)}"
    shown = format_value(event.get("content", {}).get("parts") or event, _LINE)
    return f"{of_agent} {'is missing' if lost else 'is new'}: {shown}"


def _difference(want: Any, got: Any, place: str = "") -> str:
    if isinstance(want, dict) and isinstance(got, dict):
        name = next(name for name in (*want, *got) if want.get(name, _difference) != got.get(name, _difference))
        here = f"{place}.{name}" if place else str(name)
        if name in want and name in got:
            return _difference(want[name], got[name], here)
        return f"{here} is {'missing' if name in want else 'new'}: {format_value(want.get(name, got.get(name)), _LINE)}"
    if isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        number = next(number for number, item in enumerate(want) if item != got[number])
        return _difference(want[number], got[number], f"{place}[{number}]")
    return f"{place} is {format_value(got, _LINE)}, recorded {format_value(want, _LINE)}"
