"""A machine where we are root: interpreters that another uid can execute, and a hostile checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from uv import find_uv_bin

ROOT = Path(__file__).resolve().parents[3]
SYSTEM = Path("/usr/bin/python3")


@dataclass(frozen=True)
class Pythons:
    """``tool`` runs us and ``agent`` has google-adk; both can be executed by every uid."""

    tool: Path
    agent: Path
    adk_path: str


def _version(python: Path) -> str:
    said = [str(python), "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(said, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="session")
def pythons(adk213_python: Path) -> Iterator[Pythons]:
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED, isolation by uid: only root can give a process another uid")
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not SYSTEM.exists() or not _version(SYSTEM) == ours == _version(adk213_python):
        pytest.skip(f"NOT TESTED, isolation by uid: there is no {SYSTEM} {ours} that every uid may execute")
    # pytest's folders are closed to other uids, and a uid of an agent's must reach its interpreter
    folder = Path(f"/var/tmp/agent-eval-tests-{os.getpid()}")  # noqa: S108 - a name of our own
    folder.mkdir(mode=0o755)
    adk_path = adk213_python.parents[1] / "lib" / f"python{ours}" / "site-packages"
    paths = {"tool": [ROOT / "src", sysconfig.get_path("purelib")], "agent": [adk_path]}
    for name, entries in paths.items():
        subprocess.run([find_uv_bin(), "venv", "-q", "--python", str(SYSTEM), str(folder / name)], check=True)
        pth = folder / name / "lib" / f"python{ours}" / "site-packages" / "others.pth"
        pth.write_text("".join(f"{entry}\n" for entry in entries))
    (folder / "agent-eval.py").write_text("from agent_eval_action.cli import main\nmain()\n")
    yield Pythons(folder / "tool/bin/python", folder / "agent/bin/python", str(adk_path))
    subprocess.run(["rm", "-rf", str(folder)], check=True)
