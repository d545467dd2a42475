"""The words that make a run again."""

from __future__ import annotations

from collections.abc import Sequence

from agent_eval_action.config.settings import Settings
from agent_eval_action.run.load import relative


def arguments(settings: Settings, selectors: Sequence[str]) -> tuple[str, ...]:
    """What repeats a run from the workspace: a configuration that would not be found there, and what narrowed it."""
    words = list(selectors)
    config = settings.config
    if config and config.is_relative_to(settings.workspace) and config.parent != settings.workspace:
        words += ["--config", relative(config, settings.workspace)]
    for agent in settings.agents if settings.only_agents else ():
        words += ["--agent", relative(agent.path, settings.workspace)]
    for pattern in settings.case:
        words += ["--case", pattern]
    return tuple(words)
