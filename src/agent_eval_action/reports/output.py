"""The one way a report reaches the disk: whole, or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from agent_eval_action.errors import OutputError
from agent_eval_action.folders import OutputFolder


def write_text(path: Path, chunks: Iterable[str], *, workspace: Path | None = None) -> None:
    """Write ``chunks`` as UTF-8 to ``path`` by a file beside it and a rename.

    Half-written files are removed and an older file stays as it was; a symlink at ``path`` is replaced, never
    followed, and inside the ``workspace`` none on the way to it. Raises OutputError with what to do.
    """
    try:
        folder = OutputFolder.at(path.parent, workspace)
        folder.replace(path.name, (chunk.encode("utf-8", "replace") for chunk in chunks))
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="free some disk space or choose another folder with --out; nothing half-written was left behind",
        ) from error
