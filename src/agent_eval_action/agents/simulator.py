"""What a simulated user is told: our own prompt, or the user's ``custom_instructions`` as ADK renders them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agent_eval_action.agents.base import ConversationEnd
from agent_eval_action.agents.prompts import load
from agent_eval_action.config.criteria import UserSimulatorConfig
from agent_eval_action.llm.budget import SIMULATED_USER
from agent_eval_action.llm.client import Llm, LlmError, LlmErrorKind, LlmReply, LlmRequest, Message
from agent_eval_action.results.evalset import (
    Content,
    ConversationScenario,
    IntermediateData,
    Invocation,
    InvocationEvents,
    Part,
    Persona,
    PersonaBehavior,
)
from agent_eval_action.results.personas import default_behaviors, fill_placeholders, find_persona
from agent_eval_action.results.run_result import AttemptError, ErrorKind

STOP_SIGNAL = "</finished>"
_PROMPT = "user_simulator"


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """The two halves of a request: what stays the same over a conversation, and what grows."""

    system: str
    message: str


def prompt_version() -> str:
    """Of our own prompt and of how history is written into any."""
    return load(_PROMPT).version


def render_own_prompt(scenario: ConversationScenario, history: str) -> RenderedPrompt:
    """Our own prompt for this scenario."""
    parts = load(_PROMPT).parts
    stop = {"stop_signal": STOP_SIGNAL}
    fixed = {**stop, "manner": _manner(scenario), "conversation_plan": scenario.conversation_plan}
    return RenderedPrompt(
        fill_placeholders(parts["system"], fixed),
        fill_placeholders(parts["message"], {**stop, "conversation_history": history}),
    )


def behaviors_of(scenario: ConversationScenario) -> tuple[PersonaBehavior, ...]:
    """How the user of a scenario behaves: as its persona, else as what users without one are judged by."""
    return default_behaviors() if scenario.user_persona is None else find_persona(scenario.user_persona).behaviors


def _manner(scenario: ConversationScenario) -> str:
    persona = None if scenario.user_persona is None else find_persona(scenario.user_persona)
    values = {"stop_signal": STOP_SIGNAL, "conversation_plan": scenario.conversation_plan}
    return fill_placeholders(_described(persona.description if persona else "", behaviors_of(scenario)), values)


def _described(who: str, behaviors: Sequence[PersonaBehavior | _BehaviorView]) -> str:
    pieces = [f"## {item.name}\n{item.description}\n{_listed(item.behavior_instructions)}" for item in behaviors]
    return "\n\n".join([*([who] if who else []), *pieces])


def render_custom_prompt(instructions: str, scenario: ConversationScenario, history: str) -> RenderedPrompt:
    """``custom_instructions`` rendered with jinja2 as in ADK: its placeholders, filters, conditionals, loops.

    Sandboxed, because who changes the file must not reach what this process knows. History is a value and never a
    template. Raises ValueError in one sentence.
    """
    from jinja2 import TemplateError  # noqa: PLC0415 - needed for these alone
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415 - as above

    environment = ImmutableSandboxedEnvironment(autoescape=False)
    values: dict[str, Any] = {
        "stop_signal": STOP_SIGNAL,
        "conversation_plan": scenario.conversation_plan,
        "conversation_history": _ConversationText(history),
    }
    if scenario.user_persona is not None:
        values["persona"] = _PersonaView(find_persona(scenario.user_persona))

    def render_string(text: str) -> str:
        """The filter of ADK's own prompts, for a persona's texts that hold placeholders; never for what was said."""
        return text if isinstance(text, _ConversationText) else environment.from_string(text or "").render(values)

    environment.filters["render_string_filter"] = render_string
    try:
        return RenderedPrompt("", environment.from_string(instructions).render(values))
    except (
        TemplateError,
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise ValueError(f"the custom instructions cannot be rendered: {error}") from error


class _ConversationText(str):
    """Text of the conversation."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _BehaviorView:
    """A behaviour as templates written for ADK see it."""

    name: str
    description: str
    behavior_instructions: tuple[str, ...]
    violation_rubrics: tuple[str, ...]

    def get_behavior_instructions_str(self) -> str:
        return _listed(self.behavior_instructions)

    def get_violation_rubrics_str(self) -> str:
        return _listed(self.violation_rubrics)


class _PersonaView:
    """A persona as templates see it; ``{{ persona }}`` alone is its description and behaviours, placeholders filled."""

    def __init__(self, persona: Persona) -> None:
        self.id = persona.id
        self.description = persona.description
        self.behaviors = tuple(
            _BehaviorView(item.name, item.description, item.behavior_instructions, item.violation_rubrics)
            for item in persona.behaviors
        )

    def __str__(self) -> str:
        return fill_placeholders(_described(self.description, self.behaviors), {"stop_signal": STOP_SIGNAL})


def _listed(items: Sequence[str]) -> str:
    return "\n".join(f"  * {item}" for item in items)


def history_of(turns: Sequence[Invocation], *, function_calls: bool) -> str:
    """The conversation as JSON, one entry a line: no text in it can pass for an entry of its own.

    Texts without thoughts; calls and their results when they are asked for.
    """
    entries = [entry for turn in turns for entry in _entries(turn, function_calls=function_calls)]
    return "\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)


def _entries(turn: Invocation, *, function_calls: bool) -> Iterator[dict[str, Any]]:
    yield from _texts("user", turn.user_content)
    for part in _parts_between(turn.intermediate_data):
        if part.text and not part.thought:
            yield {"from": "agent", "text": part.text}
        elif function_calls and part.function_call:
            yield {"from": "agent", "calls": part.function_call.name, "args": part.function_call.args or {}}
        elif function_calls and part.function_response:
            yield {"from": "tool", "tool": part.function_response.name, "returned": part.function_response.response}
    if turn.final_response:
        yield from _texts("agent", turn.final_response)


def _texts(who: str, content: Content) -> Iterator[dict[str, Any]]:
    for part in content.parts or ():
        if part.text and not part.thought:
            yield {"from": who, "text": part.text}


def _parts_between(data: IntermediateData | InvocationEvents | None) -> Iterator[Part]:
    for event in data.invocation_events if isinstance(data, InvocationEvents) else ():
        if event.content:
            yield from event.content.parts or ()


@dataclass(frozen=True, slots=True)
class SimulatedUser:
    """A ``User``: the starting prompt first, then what the model writes after each answer of the agent.

    It keeps nothing: the same turns lead to the same request. ``repeat`` tells the repeats of a case apart, so that
    no cache makes them one conversation; ``sample`` of a request is the number of the turn.
    """

    llm: Llm | None
    scenario: ConversationScenario
    config: UserSimulatorConfig
    repeat: int = 0

    async def next(self, turns: Sequence[Invocation]) -> Content | ConversationEnd | AttemptError:
        """The next message. Unsent: one that holds the stop signal, in any case, or has no text (an error)."""
        limit = self.config.max_allowed_invocations
        if 0 <= limit <= len(turns):
            return ConversationEnd("turn_limit")
        if not turns:
            return _message(self.scenario.starting_prompt)
        reply = await self._asked(turns)
        if isinstance(reply, LlmError):
            return _error(reply)
        if STOP_SIGNAL.lower() in reply.text.lower():
            return ConversationEnd("stop_signal")
        empty = LlmError(LlmErrorKind.EMPTY, "the model's message was empty")
        return _message(reply.text) if reply.text.strip() else _error(empty)

    async def _asked(self, turns: Sequence[Invocation]) -> LlmReply | LlmError:
        if self.llm is None:
            return LlmError(LlmErrorKind.REFUSED, "this run has no model to play the user")
        try:
            request = self._request(turns)
        except ValueError as error:  # the user's own instructions, on this conversation
            return LlmError(LlmErrorKind.REFUSED, str(error))
        return await self.llm.generate(request)

    def _request(self, turns: Sequence[Invocation]) -> LlmRequest:
        prompt = _render(self.scenario, self.config, turns)
        return LlmRequest(
            model=self.config.model,
            messages=(Message("user", prompt.message),),
            system=prompt.system,
            options=self.config.model_configuration or {},
            purpose=SIMULATED_USER,
            prompt_version=prompt_version(),
            sample=len(turns),
            repeat=self.repeat,
        )


def reason_not_playable(scenario: ConversationScenario, config: UserSimulatorConfig) -> str:
    """Why no user of this scenario can be played; "" when one can. The instructions are rendered to find out."""
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
    """16 hex digits: who the user is. Conversations with different users are not comparable.

    The words of behaviours are part of it: a persona may be but an id in the file, and its words are ours.
    """
    persona = None if scenario.user_persona is None else find_persona(scenario.user_persona)
    fields = {
        "config": config.model_dump(mode="json"),
        "persona": persona and persona.model_dump(mode="json"),
        "behaviors": [item.model_dump(mode="json") for item in behaviors_of(scenario)],
        "prompt": prompt_version(),
    }
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _render(scenario: ConversationScenario, config: UserSimulatorConfig, turns: Sequence[Invocation]) -> RenderedPrompt:
    history = history_of(turns, function_calls=config.include_function_calls)
    if config.custom_instructions is None:
        return render_own_prompt(scenario, history)
    return render_custom_prompt(config.custom_instructions, scenario, history)


def _message(text: str) -> Content:
    return Content(role="user", parts=(Part(text=text),))


def _error(error: LlmError) -> AttemptError:
    """The budget's end is the run's; everything else is said of the user, and never of the agent."""
    kind = ErrorKind.STOPPED if error.kind is LlmErrorKind.BUDGET else ErrorKind.USER
    return AttemptError(kind=kind, message=f"the simulated user could not go on: {error.message}")
