"""Environments archived in one file each: agents may not read the cache, and many small files are slow to copy."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agent_eval_action.folders import OutputFolder
from agent_eval_action.sandbox.runner import WORKSPACE
from agent_eval_action.sandbox.sandboxes import make_container_environments
from agent_eval_action.sandbox.users import ISOLATION_VARIABLE, SANDBOX_UIDS

_RESTORER: Final = SANDBOX_UIDS.stop
"""The uid that extracts archives. Nothing else runs as it, and it can write nowhere else."""

_ARCHIVE: Final = re.compile(r"[0-9a-f]{32}\.tar")
_DEFAULT_CACHE: Final = Path(".agent-eval", "cache", "environments")
_LONGEST_S: Final = 300.0
_ABANDONED_S: Final = 3600.0
_UNUSED_S: Final = 30 * 86_400.0
_restoring: Final[dict[str, threading.Lock]] = {}


def restore_ahead(environ: Mapping[str, str]) -> None:
    """Start to restore the environment that was used last: it takes as long as the command's imports.

    Only in the container, where environments always have the same path. If the guess is wrong, the right one is
    restored when it is needed.
    """
    if environ.get(ISOLATION_VARIABLE) != "container":
        return
    workspace = Path(environ.get(WORKSPACE, "").strip() or Path.cwd())
    cache = OutputFolder.at(workspace / _DEFAULT_CACHE, workspace)
    with contextlib.suppress(OSError):
        kept = {found.st_mtime: name for name, found in cache.files() if _ARCHIVE.fullmatch(name)}
        if kept:
            name = kept[max(kept)].removesuffix(".tar")
            arguments = (cache, name, make_container_environments())
            threading.Thread(target=restore, args=arguments, daemon=True).start()


def restore(cache: OutputFolder, name: str, folder: Path) -> bool:
    """Extract an environment into ``folder``, owned by root; return whether it and its Python are there. Blocks.

    A second call waits for the first.
    """
    final, draft = folder / name, folder / f".restored-{name}"
    with _restoring.setdefault(name, threading.Lock()):
        if has_python(final):
            return True
        try:
            with cache.read(f"{name}.tar") as source:
                draft.mkdir(mode=0o755)
                os.chown(draft, _RESTORER, _RESTORER)
                command = ["--extract", "--no-same-owner", "--no-same-permissions", f"--directory={draft}"]
                user = {"user": _RESTORER, "group": _RESTORER, "extra_groups": [], "umask": 0o022}
                _run("tar", command, stdin=source, **user)
                with contextlib.suppress(OSError):  # the cache may be read-only
                    os.utime(source.fileno())
            # tar has applied its umask, so nobody else may write to what is root's from here on
            _run("chown", ["--recursive", "--no-dereference", "0:0", str(draft)])
            # the Python that uv downloaded for it may be gone
            if is_complete := has_python(draft / "env"):
                shutil.rmtree(final, ignore_errors=True)
                (draft / "env").rename(final)
        except (OSError, subprocess.SubprocessError):
            return False
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return is_complete


def keep(environment: Path, cache: OutputFolder) -> None:
    """Archive an environment under its name. If that fails, it is built again next time, which is no error."""
    with contextlib.suppress(OSError):
        for name, found in cache.files():
            age = time.time() - found.st_mtime
            # drop drafts of killed jobs, and what no run has used for a month: CI copies the whole cache
            if (name.endswith(".tmp") and age > _ABANDONED_S) or (name.endswith(".tar") and age > _UNUSED_S):
                cache.remove(name)
    renamed = ["--transform", f"s,^{environment.name},env,S", "--owner=0", "--group=0", environment.name]
    archive = cache.replacing(f"{environment.name}.tar", sync=False)
    with contextlib.suppress(OSError, subprocess.SubprocessError), archive as target:
        _run("tar", ["--create", f"--directory={environment.parent}", *renamed], stdout=target)


def has_python(environment: Path) -> bool:
    """Whether its interpreter is there; the link to it may dangle."""
    return (environment / "bin" / "python").exists()


def _run(program: str, arguments: list[str], **options: Any) -> None:
    subprocess.run(  # noqa: S603 - tar or chown, with arguments of ours
        [shutil.which(program) or program, *arguments],
        stderr=subprocess.DEVNULL,
        env={"PATH": os.defpath},
        check=True,
        timeout=_LONGEST_S,
        **options,
    )
