"""An environment kept in one file of the cache: copying many small files is slow, and agents may not read there."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

from agent_eval_action.folders import OutputFolder
from agent_eval_action.sandbox.users import User

_LONGEST_S: Final = 300.0
_LEFT_BEHIND_S: Final = 3600.0


def keep(environment: Path, folder: OutputFolder, name: str) -> None:
    """Keep it; an environment that cannot be kept is built again next time, which is no error."""
    tar = shutil.which("tar")
    if tar is None:
        return
    with contextlib.suppress(OSError):
        for draft, found in folder.files():
            if draft.endswith(".tmp") and time.time() - found.st_mtime > _LEFT_BEHIND_S:  # of a job that was killed
                folder.remove(draft)
    with contextlib.suppress(OSError, subprocess.SubprocessError), folder.replacing(name, sync=False) as target:
        command = [tar, "--create", f"--directory={environment.parent}", f"--transform=s,^{environment.name},env,S"]
        subprocess.run(  # noqa: S603 - tar, with arguments of ours
            [*command, "--owner=0", "--group=0", environment.name],
            stdout=target,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath},
            check=True,
            timeout=_LONGEST_S,
        )


def taken_out(kept: OutputFolder, name: str, folder: Path, user: User) -> bool:
    """Take it out into ``folder/env`` as ``user``, who can write nowhere else; False when it has to be built."""
    tar = shutil.which("tar")
    if tar is None or not kept.holds(name):
        return False
    with contextlib.suppress(OSError, subprocess.SubprocessError), kept.read(name) as source:
        subprocess.run(  # noqa: S603 - tar, with arguments of ours
            [tar, "--extract", "--no-same-owner", "--no-same-permissions", f"--directory={folder}"],
            stdin=source,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath},
            check=True,
            timeout=_LONGEST_S,
            **user.options(),
        )
        # a Python that uv had downloaded for it is not here any more
        return (folder / "env" / "bin" / "python").exists()
    return False
