"""The secrets that agents are given, and the logs they leave: what is to be hidden, and hiding it where they wrote."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from agent_eval_action.config.assignment import AgentSettings
from agent_eval_action.config.secrets import rewriting, secrets_in
from agent_eval_action.environments.install import given_for_install, install_secrets
from agent_eval_action.folders import OutputFolder, real_path
from agent_eval_action.llm.credentials import dotenv_of
from agent_eval_action.results.redaction import Redaction

LOGS = "logs"


def secrets_of(agents: Iterable[AgentSettings], environ: Mapping[str, str], workspace: Path) -> Iterator[str]:
    """What these agents see and nobody else should: their variables, and those of their `.env`."""
    inside = workspace.resolve()
    for agent in agents:
        given = {name: environ.get(name, "") if value is None else value for name, value in agent.env.items()}
        yield from secrets_in(given)
        yield from install_secrets(given_for_install(agent.install_env, environ))
        yield from secrets_in(_dotenv(real_path(agent.path), inside))


def redact_by(patterns: Sequence[str], redaction: Redaction) -> None:
    """Take out what fits a pattern of the user's as well."""
    if patterns:
        redaction.add(rewriting(patterns, redaction.meet))


def redact_logs(logs: OutputFolder, redaction: Redaction) -> None:
    """Take secrets out of what agents printed, when they no longer run. What cannot be rewritten is removed."""
    with contextlib.suppress(OSError):  # no folder of ours any more: then nothing of ours is shown
        for name, _ in logs.files():
            try:
                with logs.read(name) as file:
                    data = file.read()
                shown = redaction.data(data)
                if shown != data:
                    logs.replace(name, [shown])
            except OSError:
                with contextlib.suppress(OSError):
                    logs.remove(name)


def _dotenv(folder: Path, workspace: Path) -> dict[str, str]:
    try:
        return dotenv_of([folder], workspace)
    except (OSError, ValueError):  # unreadable or no text: then it gives the agent nothing either
        return {}
