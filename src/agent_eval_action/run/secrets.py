"""The secrets that agents are given, and the logs they leave: what is to be hidden, and hiding it where they wrote."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from agent_eval_action.config.agents import AgentSettings
from agent_eval_action.config.redact import rewriting
from agent_eval_action.config.secrets import secrets_in
from agent_eval_action.interpreter.install import given_for_install, install_secrets
from agent_eval_action.llm.credentials import dotenv_of
from agent_eval_action.model.redaction import Redaction

LOGS = "logs"


def secrets_of(agents: Iterable[AgentSettings], environ: Mapping[str, str], workspace: Path) -> Iterator[str]:
    """What these agents see and nobody else should: their variables, and those of their `.env`."""
    inside = workspace.resolve()
    for agent in agents:
        given = {name: environ.get(name, "") if value is None else value for name, value in agent.env.items()}
        yield from secrets_in(given)
        yield from install_secrets(given_for_install(agent.install_env, environ))
        yield from secrets_in(_dotenv(agent.path.resolve(), inside))


def redact_by(patterns: Sequence[str], redaction: Redaction) -> None:
    """Take out what fits a pattern of the user's as well."""
    if patterns:
        redaction.add(rewriting(patterns, redaction.meet))


def redact_logs(out: Path, redaction: Redaction) -> None:
    """Take secrets out of what agents printed, when they no longer run. What cannot be rewritten is removed."""
    for path in sorted((out / LOGS).glob("*.log")):
        if path.is_symlink() or not path.is_file():
            continue
        try:
            data = path.read_bytes()
            shown = redaction.data(data)
            if shown != data:
                path.write_bytes(shown)
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink()


def _dotenv(folder: Path, workspace: Path) -> dict[str, str]:
    try:
        return dotenv_of([folder], workspace)
    except (OSError, ValueError):  # unreadable or no text: then it gives the agent nothing either
        return {}
