"""Agent drivers. To add one, write its file and register its factory in AGENTS."""

from __future__ import annotations

from typing import Final

from agent_eval_action.agents.adk import make_worker_agent
from agent_eval_action.agents.base import DriverFactory
from agent_eval_action.registry import Registry

AGENTS: Final[Registry[DriverFactory]] = Registry(
    "agent_eval.agents",
    "agent driver",
    {
        "adk": make_worker_agent,
        "python": make_worker_agent,  # a function runs in the same workers
        "recorded": "agent_eval_action.agents.recorded:make_recorded_agent",
        "adk_server": "agent_eval_action.agents.adk_server:AdkServerAgent",
        "a2a": "agent_eval_action.agents.a2a_agent:A2aAgent",
        "openai": "agent_eval_action.agents.chat_completions:ChatAgent",
        "command": "agent_eval_action.agents.command:make_command_agent",
    },
    lambda _, entry: "" if callable(entry) else "it is no function of a DriverContext",
)
