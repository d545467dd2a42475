"""What a judge is shown of a turn: texts, calls with their results, instructions, tools, sources."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_eval_action.criteria.judge.base import as_json
from agent_eval_action.results.evalset import (
    AppDetails,
    Content,
    FunctionCall,
    FunctionResponse,
    IntermediateData,
    Invocation,
    InvocationEvent,
    InvocationEvents,
    Part,
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


Known = dict[str, Any]
"""Something that became known in a turn, as the judge reads it: what was said, called or returned, and by whom."""

_CODE = ("executable_code", "code_execution_result")  # the model's own tool, which ADK leaves out


@dataclass(frozen=True, slots=True)
class Passage:
    """A text the agent wrote, and what there was to go by: texts by the names the prompt knows them by.

    Where more than one thing is in a text it is JSON, so that nothing said can pass for something that happened.
    ``intermediate``: not the turn's final response.
    """

    text: str
    context: Mapping[str, str]
    intermediate: bool = False


@dataclass(frozen=True, slots=True)
class _Step:
    """One event of a turn, whichever shape it was recorded in."""

    author: str = ""
    parts: tuple[Part, ...] = ()
    grounding: Any = None


def passages(turn: Invocation, *, intermediate: bool) -> tuple[Passage, ...]:
    """The texts of a turn to judge, blank ones left out; with ``intermediate`` those before the final response too.

    As in ADK an intermediate text has what earlier events brought, and the grounding of its own; the final
    response has the whole turn.
    """
    steps = _steps_grounds(turn.intermediate_data)
    found: list[Passage] = []
    for number, step in enumerate(steps if intermediate else ()):
        texts = [part.text for part in step.parts if _spoken(part)]
        if texts:
            before = (*steps[:number], _Step(step.author, grounding=step.grounding))
            context = _context(turn, before)
            found += [Passage(text or "", context, intermediate=True) for text in texts]
    if turn.response_text.strip():
        found.append(Passage(turn.response_text, _context(turn, steps)))
    return tuple(found)


def _spoken(part: Part) -> bool:
    return bool(part.text and part.text.strip() and not part.thought)


def _steps_grounds(data: InvocationEvents | IntermediateData | None) -> tuple[_Step, ...]:
    if isinstance(data, IntermediateData):
        return tuple(_written_by_hand(data))
    return tuple(_recorded(event) for event in (data.invocation_events if data else ()))


def _recorded(event: InvocationEvent) -> _Step:
    parts = event.content.parts if event.content else None
    return _Step(event.author, parts or (), event.grounding_metadata)


def _written_by_hand(data: IntermediateData) -> Iterator[_Step]:
    """What this shape says, which is not when a text was written.

    The tools count as asked before, so that nothing the agent learnt from them is taken for invented.
    """
    yield _Step(parts=tuple(Part(function_call=call) for call in data.tool_uses))
    yield _Step(parts=tuple(Part(function_response=response) for response in data.tool_responses))
    for author, parts in data.intermediate_responses:
        yield _Step(author, parts)


def _context(turn: Invocation, steps: Sequence[_Step]) -> Mapping[str, str]:
    agents = turn.app_details.agent_details if turn.app_details else {}
    told = [f"{name}:\n{agent.instructions}" for name, agent in agents.items() if agent.instructions]
    tools = {name: agent.tool_declarations for name, agent in agents.items() if agent.tool_declarations}
    found = [{"author": step.author, "grounding": step.grounding} for step in steps if step.grounding]
    return {
        **{f"context_instructions_{number}": text for number, text in enumerate(told, 1)},
        "context_user_message": turn.user_content.text,
        "context_tool_declarations": as_json(tools),
        "context_grounding": as_json(found),
        "context_events": as_json([known for step in steps for known in _known(step)]),
    }


def _known(step: _Step) -> Iterator[Known]:
    for part in step.parts:
        by = {"agent": step.author} if step.author else {}
        if _spoken(part):
            yield {**by, "said": part.text}
        if part.function_call:
            yield {**by, "called": _plain(part.function_call)}
        if part.function_response:
            yield {"returned": _plain(part.function_response)}
        for key in _CODE:
            if value := (part.model_extra or {}).get(key):
                yield {key: value}


def _plain(value: FunctionCall | FunctionResponse) -> Known:
    fields = vars(value)
    return {key: fields[key] for key in ("id", "name", "args", "response") if fields.get(key) is not None}
