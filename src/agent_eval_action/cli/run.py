"""``agent-eval run``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from agent_eval_action.cli.comment import post_comment
from agent_eval_action.cli.outputs import finish, output_folder
from agent_eval_action.cli.session import Session, settings_for
from agent_eval_action.errors import ExitCode


def run_command(selectors: Sequence[str], flags: Mapping[str, Any]) -> ExitCode:
    """Run, write, show, decide."""
    resolved = settings_for(flags)
    settings = resolved.settings
    session = Session(resolved, tuple(selectors), flags=flags)
    with output_folder(settings):
        result = session.evaluate()
        code = finish(result, settings, partial(post_comment, result, settings, session.job))
        session.end()
    return code
