"""Personas of simulated users, as ADK's files write them (snake_case only, as in ADK)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Discriminator, Tag

from agent_eval_action.model.base import Frozen

BUILT_IN_PERSONAS = ("EXPERT", "NOVICE", "EVALUATOR")


class PersonaBehavior(Frozen):
    """One behaviour of a persona, with the rubrics that tell when it is violated."""

    model_config = ConfigDict(extra="ignore")  # as in ADK

    name: str
    description: str
    behavior_instructions: tuple[str, ...]
    violation_rubrics: tuple[str, ...]


class Persona(Frozen):
    """A custom persona; the ids EXPERT, NOVICE and EVALUATOR name built-in ones."""

    model_config = ConfigDict(extra="ignore")  # as in ADK

    id: str
    description: str
    behaviors: tuple[PersonaBehavior, ...]


def _kind(value: Any) -> str:
    return "<persona id>" if isinstance(value, str) else "<persona>"


PersonaRef = Annotated[
    Annotated[str, Tag("<persona id>")] | Annotated[Persona, Tag("<persona>")],
    Discriminator(_kind),
]
