"""Criteria about tool calls and agents, of any format: shares of calls, order, repetition, and who answered."""

from __future__ import annotations

import abc
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from agent_eval_action.criteria.base import ExpectedCalls, Relaxed, Sample, TurnCriterion, becomes
from agent_eval_action.criteria.deterministic.arguments import ArgumentRules, matched_calls, same_call
from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.results.decision import Unit
from agent_eval_action.results.evalset import FunctionCall, Invocation, InvocationEvents
from agent_eval_action.results.run_result import CriterionInfo, Goal, ScoreStatus, TurnScore
from agent_eval_action.results.trajectory import call_key, format_call

_SHOWN = 4
_LONGEST = 500


class MatchedCalls(TurnCriterion, abc.ABC):
    """Base of criteria that match calls with the expected ones, each once. ``arguments``: rules by tool, or ``*``."""

    needs_reference: ClassVar[bool] = True
    relaxed_when: ClassVar[Mapping[str, Relaxed]] = {"ignore_args": becomes(True)}

    ignore_args: bool = False
    arguments: ArgumentRules = Field(default_factory=dict, exclude_if=lambda rules: not rules)

    @classmethod
    def expected_calls(cls, _: CriterionInfo) -> ExpectedCalls:
        return "matched"

    @abc.abstractmethod
    def share(self, want: Sequence[FunctionCall], got: Sequence[FunctionCall], found: int) -> float:
        """The score of a turn in which ``found`` calls are expected ones."""

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        want, got = sample.case.turns[turn].tool_calls(), sample.actual[turn].tool_calls()
        if max(len(want), len(got)) > _LONGEST:
            return self.unscored(turn, f"a turn of more than {_LONGEST} tool calls is not compared call by call")
        if self.ignore_args:
            want, got = (tuple(FunctionCall(name=call.name) for call in calls) for calls in (want, got))
        try:
            matched = matched_calls(want, got, self.arguments)
        except RecursionError:
            return self.unscored(turn, "arguments of a call are nested too deeply to be compared")
        lost = [f"{format_call(call)} not called" for at, call in enumerate(want) if at not in matched.values()]
        extra = [f"{format_call(call)} was not expected" for number, call in enumerate(got) if number not in matched]
        reason = "; ".join([*lost, *extra][:_SHOWN]) or f"{plural(len(matched), 'call')} as expected"
        return TurnScore(turn=turn, score=self.share(want, got, len(matched)), reason=reason)


class TrajectoryPrecision(MatchedCalls):
    """The share of the calls made that are expected. A turn without a call has none too many: 1."""

    name: ClassVar[str] = "trajectory_precision"

    def share(self, want: Sequence[FunctionCall], got: Sequence[FunctionCall], found: int) -> float:
        del want
        return found / len(got) if got else 1.0


class TrajectoryRecall(MatchedCalls):
    """The share of the expected calls that were made. A turn that expects none misses none: 1."""

    name: ClassVar[str] = "trajectory_recall"

    def share(self, want: Sequence[FunctionCall], got: Sequence[FunctionCall], found: int) -> float:
        del got
        return found / len(want) if want else 1.0


class TrajectoryF1(MatchedCalls):
    """The harmonic mean of precision and recall; 1 where no call is expected and none made."""

    name: ClassVar[str] = "trajectory_f1"

    def share(self, want: Sequence[FunctionCall], got: Sequence[FunctionCall], found: int) -> float:
        return 2 * found / (len(want) + len(got)) if want or got else 1.0


class TrajectorySimilarity(MatchedCalls):
    """1 minus the edit distance to the expected calls (calls added, left out or exchanged), divided by the longer."""

    name: ClassVar[str] = "trajectory_similarity"

    def share(self, want: Sequence[FunctionCall], got: Sequence[FunctionCall], found: int) -> float:
        del found
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
    """1 where the turn calls the tool at all, whatever the arguments; Vertex AI has it by the same name."""

    name: ClassVar[str] = "trajectory_single_tool_use"

    tool: str = Field(min_length=1)

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        times = sum(call.name == self.tool for call in sample.actual[turn].tool_calls())
        reason = f"{self.tool} called {plural(times, 'time')}" if times else f"{self.tool} not called"
        return TurnScore(turn=turn, score=float(times > 0), reason=reason)


class RedundantCalls(TurnCriterion):
    """Calls of a turn that repeat an earlier one, with the same arguments: what a loop or a forgetful agent makes."""

    name: ClassVar[str] = "redundant_calls"
    goal: ClassVar[Goal] = "minimize"
    unit: ClassVar[Unit] = "calls"
    scale: ClassVar[tuple[float, float]] = (0.0, float("inf"))

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        calls = sample.actual[turn].tool_calls()
        try:
            times = Counter(call_key(call) for call in calls)
            first = {call_key(call): call for call in reversed(calls)}
        except RecursionError:
            return self.unscored(turn, "arguments of a call are nested too deeply to be compared")
        again = [f"{format_call(first[key])} {count} times" for key, count in times.items() if count > 1]
        reason = "; ".join(again[:_SHOWN]) or "no call is repeated"
        return TurnScore(turn=turn, score=float(sum(times.values()) - len(times)), reason=reason)


class AgentRoute(TurnCriterion):
    """1 where the turn's agents are those expected, in the order in which each first did something.

    ``agents`` are expected in every turn; without it those of the case's recorded events.
    """

    name: ClassVar[str] = "agent_route"

    agents: tuple[str, ...] = ()

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        want = self.agents or (_route(sample.case.turns[turn]) if sample.case.conversation is not None else ())
        got = _route(sample.actual[turn])
        if not want:
            reason = "the case says of no event which agent made it, and no `agents` are configured"
            return self.unscored(turn, reason, ScoreStatus.NOT_APPLICABLE)
        if not got:
            return self.unscored(turn, "the agent did not report which of its agents did what")
        same = tuple(want) == got
        reason = " → ".join(got) if same else f"{' → '.join(got)}, expected {' → '.join(want)}"
        return TurnScore(turn=turn, score=float(same), reason=reason)


def _route(turn: Invocation) -> tuple[str, ...]:
    """The authors of a turn's events, each once."""
    data = turn.intermediate_data
    events = data.invocation_events if isinstance(data, InvocationEvents) else ()
    return tuple(dict.fromkeys(event.author for event in events if event.author != "user"))


class FinalSessionState(TurnCriterion):
    """1 where the session's state at the end has everything that the case expects of it, at any depth."""

    name: ClassVar[str] = "final_session_state"

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        want = sample.case.final_session_state or {}
        if turn + 1 < len(sample.actual) or not want:
            reason = "the state is looked at after the last turn" if want else "the case expects no final_session_state"
            return self.unscored(turn, reason, ScoreStatus.NOT_APPLICABLE)
        if sample.final_session_state is None:
            return self.unscored(turn, "the state of the session is not known")
        wrong = list(_wrong(want, sample.final_session_state))
        return TurnScore(turn=turn, score=float(not wrong), reason="; ".join(wrong[:_SHOWN]) or "all as expected")


def _wrong(want: Mapping[str, Any], got: Any, place: str = "") -> list[str]:
    found = []
    for name, value in want.items():
        here = f"{place}.{name}" if place else name
        if not isinstance(got, Mapping) or name not in got:
            found.append(f"{here} is missing")
        elif isinstance(value, Mapping) and isinstance(got[name], Mapping):
            found += _wrong(value, got[name], here)
        elif got[name] != value:
            found.append(f"{here} is {_short(got[name])}, expected {_short(value)}")
    return found


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:79]}…"  # noqa: PLR2004 - a line of a terminal
