"""The simulated user: our own prompt, or ``custom_instructions`` rendered as ADK renders them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from agent_eval_action.agents.base import ConversationEnd
from agent_eval_action.config.criteria import UserSimulatorConfig
from agent_eval_action.llm.budget import SIMULATED_USER
from agent_eval_action.llm.client import Llm, LlmError, LlmErrorKind, LlmRequest, Message, read_prompt
from agent_eval_action.results.evalset import (
    Content,
    ConversationScenario,
    Invocation,
    Part,
    Persona,
    PersonaBehavior,
    default_behaviors,
    fill_placeholders,
    find_persona,
)
from agent_eval_action.results.run_result import AttemptError, ErrorKind

STOP_SIGNAL: Final = "</finished>"
_PROMPT: Final = "user_simulator"


@cache
def _own_prompt() -> tuple[str, str, str]:
    """Return the version, system part and message of our own prompt; ``=== name`` begins a part."""
    version, text = read_prompt(__package__, _PROMPT)
    _, system, message = re.split(r"^=== *\w+ *\n", text, flags=re.MULTILINE)
    return f"{_PROMPT}-{version}", system.strip("\n"), message.strip("\n")


def _render(
    scenario: ConversationScenario, config: UserSimulatorConfig, turns: Sequence[Invocation]
) -> tuple[str, str]:
    """Return the system part, which is the same in each turn, and the message, which grows."""
    history = history_of(turns, function_calls=config.include_function_calls)
    if config.custom_instructions is not None:
        return "", _render_custom(config.custom_instructions, scenario, history)
    _, system, message = _own_prompt()
    persona, behaviors = _persona(scenario)
    values = {"stop_signal": STOP_SIGNAL, "conversation_plan": scenario.conversation_plan}
    manner = _describe(persona.description if persona else "", behaviors)
    return (
        fill_placeholders(system, {**values, "manner": fill_placeholders(manner, values)}),
        fill_placeholders(message, {"stop_signal": STOP_SIGNAL, "conversation_history": history}),
    )


def _persona(scenario: ConversationScenario) -> tuple[Persona | None, tuple[PersonaBehavior, ...]]:
    """Return the persona and its behaviours; without a persona, those that such users are judged by."""
    persona = None if scenario.user_persona is None else find_persona(scenario.user_persona)
    return persona, persona.behaviors if persona else default_behaviors()


def _describe(who: str, behaviors: Sequence[PersonaBehavior | _BehaviorView]) -> str:
    pieces = (f"## {item.name}\n{item.description}\n{_bullets(item.behavior_instructions)}" for item in behaviors)
    return "\n\n".join(filter(None, [who, *pieces]))


def _bullets(items: Sequence[str]) -> str:
    return "\n".join(f"  * {item}" for item in items)


def _render_custom(instructions: str, scenario: ConversationScenario, history: str) -> str:
    """Render ``custom_instructions`` with jinja2 as ADK does: placeholders, filters, conditionals, loops.

    Sandboxed, because authors of the file must not reach this process's data. The history is a value, never a template.
    Raises ValueError with a message of one sentence.
    """
    from jinja2 import TemplateError  # noqa: PLC0415 - only custom instructions need it
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415 - as above

    environment = ImmutableSandboxedEnvironment(autoescape=False)
    values: dict[str, Any] = {
        "stop_signal": STOP_SIGNAL,
        "conversation_plan": scenario.conversation_plan,
        "conversation_history": _ConversationText(history),
    }
    if scenario.user_persona is not None:
        persona = find_persona(scenario.user_persona)
        behaviors = tuple(_BehaviorView(**dict(item)) for item in persona.behaviors)
        values["persona"] = _PersonaView(persona.id, persona.description, behaviors)

    def render_string(text: str) -> str:
        """Render a persona's text with placeholders, as ADK's filter does; leave conversation text alone."""
        return text if isinstance(text, _ConversationText) else environment.from_string(text or "").render(values)

    environment.filters["render_string_filter"] = render_string
    try:
        return environment.from_string(instructions).render(values)
    except (TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as why:
        raise ValueError(f"the custom instructions cannot be rendered: {why}") from why


class _ConversationText(str):
    """Text of the conversation, which is never rendered as a template."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _BehaviorView:
    """A behaviour as ADK's templates see it. They must not reach the methods of a pydantic model."""

    name: str
    description: str
    behavior_instructions: tuple[str, ...]
    violation_rubrics: tuple[str, ...]

    def get_behavior_instructions_str(self) -> str:
        return _bullets(self.behavior_instructions)

    def get_violation_rubrics_str(self) -> str:
        return _bullets(self.violation_rubrics)


@dataclass(frozen=True, slots=True)
class _PersonaView:
    """A persona as templates see it; ``{{ persona }}`` gives its description and behaviours, placeholders filled."""

    id: str
    description: str
    behaviors: tuple[_BehaviorView, ...]

    def __str__(self) -> str:
        return fill_placeholders(_describe(self.description, self.behaviors), {"stop_signal": STOP_SIGNAL})


def history_of(turns: Sequence[Invocation], *, function_calls: bool) -> str:
    """Return the conversation as JSON lines, so that no text in it can pass for an entry of its own.

    Without thoughts; with calls and their results if ``function_calls``.
    """
    entries = (entry for turn in turns for entry in _entries(turn, function_calls=function_calls))
    return "\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)


def _entries(turn: Invocation, *, function_calls: bool) -> Iterator[dict[str, Any]]:
    def texts(who: str, content: Content | None) -> Iterator[dict[str, Any]]:
        parts = (content.parts if content else None) or ()
        return ({"from": who, "text": part.text} for part in parts if part.text and not part.thought)

    yield from texts("user", turn.user_content)
    for event in turn.events:
        for part in event.parts:
            if part.text and not part.thought:
                yield {"from": "agent", "text": part.text}
            elif function_calls and (call := part.function_call):
                yield {"from": "agent", "calls": call.name, "args": call.args or {}}
            elif function_calls and (answer := part.function_response):
                yield {"from": "tool", "tool": answer.name, "returned": answer.response}
    yield from texts("agent", turn.final_response)


@dataclass(frozen=True, slots=True)
class SimulatedUser:
    """A ``ConversationUser``: sends the starting prompt, then a message from the model after each answer.

    Stateless: the same turns lead to the same request. ``repeat`` is part of the request, so that a cache keeps the
    repeats of a case apart; the request's ``sample`` is the number of the turn.
    """

    llm: Llm | None
    scenario: ConversationScenario
    config: UserSimulatorConfig
    repeat: int = 0

    async def next(self, turns: Sequence[Invocation]) -> Content | ConversationEnd | AttemptError:
        """Return the next message. The stop signal, in upper or lower case, ends it; an empty message is an error."""
        limit = self.config.max_allowed_invocations
        if 0 <= limit <= len(turns):
            return ConversationEnd("turn_limit")
        text = await self._ask(turns) if turns else self.scenario.starting_prompt
        if isinstance(text, AttemptError):
            return text
        if turns and STOP_SIGNAL.lower() in text.lower():
            return ConversationEnd("stop_signal")
        if turns and not text.strip():
            return _error("the model's message was empty")
        return Content(role="user", parts=(Part(text=text),))

    async def _ask(self, turns: Sequence[Invocation]) -> str | AttemptError:
        if self.llm is None:
            return _error("this run has no model to play the user")
        try:
            system, message = _render(self.scenario, self.config, turns)
        except ValueError as error:  # from rendering the custom instructions
            return _error(str(error))
        request = LlmRequest(
            model=self.config.model,
            messages=(Message("user", message),),
            system=system,
            options=self.config.model_configuration or {},
            purpose=SIMULATED_USER,
            prompt_version=_own_prompt()[0],
            sample=len(turns),
            repeat=self.repeat,
        )
        reply = await self.llm.generate(request)
        if isinstance(reply, LlmError):  # an exhausted budget ends the run; no error here is the agent's
            return _error(reply.message, ErrorKind.STOPPED if reply.kind is LlmErrorKind.BUDGET else ErrorKind.USER)
        return reply.text


def _error(message: str, kind: ErrorKind = ErrorKind.USER) -> AttemptError:
    return AttemptError(kind=kind, message=f"the simulated user could not go on: {message}")


def reason_not_playable(scenario: ConversationScenario, config: UserSimulatorConfig) -> str:
    """Return why this scenario cannot be played, or "". Renders the instructions to find out."""
    if config.max_allowed_invocations == 0:
        return "max_allowed_invocations is 0, so the user never says anything"
    if config.custom_instructions is None:
        return ""
    if scenario.user_persona is not None and "persona" not in config.placeholders():
        return "custom_instructions need the placeholder {{ persona }}, because the scenario has a user_persona"
    try:
        _render(scenario, config, ())
    except ValueError as error:
        return str(error)
    return ""


def simulator_digest(scenario: ConversationScenario, config: UserSimulatorConfig) -> str:
    """Return 16 hex digits that identify the user. Conversations with different users are not comparable.

    They cover the behaviours' texts: the file may only have a persona's id, and we supply its texts.
    """
    persona, behaviors = _persona(scenario)
    fields = {
        "config": config.model_dump(mode="json"),
        "persona": persona and persona.model_dump(mode="json"),
        "behaviors": [behavior.model_dump(mode="json") for behavior in behaviors],
        "prompt": _own_prompt()[0],
    }
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
