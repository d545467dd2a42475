"""A model that plays the user of a conversation scenario."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from agent_eval_action.agents import instructions
from agent_eval_action.agents.user import Ended
from agent_eval_action.config.adk_config import UserSimulatorConfig
from agent_eval_action.llm.base import Llm, LlmError, LlmErrorKind, LlmReply, LlmRequest, Message
from agent_eval_action.llm.budget import SIMULATED_USER
from agent_eval_action.model.evalset import Content, ConversationScenario, Invocation, Part
from agent_eval_action.model.personas import persona_of
from agent_eval_action.model.result import AttemptError, ErrorKind


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

    async def next(self, turns: Sequence[Invocation]) -> Content | Ended | AttemptError:
        """The next message. Unsent: one that holds the stop signal, in any case, or has no text (an error)."""
        limit = self.config.max_allowed_invocations
        if 0 <= limit <= len(turns):
            return Ended("turn_limit")
        if not turns:
            return _message(self.scenario.starting_prompt)
        reply = await self._asked(turns)
        if isinstance(reply, LlmError):
            return _error(reply)
        if instructions.STOP_SIGNAL.lower() in reply.text.lower():
            return Ended("stop_signal")
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
        told = _told(self.scenario, self.config, turns)
        return LlmRequest(
            model=self.config.model,
            messages=(Message("user", told.message),),
            system=told.system,
            options=self.config.model_configuration or {},
            purpose=SIMULATED_USER,
            prompt_version=instructions.prompt_version(),
            sample=len(turns),
            repeat=self.repeat,
        )


def refusal(scenario: ConversationScenario, config: UserSimulatorConfig) -> str:
    """Why no user of this scenario can be played; "" when one can. The instructions are rendered to find out."""
    if config.max_allowed_invocations == 0:
        return "max_allowed_invocations is 0, so the user never says anything"
    said = config.custom_instructions
    if said is None:
        return ""
    if scenario.user_persona is not None and "persona" not in config.placeholders():
        return "custom_instructions need the placeholder {{ persona }}, because the scenario has a user_persona"
    try:
        _told(scenario, config, ())
    except ValueError as error:
        return str(error)
    return ""


def identity(scenario: ConversationScenario, config: UserSimulatorConfig) -> str:
    """16 hex digits: who the user is. Conversations with different users are not comparable.

    The words of behaviours are part of it: a persona may be but an id in the file, and its words are ours.
    """
    persona = None if scenario.user_persona is None else persona_of(scenario.user_persona)
    said = {
        "config": config.model_dump(mode="json"),
        "persona": persona and persona.model_dump(mode="json"),
        "behaviors": [one.model_dump(mode="json") for one in instructions.behaviors_of(scenario)],
        "prompt": instructions.prompt_version(),
    }
    text = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _told(
    scenario: ConversationScenario, config: UserSimulatorConfig, turns: Sequence[Invocation]
) -> instructions.Told:
    history = instructions.history_of(turns, function_calls=config.include_function_calls)
    if config.custom_instructions is None:
        return instructions.own(scenario, history)
    return instructions.custom(config.custom_instructions, scenario, history)


def _message(text: str) -> Content:
    return Content(role="user", parts=(Part(text=text),))


def _error(error: LlmError) -> AttemptError:
    """The budget's end is the run's; everything else is said of the user, and never of the agent."""
    kind = ErrorKind.STOPPED if error.kind is LlmErrorKind.BUDGET else ErrorKind.USER
    return AttemptError(kind=kind, message=f"the simulated user could not go on: {error.message}")
