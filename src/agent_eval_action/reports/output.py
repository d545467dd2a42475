"""The one way a report reaches the disk: whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from agent_eval_action.errors import OutputError

_CHUNK = 1 << 20


def write_text(path: Path, chunks: Iterable[str]) -> None:
    """Write ``chunks`` as UTF-8 to ``path`` by a file beside it and a rename.

    Half-written files are removed and an older file stays as it was; a symlink at ``path`` is replaced, never
    followed. Raises OutputError with what to do.
    """
    half = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with half.open("x", encoding="utf-8", newline="\n", errors="replace", buffering=_CHUNK) as file:
            file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="free some disk space or choose another folder with --out; nothing half-written was left behind",
        ) from error
    finally:
        with contextlib.suppress(OSError):
            half.unlink(missing_ok=True)
