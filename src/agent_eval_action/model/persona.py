"""Personas of simulated users, as ADK's files write them (snake_case only, as in ADK)."""

from __future__ import annotations

from agent_eval_action.model.base import Frozen


class PersonaBehavior(Frozen):
    """One behaviour of a persona, with the rubrics that tell when it is violated."""

    name: str
    description: str
    behavior_instructions: tuple[str, ...]
    violation_rubrics: tuple[str, ...]


class Persona(Frozen):
    """A custom persona; the ids EXPERT, NOVICE and EVALUATOR name built-in ones."""

    id: str
    description: str
    behaviors: tuple[PersonaBehavior, ...]


PersonaRef = str | Persona
