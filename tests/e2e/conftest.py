"""A container engine, the image, and workspaces: what the end-to-end tests start as GitHub's runner does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).parent / "container"
STATE = ROOT / ".e2e"
BASE = re.search(r"^ARG BASE=((\S+)@sha256:[0-9a-f]{64})$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
# What earlier runs of the example left in the source tree is not part of a checkout.
LEFT_BEHIND = shutil.ignore_patterns(".venv", ".adk", "__pycache__", "cache", "out")
RUNNER_UID = 1001  # owns the workspace on GitHub's runners, while the container runs as root


@dataclass(frozen=True)
class Engine:
    """A docker command line that answers, and what it needs to reach the network."""

    environ: Mapping[str, str]
    options: tuple[str, ...] = ()

    def docker(self, *argv: str, check: bool = True, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["docker", *argv], env=self.environ, capture_output=True, text=True, check=False, timeout=timeout
        )
        assert done.returncode == 0 or not check, f"docker {' '.join(argv)}: {done.stderr[-4000:]}"
        return done


@dataclass(frozen=True)
class Job:
    """One job of a runner: its workspace, its temp folder, its environment."""

    engine: Engine
    image: str
    workspace: Path
    temp: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        return self.workspace / ".agent-eval" / "out"

    def command(self, *args: str) -> tuple[list[str], dict[str, str]]:
        """What starts the action's container exactly as the runner does, and the environment it is started in."""
        script = SCRIPTS / "run-like-runner.sh"
        argv = [str(script), "docker", self.image, str(self.temp), str(self.workspace), *self.engine.options, "--"]
        # The tests may themselves run on a runner, whose own variables are not this job's.
        outer = {k: v for k, v in self.engine.environ.items() if not k.startswith(("INPUT_", "GITHUB_", "RUNNER_"))}
        return [*argv, *(args or ("run",))], {**outer, "RUNNER_JOB_ENV": "", **self.environ}

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        argv, environ = self.command(*args)
        return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False, timeout=300)

    def outputs(self) -> dict[str, str]:
        """GITHUB_OUTPUT as the runner reads it: `name=value`, or `name<<DELIMITER` up to the delimiter's own line."""
        lines = iter((self.temp / "_runner_file_commands" / "set_output_x").read_text().splitlines())
        values: dict[str, str] = {}
        for line in lines:
            if not line:
                continue
            equals, heredoc = line.find("="), line.find("<<")
            if equals >= 0 and (heredoc < 0 or equals < heredoc):
                name, _, values[name] = line.partition("=")
                continue
            assert heredoc > 0, f"the runner fails the step on this line: {line!r}"
            name, _, delimiter = line.partition("<<")
            value: list[str] = []
            for text in lines:
                if text == delimiter:
                    break
                value.append(text)
            else:
                pytest.fail(f"the runner fails the step: no line {delimiter!r} after {name}")
            values[name] = "\n".join(value)
        return values


def _answers(environ: Mapping[str, str]) -> bool:
    try:
        return subprocess.run(["docker", "info"], env=environ, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _script(name: str, *args: str, environ: Mapping[str, str]) -> str:
    """Run one of the container scripts; where it cannot do its work, skip and say why."""
    done = subprocess.run(
        [str(SCRIPTS / name), *args], env=environ, capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        pytest.skip(f"NOT TESTED, {name} {' '.join(args)} failed: {done.stderr.strip()[-600:]}")
    return done.stdout


def _exports(lines: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment after evaluating what engine.sh printed."""
    done = subprocess.run(["sh", "-c", f"{lines}\nenv -0"], env=environ, capture_output=True, text=True, check=True)
    return dict(entry.split("=", 1) for entry in done.stdout.split("\0") if "=" in entry)


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The engine that runs here, else one of our own from Debian's packages, else a skip that says why."""
    environ = dict(os.environ)
    if _answers(environ):
        yield Engine(environ)
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        pytest.skip("NOT TESTED, no container engine: docker does not answer, and to start one we need root on Debian")
    own = ("docker-trixie", str(STATE))
    try:
        lines = _script("engine.sh", "start", *own, environ=environ)
        yield Engine(_exports(lines, environ), options=("--network=host",))
    finally:
        subprocess.run([str(SCRIPTS / "engine.sh"), "stop", *own], capture_output=True, check=False, timeout=60)


@pytest.fixture(scope="session")
def image(engine: Engine) -> str:
    """The image, built from this tree by its own Dockerfile."""
    assert BASE, "the Dockerfile names its base by tag and digest"
    pulled = engine.docker("pull", "--quiet", BASE.group(1), check=False, timeout=300)
    stand_in = []
    if pulled.returncode:  # no registry is reached from here: Debian's own packages make the same base
        _script("base-image.sh", "docker", environ=engine.environ)
        stand_in = ["--build-arg", f"BASE={BASE.group(2)}"]
    tag = os.environ.get("AGENT_EVAL_TEST_IMAGE", "agent-eval-action:e2e")
    built = engine.docker("build", "--network=host", *stand_in, "--tag", tag, str(ROOT), check=False, timeout=900)
    assert built.returncode == 0, built.stdout[-4000:] + built.stderr[-8000:]
    return tag


def give_to_runner(folder: Path) -> None:
    """Make the folder belong to the runner's user, as a checkout does."""
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", f"{RUNNER_UID}:{RUNNER_UID}", str(folder)], check=True)


def check_out(folder: Path) -> None:
    """Make the folder a git checkout with one commit, owned by the runner's user."""
    author = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", str(folder)], check=True)
    subprocess.run(["git", "-C", str(folder), "add", "--all"], check=True)
    subprocess.run(["git", "-C", str(folder), *author, "commit", "--quiet", "-m", "x"], check=True)
    give_to_runner(folder)


@pytest.fixture(scope="session")
def kit() -> SimpleNamespace:
    """For tests that set a job up themselves."""
    return SimpleNamespace(Job=Job, ROOT=ROOT, check_out=check_out)


@pytest.fixture(scope="session")
def dice(engine: Engine, image: str, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """The example in a checkout of its own, and a step with inputs, some with a dash, one left empty."""
    base = tmp_path_factory.mktemp("dice")
    shutil.copytree(ROOT / "examples" / "dice", base / "ws", ignore=LEFT_BEHIND)
    check_out(base / "ws")
    inputs = {"INPUT_FAIL-ON": "inconclusive", "INPUT_MAX-TIME": "10m", "INPUT_REPEATS": "", "INPUT_OUT": ""}
    return Job(engine, image, base / "ws", base / "temp", inputs)


@pytest.fixture(scope="session")
def ran(dice: Job) -> subprocess.CompletedProcess[str]:
    """The first run of the example: it builds the agent's environment and keeps it in the workspace."""
    return dice.run()


@pytest.fixture
def job(dice: Job, ran: subprocess.CompletedProcess[str], tmp_path: Path) -> Job:
    """The next job of that workspace: what was built is there, what was written is not, nor are the inputs."""
    assert ran.returncode == 0, ran.stderr
    subprocess.run(["cp", "-a", str(dice.workspace), str(tmp_path / "ws")], check=True)
    shutil.rmtree(tmp_path / "ws" / ".agent-eval" / "out")
    return Job(dice.engine, dice.image, tmp_path / "ws", tmp_path / "temp")
