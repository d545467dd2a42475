"""Close a container's folders to everybody but root, and test as another user what is still open."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from agent_eval_action.sandbox.runner import EVENT, MOUNTED_FOLDERS, NEVER_WRITTEN, TEMPORARY, WORKSPACE, WRITTEN
from agent_eval_action.sandbox.users import SandboxUser

_SHARED: Final = frozenset(
    Path(name)
    for name in ("/", "/bin", "/dev", "/etc", "/home", "/lib", "/opt", "/proc", "/sys", "/tmp", "/usr", "/var")  # noqa: S108 - names, nothing is written there
)
_SOCKETS: Final = ("/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock", "/run/containerd")
_VARIABLES: Final = (WORKSPACE, TEMPORARY, "HOME", *WRITTEN, *NEVER_WRITTEN, EVENT, "GOOGLE_APPLICATION_CREDENTIALS")
_PROBE: Final = """
import json, os, socket, stat, sys
def open_to_us(path):
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    if stat.S_ISSOCK(mode):
        try:
            socket.socket(socket.AF_UNIX).connect(path)
        except OSError:
            return False
        return True
    return os.access(path, os.R_OK) or os.access(path, os.W_OK)
print(json.dumps([path for path in sys.argv[1:] if open_to_us(path)]))
"""
_PROBE_S: Final = 30.0


def paths_to_close(environ: Mapping[str, str], more: Iterable[Path] = ()) -> tuple[Path, ...]:
    """Return existing paths that only we may read or write."""
    named = [environ[name] for name in _VARIABLES if environ.get(name, "").startswith("/")]
    paths = [Path(text) for text in (*named, *MOUNTED_FOLDERS, *_SOCKETS)]
    return tuple(dict.fromkeys(path for path in (*more, *paths) if os.path.lexists(path)))


def close_paths(paths: Iterable[Path]) -> None:
    """Close, for each path, the topmost folder above it that is not shared.

    That folder is in the container's own layer, so no mode of the runner's folders changes, and a killed container
    leaves nothing to undo. Paths that are mounted directly in a shared folder cannot be closed like this.
    """
    layer = Path("/").stat().st_dev
    for path in paths:
        real = path.resolve()
        for folder in reversed((real, *real.parents)):
            if folder in _SHARED or not folder.is_dir():
                continue
            found = folder.lstat()
            if found.st_dev == layer and found.st_uid == 0:
                folder.chmod(stat.S_IMODE(found.st_mode) & 0o700)
            break


def find_open_paths(user: SandboxUser, paths: Sequence[Path]) -> tuple[str, ...] | str:
    """Return which paths a process of this user can open, or a text: why no such process can be started."""
    command = [sys.executable, "-I", "-S", "-c", _PROBE, *map(str, paths)]
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter and program
            command, cwd="/", env={}, capture_output=True, check=True, timeout=_PROBE_S, **user.options()
        )
        return tuple(json.loads(done.stdout))
    except subprocess.CalledProcessError as error:
        return error.stderr.decode("utf-8", "replace").strip().splitlines()[-1:][0] if error.stderr else str(error)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return str(error)
