"""Builds cases from what an agent did, and compares a case's expectations with an agent's turns."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent_eval_action.llm.client import sendable_json
from agent_eval_action.results.evalset import EvalCase, FunctionCall, Invocation, JsonObject, SessionInput
from agent_eval_action.results.redaction import Redaction


def case_of_turns(
    turns: Iterable[Invocation],
    name: str,
    final_state: JsonObject | None = None,
    *,
    session: SessionInput | None = None,
    redaction: Redaction | None = None,
) -> JsonObject:
    """Return a case, in the schema of ADK's eval sets, that expects what happened in these turns.

    ``session``: the conversation's initial session. ``final_state`` becomes an expectation if it differs from the
    initial state. ``redaction`` removes secrets.
    """
    case: JsonObject = {"eval_id": name, "conversation": [_turn(turn) for turn in turns]}
    begin = session.state if session is not None else {}
    if session is not None:
        case["session_input"] = session.model_dump(mode="json", exclude_defaults=True)
    if final_state and final_state != begin:
        case["final_session_state"] = final_state
    case = sendable_json(case)  # eval files cannot hold lone surrogates
    return redaction.value(case) if redaction is not None else case


def _turn(turn: Invocation) -> JsonObject:
    user = turn.user_content
    made: JsonObject = {"user_content": {"parts": user.wire().get("parts", []), "role": user.role or "user"}}
    if turn.response_text:
        made["final_response"] = {"parts": [{"text": turn.response_text}], "role": "model"}
    made["intermediate_data"] = {"tool_uses": [call_value(call) for call in turn.tool_calls()]}
    return made


@dataclass(frozen=True, slots=True)
class ExpectedTurn:
    """The expectations of a turn. ``calls`` or ``answer`` is None if the case expects nothing of it."""

    user: str
    calls: tuple[FunctionCall, ...] | None = None
    answer: str | None = None

    @classmethod
    def of_turn(cls, turn: Invocation) -> ExpectedTurn:
        """Return the expectations in an eval file's turn; for an agent's turn, everything the agent did."""
        calls = turn.tool_calls() if turn.intermediate_data is not None else None
        return cls(turn.user_content.text, calls, turn.response_text if turn.final_response else None)

    @property
    def comparable(self) -> tuple[Any, ...]:
        """The key by which turns are compared: names and arguments of calls without ids, and the answer."""
        return json.dumps(self.to_json()["tool_calls"], sort_keys=True, default=str), self.answer or None

    def to_json(self) -> dict[str, Any]:
        """Return the form that users edit."""
        calls = None if self.calls is None else [call_value(call) for call in self.calls]
        return {"user": self.user, "tool_calls": calls, "answer": self.answer}

    def differing_from(self, before: ExpectedTurn) -> ExpectedTurn:
        """Return what to write into a turn that expects ``before``: None for what stays."""
        calls = None if self.comparable[0] == before.comparable[0] else self.calls
        return replace(self, calls=calls, answer=None if self.answer == before.answer else self.answer or "")

    def changed_by(self, edited: Mapping[str, Any]) -> ExpectedTurn:
        """Return the turn with a user's edits. Raises ValueError with a sentence."""
        calls, answer = edited.get("tool_calls"), edited.get("answer")
        whole = isinstance(answer, str | None) and isinstance(calls, list | None)
        if not whole or not all(map(_is_call, calls or ())):
            call = '{"name": "roll_die", "args": {"sides": 6}}'
            raise ValueError(f'"tool_calls" is null or a list of {call}, and "answer" is null or a text')
        made = None if calls is None else tuple(FunctionCall(name=c["name"], args=c.get("args")) for c in calls)
        return replace(self, calls=made, answer=answer)


def _is_call(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str) and isinstance(value.get("args", {}), dict)


def call_value(call: FunctionCall) -> dict[str, Any]:
    """Return a call as eval files write it: name and arguments, without the id."""
    return {"name": call.name or "", "args": call.args or {}}


def expected_turns(case: EvalCase) -> tuple[ExpectedTurn, ...]:
    """Return the expectations of each turn of the case."""
    return tuple(map(ExpectedTurn.of_turn, case.turns))


def proposed_turns(
    expected: Sequence[ExpectedTurn], made: Sequence[Invocation], *, calls_count: bool
) -> tuple[ExpectedTurn, ...]:
    """Return expectations that the agent's turns ``made`` would meet.

    If the case expects only calls, no answer is added; if it expects only an answer, calls are added only if a
    criterion scores them (``calls_count``). Turns that the agent did not reach keep their expectations.
    """
    turns = []
    for turn, made_turn in zip(expected, made, strict=False):
        done, nothing = ExpectedTurn.of_turn(made_turn), turn.calls is None and turn.answer is None
        wants_calls = turn.calls is not None or nothing or (calls_count and done.calls)
        wants_answer = turn.answer is not None or nothing
        calls, answer = (done.calls or () if wants_calls else None), (done.answer or "" if wants_answer else None)
        turns.append(replace(turn, calls=calls, answer=answer))
    return (*turns, *expected[len(turns) :])


def same_turns(before: Iterable[ExpectedTurn], after: Iterable[ExpectedTurn]) -> bool:
    """Return whether both expect the same."""
    return [turn.comparable for turn in before] == [turn.comparable for turn in after]


def most_frequent(conversations: Sequence[Sequence[Invocation]]) -> tuple[int, int]:
    """Return the first index of the most frequent conversation, by calls and answers, and its count."""
    keys = [tuple(ExpectedTurn.of_turn(turn).comparable for turn in turns) for turns in conversations]
    key, count = Counter(keys).most_common(1)[0]
    return keys.index(key), count
