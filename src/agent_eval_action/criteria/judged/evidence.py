"""What a judge is shown of a turn: texts, calls with their results, instructions, tools, sources."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Any

from agent_eval_action.model.evalset import (
    AppDetails,
    Content,
    FunctionCall,
    FunctionResponse,
    IntermediateData,
    Invocation,
    InvocationEvents,
)

Step = dict[str, Any]


def answer_text(turn: Invocation, *, intermediate: bool = False) -> str:
    """The final response; with ``intermediate`` what was said before it too, in order, joined by newlines."""
    before = [text for _, text in _texts(turn)] if intermediate else []
    return "\n".join(text for text in (*before, turn.response_text) if text)


def calls_with_results(turn: Invocation) -> list[Step]:
    """Every call in order with what it got, None where nothing came back.

    Paired by id; calls and responses without one in order, by name (ADK gives all of them the last response).
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
    """What the model cited from search, which no tool result shows."""
    data = turn.intermediate_data
    events = data.invocation_events if isinstance(data, InvocationEvents) else ()
    return [
        {"agent": event.author, "grounding": event.grounding_metadata} for event in events if event.grounding_metadata
    ]


def first_instructions(turn: Invocation) -> str:
    """The instructions of the agent that answered first; where nothing tells, of the first that is known."""
    agents = turn.app_details.agent_details if turn.app_details else {}
    data = turn.intermediate_data
    authors = [event.author for event in data.invocation_events] if isinstance(data, InvocationEvents) else []
    name = next((author for author in authors if author in agents), next(iter(agents), None))
    return agents[name].instructions if name is not None else ""


def tools(*turns: Invocation) -> dict[str, Any]:
    """The tool declarations of each agent that took part, as its first turn had them."""
    return {name: agent.tool_declarations for name, agent in _agents(turns) if agent.tool_declarations}


def all_instructions(turns: Sequence[Invocation]) -> dict[str, Any]:
    """The instructions of each agent that took part, as its first turn had them."""
    return {name: agent.instructions for name, agent in _agents(turns) if agent.instructions}


def conversation(turns: Sequence[Invocation]) -> list[Step]:
    """Every turn, counted from 1: the user's message, the steps in between, the answer."""
    return [
        {
            "turn": number,
            "user": turn.user_content.text,
            "steps": list(_steps(turn)),
            "answer": turn.response_text,
        }
        for number, turn in enumerate(turns, 1)
    ]


def _steps(turn: Invocation) -> Iterator[Step]:
    """Events as they happened; a hand-written turn does not say when a text was said, and ends with its texts."""
    data = turn.intermediate_data
    if not isinstance(data, InvocationEvents):
        for step in calls_with_results(turn):
            yield {key: value for key, value in step.items() if key != "step"}
        for author, text in _texts(turn):
            yield {"agent": author, "said": text}
        return
    for event in data.invocation_events:
        for part in event.content.parts or () if event.content else ():
            if part.text and not part.thought:
                yield {"agent": event.author, "said": part.text}
            if part.function_call:
                yield {"agent": event.author, **_call(part.function_call)}
            if part.function_response:
                yield {"tool": part.function_response.name, "result": part.function_response.response}


def _call(call: FunctionCall) -> Step:
    return {"call": call.name, "arguments": call.args or {}}


def _texts(turn: Invocation) -> Iterator[tuple[str, str]]:
    """What was said before the final response, by whom."""
    data = turn.intermediate_data
    if isinstance(data, IntermediateData):
        yield from ((author, Content(parts=parts).text) for author, parts in data.intermediate_responses)
    for event in data.invocation_events if isinstance(data, InvocationEvents) else ():
        yield event.author, event.content.text if event.content else ""


def _agents(turns: Sequence[Invocation]) -> Iterator[tuple[str, Any]]:
    seen: dict[str, Any] = {}
    for turn in turns:
        details: AppDetails = turn.app_details or AppDetails()
        for name, agent in details.agent_details.items():
            seen.setdefault(name, agent)
    return iter(seen.items())
