"""Evaluation datasets of Google's agents-cli and of Vertex AI: ``{"eval_cases": [{"prompt" or "agent_data", ...}]}``.

A case sends one message (``prompt``), or continues a conversation (``agent_data`` that ends with the user), or is
complete (``agent_data`` that ends with the agent), in which case the recorded turns are scored.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import ConfigDict, Field

from agent_eval_action.diagnostics.reader import JsonPath
from agent_eval_action.formats.adk import check_ids, warn_misspelt
from agent_eval_action.formats.adk_sessions import turns_of_events
from agent_eval_action.formats.base import Format, Reading, check_genai, objects_of, validate
from agent_eval_action.results.base import AdkModel, LenientModel
from agent_eval_action.results.evalset import (
    AgentDetails,
    AppDetails,
    Content,
    DatasetCase,
    EvalSet,
    Invocation,
    PastEvent,
)

_GENAI: Final = {
    "prompt": "Content",
    "reference": {"response": "Content"},
    "agent_data": {"turns": [{"events": [{"content": "Content"}]}]},
}
"""google-genai's types in a case."""


class _Answer(LenientModel):
    response: Content | None = None


class _Agent(LenientModel):
    agent_id: str | None = None
    agent_type: str | None = None
    description: str | None = None
    instruction: str | None = None
    tools: tuple[Any, ...] | None = None
    sub_agents: tuple[str, ...] | None = None


class _Turn(LenientModel):
    turn_index: int | None = None
    turn_id: str | None = None
    events: tuple[PastEvent, ...] = ()


class _AgentData(LenientModel):
    agents: dict[str, _Agent] = Field(default_factory=dict)
    turns: tuple[_Turn, ...] = ()


class _Case(AdkModel):
    """A case. Other fields are for metrics and are kept unchanged."""

    model_config = ConfigDict(extra="allow")

    eval_case_id: str | None = None
    prompt: Content | None = None
    agent_data: _AgentData | None = None
    responses: Any = None  # from an earlier run; the agent runs again
    reference: _Answer | None = None


class _Dataset(LenientModel):
    eval_cases: tuple[_Case, ...]


def _recognises(value: Any) -> bool:
    """An object whose cases have keys of these datasets, and none of ADK's."""
    cases = value.get("eval_cases", value.get("evalCases")) if isinstance(value, dict) else None
    keys = {key for _, case in objects_of(cases) for key in case}
    ours = keys & {"eval_case_id", "evalCaseId", "prompt", "agent_data", "agentData"}
    return bool(ours) and not keys & {"eval_id", "evalId", "conversation", "conversation_scenario"}


def _read(reading: Reading) -> EvalSet | None:
    """A set whose id is the file's path in the workspace."""
    value = reading.value
    if reading.session is not None:
        reading.error((), "an initial-session file does not go with a dataset", hint="use `agent_data` of its cases")
    key = "eval_cases" if "eval_cases" in value else "evalCases"
    ids = []
    for index, case in objects_of(value[key]):
        at: JsonPath = (key, index)
        reference = case.get("reference")
        if isinstance(reference, dict) and "response" not in reference and reference.keys() & {"role", "parts"}:
            case["reference"] = {"response": reference}  # a bare content
        check_genai(case, _GENAI, at, reading)
        warn_misspelt(case, tuple(_Case.model_fields), at, reading)
        name = "eval_case_id" if "eval_case_id" in case else "evalCaseId"
        ids.append(((*at, name), case.get(name)))
    check_ids(ids, reading)
    found = validate(_Dataset, value, None, reading)
    if found is None or reading.errors:
        return None
    cases = [
        made.at_line(reading.source.line((key, index)))
        for index, read in enumerate(found.eval_cases)
        if (made := _case(read, (key, index), reading)) is not None
    ]
    return None if reading.errors else EvalSet(eval_set_id=reading.name, eval_cases=tuple(cases))


AGENTS_CLI: Final = Format("agents_cli", _recognises, _read)


def _case(read: _Case, at: JsonPath, reading: Reading) -> DatasetCase | None:
    """Convert a case of any of the three kinds; None after an error."""
    events = [event for turn in (read.agent_data.turns if read.agent_data else ()) for event in turn.events]
    waits = bool(events) and events[-1].author == "user"
    recorded = () if waits else _recorded(read, events)
    if waits and read.prompt is not None:
        hint = "keep the one that the agent is to answer"
        reading.error(at, "the case has both `prompt` and a conversation that waits for an answer", hint=hint)
        return None
    if waits and events[-1].content is None:
        reading.error(at, "the last event is the user's, and has no content: there is nothing to send")
        return None
    if read.prompt is None and not any(event.author == "user" and event.content for event in events):
        hint = '"prompt": {"parts": [{"text": "..."}]}, or `agent_data` whose last event is the user\'s'
        reading.error(at, "the case has no message for the agent", hint=hint)
        return None
    message, history = read.prompt or Content(), events[:-1]
    if waits:
        message = events[-1].content or message
        if events[-1].state_delta:
            history.append(events[-1].model_copy(update={"content": None}))
    messages = [turn.user_content for turn in recorded] or [message]
    reference = read.reference.response if read.reference else None
    return DatasetCase(
        eval_id=read.eval_case_id if read.eval_case_id is not None else str(at[-1]),
        conversation=(
            *(Invocation(user_content=earlier) for earlier in messages[:-1]),
            Invocation(user_content=messages[-1], final_response=reference),
        ),
        history=() if recorded else tuple(history),
        recorded=recorded,
        metric_fields=read.model_dump(mode="json", exclude={"eval_case_id", "responses"}, exclude_none=True),
    )


def _recorded(read: _Case, events: list[PastEvent]) -> tuple[Invocation, ...]:
    """The turns of a complete trace, each beginning with a user message or the case's prompt; () without events."""
    agents = read.agent_data.agents if read.agent_data else {}
    details = {
        name: AgentDetails(name=name, instructions=agent.instruction or "", tool_declarations=agent.tools or ())
        for name, agent in agents.items()
    }
    begins = events and (read.prompt is not None or events[0].author != "user")
    prompt = (read.prompt or Content(parts=(), role="user")) if begins else None
    return turns_of_events(events, prompt, AppDetails(agent_details=details) if details else None)
