"""What a judge sees of a turn: texts, calls with results, instructions, tools, sources."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_eval_action.criteria.judge import as_json
from agent_eval_action.results.evalset import (
    AgentDetails,
    Content,
    FunctionCall,
    FunctionResponse,
    IntermediateData,
    Invocation,
    InvocationEvent,
    InvocationEvents,
    Part,
)

_CODE = ("executable_code", "code_execution_result")  # the model's built-in tool, which ADK leaves out

Step = dict[str, Any]


def answer_text(turn: Invocation, *, intermediate: bool = False) -> str:
    """The final response; with ``intermediate``, preceded by the earlier texts, one per line."""
    before = [text for _, text in _texts(turn)] if intermediate else []
    return "\n".join(text for text in (*before, turn.response_text) if text)


def calls_with_results(turn: Invocation) -> list[Step]:
    """Every call in order with its response, or None.

    They are paired by id; without ids, by name and order (ADK gives all of these the last response).
    """
    by_id: dict[str, FunctionResponse] = {}
    by_name: defaultdict[str | None, deque[FunctionResponse]] = defaultdict(deque)
    for response in turn.tool_responses():
        if response.id:
            by_id[response.id] = response
        else:
            by_name[response.name].append(response)
    steps = []
    for number, call in enumerate(turn.tool_calls(), 1):
        found = by_id.get(call.id) if call.id else None
        if found is None and by_name[call.name]:
            found = by_name[call.name].popleft()
        steps.append({"step": number, **_call(call), "result": found.response if found else None})
    return steps


def sources(turn: Invocation) -> list[Step]:
    """What the model cited from search; no tool result contains it."""
    return _grounding_steps(turn.events, "agent")


def first_instructions(turn: Invocation) -> str:
    """The instructions of the agent that answered first; if unknown, of the first agent listed."""
    agents = _agents([turn])
    authors = (event.author for event in turn.events)
    name = next((author for author in authors if author in agents), next(iter(agents), None))
    return agents[name].instructions if name is not None else ""


def tools(*turns: Invocation) -> dict[str, Any]:
    """The tool declarations of each agent that took part, as of its first turn."""
    return {name: agent.tool_declarations for name, agent in _agents(turns).items() if agent.tool_declarations}


def all_instructions(turns: Sequence[Invocation]) -> dict[str, Any]:
    """The instructions of each agent that took part, as of its first turn."""
    return {name: agent.instructions for name, agent in _agents(turns).items() if agent.instructions}


def conversation(turns: Sequence[Invocation]) -> list[Step]:
    """Every turn, numbered from 1: the user's message, the steps, the answer."""
    return [
        {"turn": number, "user": turn.user_content.text, "steps": list(_steps(turn)), "answer": turn.response_text}
        for number, turn in enumerate(turns, 1)
    ]


def _steps(turn: Invocation) -> Iterator[Step]:
    """Events in order; hand-written turns do not place their texts among the calls, so texts come last."""
    if not isinstance(turn.intermediate_data, InvocationEvents):
        for step in calls_with_results(turn):
            yield {key: value for key, value in step.items() if key != "step"}
        for author, text in _texts(turn):
            yield {"agent": author, "said": text}
    for event in turn.events:
        for part in event.parts:
            if part.text and not part.thought:
                yield {"agent": event.author, "said": part.text}
            if part.function_call:
                yield {"agent": event.author, **_call(part.function_call)}
            if part.function_response:
                yield {"tool": part.function_response.name, "result": part.function_response.response}


def _call(call: FunctionCall) -> Step:
    return {"call": call.name, "arguments": call.args or {}}


def _texts(turn: Invocation) -> Iterator[tuple[str, str]]:
    """The texts before the final response, with their authors."""
    data = turn.intermediate_data
    if isinstance(data, IntermediateData):
        yield from ((author, Content(parts=parts).text) for author, parts in data.intermediate_responses)
    yield from ((event.author, event.content.text if event.content else "") for event in turn.events)


def _grounding_steps(events: Sequence[InvocationEvent], author: str) -> list[Step]:
    """The sources of these events; ``author`` is the prompt's key for the citing agent."""
    return [
        {author: event.author, "grounding": event.grounding_metadata} for event in events if event.grounding_metadata
    ]


def _agents(turns: Sequence[Invocation]) -> Mapping[str, AgentDetails]:
    """The agents that took part, each as of its first turn."""
    found: dict[str, AgentDetails] = {}
    for turn in turns:
        found = {**(turn.app_details.agent_details if turn.app_details else {}), **found}
    return found


@dataclass(frozen=True, slots=True)
class Passage:
    """A text of the agent and its context: texts by label of the prompt.

    Context texts with several items are JSON, so that nothing said can pass for an event.
    ``intermediate``: not the turn's final response.
    """

    text: str
    context: Mapping[str, str]
    intermediate: bool = False


def passages(turn: Invocation, *, intermediate: bool) -> tuple[Passage, ...]:
    """The non-blank texts of a turn to judge; with ``intermediate``, also those before the final response.

    As in ADK, the context of an intermediate text is the earlier events and the grounding of its own event; that of
    the final response is the whole turn. Hand-written turns do not order texts and calls: the calls are assumed to
    come first, so that nothing the agent learnt from tools looks invented.
    """
    data, events = turn.intermediate_data, turn.events
    if isinstance(data, IntermediateData):
        calls = tuple(Part(function_call=call) for call in data.tool_uses)
        responses = tuple(Part(function_response=response) for response in data.tool_responses)
        written = [("", calls), ("", responses), *data.intermediate_responses]
        events = tuple(InvocationEvent(author=author, content=Content(parts=parts)) for author, parts in written)
    found: list[Passage] = []
    for number, event in enumerate(events if intermediate else ()):
        if texts := [part.text or "" for part in event.parts if _is_spoken(part)]:
            context = _context(turn, (*events[:number], event.model_copy(update={"content": None})))
            found += [Passage(text, context, intermediate=True) for text in texts]
    if turn.response_text.strip():
        found.append(Passage(turn.response_text, _context(turn, events)))
    return tuple(found)


def _is_spoken(part: Part) -> bool:
    return bool(part.text and part.text.strip() and not part.thought)


def _context(turn: Invocation, events: Sequence[InvocationEvent]) -> Mapping[str, str]:
    instructions = [f"{name}:\n{text}" for name, text in all_instructions([turn]).items()]
    return {
        **{f"context_instructions_{number}": text for number, text in enumerate(instructions, 1)},
        "context_user_message": turn.user_content.text,
        "context_tool_declarations": as_json(tools(turn)),
        "context_grounding": as_json(_grounding_steps(events, "author")),
        "context_events": as_json([known for event in events for known in _judge_steps(event)]),
    }


def _judge_steps(event: InvocationEvent) -> Iterator[Step]:
    """An event for the judge: its texts, calls and responses, with the author."""
    author = {"agent": event.author} if event.author else {}
    for part in event.parts:
        if _is_spoken(part):
            yield {**author, "said": part.text}
        if part.function_call:
            yield {**author, "called": _call_fields(part.function_call)}
        if part.function_response:
            yield {"returned": _call_fields(part.function_response)}
        for key in _CODE:
            if value := (part.model_extra or {}).get(key):
                yield {key: value}


def _call_fields(value: FunctionCall | FunctionResponse) -> Step:
    fields = vars(value)
    return {key: fields[key] for key in ("id", "name", "args", "response") if fields.get(key) is not None}
