"""Whose user speaks in an attempt, and what tells conversations with simulated users apart."""

from __future__ import annotations

import hashlib

from agent_eval_action.agents.base import AgentSession
from agent_eval_action.agents.simulator import SimulatedUser, identity
from agent_eval_action.agents.user import FixedUser, HeldBefore, User
from agent_eval_action.config.adk_config import UserSimulatorConfig
from agent_eval_action.formats import case_digest
from agent_eval_action.llm.base import Llm
from agent_eval_action.model.evalset import EvalCase
from agent_eval_action.run.plan import PlannedAttempt


def user_of(planned: PlannedAttempt, session: AgentSession, llm: Llm | None) -> User:
    """The case's own user, or the one who spoke in a recording of it."""
    scenario = planned.case.conversation_scenario
    if scenario is None:
        return FixedUser(tuple(turn.user_content for turn in planned.case.turns))
    if isinstance(session, HeldBefore):
        return session.speaker(scenario)
    return SimulatedUser(llm, scenario, planned.planned_set.simulator, planned.key.repeat)


def played_digest(case: EvalCase, simulator: UserSimulatorConfig) -> str:
    """The case's digest; with a simulated user it names that user too, for another leads another conversation."""
    digest = case_digest(case)
    if case.conversation_scenario is None:
        return digest
    user = identity(case.conversation_scenario, simulator)
    return hashlib.sha256(f"{digest} {user}".encode()).hexdigest()[: len(digest)]
