"""Agent drivers: what can be evaluated. A driver is one file and one line here."""

from __future__ import annotations

from typing import Final

from agent_eval_action.agents.adk import AdkAgent
from agent_eval_action.agents.base import AgentDriver
from agent_eval_action.agents.recorded import RecordedAgent

AGENTS: Final[dict[str, type[AgentDriver]]] = {"adk": AdkAgent, "recorded": RecordedAgent}
