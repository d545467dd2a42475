"""The engine, the image and the example's workspaces: what the end-to-end tests start as GitHub's runner does."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.container import ROOT, Engine, Job, NoEngineError, check_out, dice_checkout, give_to_runner, start_engine


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the processes of a test run share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "e2e"
    folder.mkdir(exist_ok=True)
    return folder


@contextlib.contextmanager
def alone(shared: Path) -> Iterator[None]:
    """One process at a time; a test is skipped, and says why, where no container can be run."""
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        except NoEngineError as error:
            pytest.skip(f"NOT TESTED, {error}")


@pytest.fixture(scope="session")
def engine(shared: Path) -> Iterator[Engine]:
    """The engine that all processes use; the last one stops it."""
    user = shared / f"user-{os.getpid()}"
    with alone(shared):
        engine = start_engine()
        user.touch()
    yield engine
    with alone(shared):
        user.unlink()
        if not list(shared.glob("user-*")):
            engine.stop()


@pytest.fixture(scope="session")
def image(engine: Engine, shared: Path) -> str:
    """The image of this tree. The second process finds its layers."""
    with alone(shared):
        return engine.build_image()


@pytest.fixture(scope="session")
def kit() -> SimpleNamespace:
    """For tests that set a job up themselves."""
    return SimpleNamespace(Job=Job, ROOT=ROOT, check_out=check_out)


@pytest.fixture(scope="session")
def dice(engine: Engine, image: str, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """The example in a checkout of its own, and a step with inputs, some with a dash, one left empty."""
    base = tmp_path_factory.mktemp("dice")
    inputs = {"INPUT_FAIL-ON": "inconclusive", "INPUT_MAX-TIME": "10m", "INPUT_REPEATS": "", "INPUT_OUT": ""}
    return Job(engine, image, dice_checkout(base / "ws"), base / "temp", inputs)


@pytest.fixture(scope="session")
def ran(dice: Job) -> subprocess.CompletedProcess[str]:
    """The first run of the example: it builds the agent's environment and keeps it in the workspace."""
    return dice.run()


@pytest.fixture
def job(dice: Job, ran: subprocess.CompletedProcess[str], tmp_path: Path) -> Job:
    """The next job of that workspace: what was built is there, what was written is not, nor are the inputs."""
    assert ran.returncode == 0, ran.stderr
    workspace = tmp_path / "ws"
    shutil.copytree(
        dice.workspace, workspace, symlinks=True, ignore=shutil.ignore_patterns("out"), copy_function=_copy_or_link
    )
    give_to_runner(workspace)
    return Job(dice.engine, dice.image, workspace, tmp_path / "temp")


def _copy_or_link(source: str, target: str) -> str:
    """Copy a file; link an archived environment, which is large and only ever read."""
    return os.link(source, target) or target if source.endswith(".tar") else shutil.copy2(source, target)
