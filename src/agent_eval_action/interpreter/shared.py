"""Whether the environment of one tree will do for another tree of the same project, and why not."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent_eval_action.interpreter.build import KINDS
from agent_eval_action.interpreter.environment_digest import included
from agent_eval_action.interpreter.launch import upwards

_ALSO: Final = (".python-version", "uv.toml", "setup.py", "setup.cfg", "requirements.in")
_PROBE_S: Final = 30.0

# A tree's own code that is installed in an environment would be imported in the place of the other tree's.
_PROBE: Final = """
import importlib.metadata as metadata, json, os, sys, urllib.parse
root, own, found = sys.argv[1], os.path.realpath(sys.prefix), set()
def inside(path):
    path = os.path.realpath(path)
    return (path + os.sep).startswith(root + os.sep) and not (path + os.sep).startswith(own + os.sep)
for one in metadata.distributions():
    url = json.loads(one.read_text("direct_url.json") or "{}").get("url", "")
    if url.startswith("file://") and inside(urllib.parse.unquote(url[7:])):
        found.add(one.metadata["Name"])
for folder in filter(os.path.isdir, sys.path):
    for name in os.listdir(folder):
        if name.endswith((".pth", ".egg-link")):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                if any(inside(line.strip()) for line in file if line.startswith("/")):
                    found.add(name)
print(json.dumps(sorted(found)))
"""


@dataclass(frozen=True, slots=True)
class Place:
    """An agent's folder in a workspace."""

    folder: Path
    workspace: Path


def not_shared(python: Path, here: Place, there: Place, environ: Mapping[str, str]) -> str:
    """Why the interpreter of the agent ``here`` must not run the one ``there``; "" when it may. Blocks.

    This is asked where all agents run as one user, who could change any environment. In a cell nothing is shared
    but what both would build.
    """
    if _needs(here) != _needs(there):
        return "they need other packages"
    env = {key: environ[key] for key in ("PATH", "HOME", "LANG") if key in environ}
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter the agent runs in anyway
            [str(python), "-I", "-c", _PROBE, str(here.workspace.resolve())],
            env=env,
            capture_output=True,
            timeout=_PROBE_S,
            check=True,
        )
        installed = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return f"it cannot be looked into: {error}"
    return f"{installed[0]} of this tree is installed in it" if installed else ""


def _needs(place: Place) -> dict[str, bytes]:
    """Everything that says what an agent needs, by its path in the agent's folder, which may be renamed, or above."""
    found: dict[str, bytes] = {}
    for path in _files(place):
        inside = place.folder != place.workspace and path.is_relative_to(place.folder)
        name = "<agent>" / path.relative_to(place.folder) if inside else path
        name = name.relative_to(place.workspace) if name.is_relative_to(place.workspace) else name
        found[name.as_posix()] = path.read_bytes()
    return found


def _files(place: Place) -> Iterator[Path]:
    for folder in upwards(place.folder, place.workspace):
        yield from (folder / name for name in (*KINDS, *_ALSO) if (folder / name).is_file())
        yield from included((folder / "requirements.txt"), set())
