"""What an agent's text is held against: everything that was known in its turn when the text was written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_eval_action.criteria.judge import as_json
from agent_eval_action.model.evalset import (
    FunctionCall,
    FunctionResponse,
    IntermediateData,
    Invocation,
    InvocationEvent,
    InvocationEvents,
    Part,
)

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
    steps = _steps(turn.intermediate_data)
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


def _steps(data: InvocationEvents | IntermediateData | None) -> tuple[_Step, ...]:
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
