"""An environment kept in one file of the cache: copying many small files is slow, and agents may not read there."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from agent_eval_action.interpreter.isolation_user import User

_LONGEST_S: Final = 300.0


def keep(environment: Path, file: Path) -> None:
    """Keep it; an environment that cannot be kept is built again next time, which is no error."""
    tar = shutil.which("tar")
    if tar is None:
        return
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as target:
            command = [tar, "--create", f"--directory={environment.parent}", f"--transform=s,^{environment.name},env,S"]
            subprocess.run(  # noqa: S603 - tar, with arguments of ours
                [*command, "--owner=0", "--group=0", environment.name],
                stdout=target,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.defpath},
                check=True,
                timeout=_LONGEST_S,
            )
        draft.rename(file)
    except (OSError, subprocess.SubprocessError):
        with contextlib.suppress(OSError):
            draft.unlink()


def taken_out(file: Path, folder: Path, user: User) -> bool:
    """Take it out into ``folder/env`` as ``user``, who can write nowhere else; False when it has to be built."""
    tar = shutil.which("tar")
    if tar is None or not file.is_file():
        return False
    with contextlib.suppress(OSError, subprocess.SubprocessError), file.open("rb") as source:
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
