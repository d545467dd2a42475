"""``agent-eval compare``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_eval_action import api
from agent_eval_action.cli import summary
from agent_eval_action.cli.folder_checks import refuse_unsafe_folders
from agent_eval_action.cli.outputs import write_requested_files
from agent_eval_action.cli.session import console, exit_code, settings_for
from agent_eval_action.errors import ExitCode


def compare_command(base: Path, head: Path, flags: Mapping[str, Any]) -> ExitCode:
    """Decide ``head`` against ``base`` without running anything; reports are written when ``--out`` is given."""
    settings = settings_for(flags).settings
    if flags.get("out"):
        refuse_unsafe_folders(settings, os.environ)
    decided = api.compare(base, head, settings)
    written = write_requested_files(decided, settings) if flags.get("out") else ()
    summary.show(console(), decided, written)
    return exit_code(decided, settings.fail_on)
