"""A container engine, the image and a runner's jobs, for the end-to-end tests and the benchmark of the container."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tests" / "e2e" / "container"
RUNNER_UID = 1001  # owns the workspace on GitHub's runners, while the container runs as root
_BASE = re.compile(r"^ARG BASE=((\S+)@sha256:[0-9a-f]{64})$", re.MULTILINE)
_OURS = ("docker-trixie", str(ROOT / ".e2e"))
# What earlier runs of the example left in the source tree is not part of a checkout.
_LEFT_BEHIND = shutil.ignore_patterns(".venv", ".adk", "__pycache__", "cache", "out")


class NoEngineError(Exception):
    """No container can be run here, and why."""


@dataclass(frozen=True)
class Engine:
    """A docker command line that answers, and what it needs to reach the network. ``is_ours``: we started it."""

    environ: Mapping[str, str]
    options: tuple[str, ...] = ()
    is_ours: bool = False

    def docker(self, *argv: str, check: bool = True, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["docker", *argv], env=self.environ, capture_output=True, text=True, check=False, timeout=timeout
        )
        assert done.returncode == 0 or not check, f"docker {' '.join(argv)}: {done.stderr[-4000:]}"
        return done

    def build_image(self) -> str:
        """The image, built from this tree by its own Dockerfile. Raises NoEngineError where its base cannot be had."""
        base = _BASE.search((ROOT / "Dockerfile").read_text())
        assert base, "the Dockerfile names its base by tag and digest"
        pulled = self.docker("pull", "--quiet", base.group(1), check=False, timeout=300)
        stand_in = []
        if pulled.returncode:  # no registry is reached from here: Debian's own packages make the same base
            _script("base-image.sh", "docker", environ=self.environ)
            stand_in = ["--build-arg", f"BASE={base.group(2)}"]
        tag = os.environ.get("AGENT_EVAL_TEST_IMAGE", "agent-eval-action:e2e")
        built = self.docker("build", "--network=host", *stand_in, "--tag", tag, str(ROOT), check=False, timeout=900)
        assert built.returncode == 0, built.stdout[-4000:] + built.stderr[-8000:]
        return tag

    def layers(self, image: str, folder: Path) -> list[Path]:
        """The image's layers as tar files below the folder, lowest first."""
        self.docker("save", "--output", str(folder / "image.tar"), image)
        subprocess.run(["tar", "-xf", "image.tar"], cwd=folder, check=True)
        (manifest,) = json.loads((folder / "manifest.json").read_text())
        return [folder / name for name in manifest["Layers"]]

    def stop(self) -> None:
        """End it where it is ours."""
        if self.is_ours:
            subprocess.run([str(SCRIPTS / "engine.sh"), "stop", *_OURS], capture_output=True, check=False, timeout=60)


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
                raise AssertionError(f"the runner fails the step: no line {delimiter!r} after {name}")
            values[name] = "\n".join(value)
        return values


def start_engine() -> Engine:
    """The engine that answers here, else one of our own from Debian's packages. Raises NoEngineError."""
    environ = dict(os.environ)
    with contextlib.suppress(OSError):
        if subprocess.run(["docker", "info"], env=environ, capture_output=True, check=False).returncode == 0:
            return Engine(environ)
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise NoEngineError("no container engine: docker does not answer, and to start one we need root on Debian")
    lines = _script("engine.sh", "start", *_OURS, environ=environ)
    done = subprocess.run(["sh", "-c", f"{lines}\nenv -0"], env=environ, capture_output=True, text=True, check=True)
    exported = dict(entry.split("=", 1) for entry in done.stdout.split("\0") if "=" in entry)
    return Engine(exported, ("--network=host",), is_ours=True)


@contextlib.contextmanager
def running_engine() -> Iterator[Engine]:
    """An engine while the block runs. Raises NoEngineError."""
    engine = start_engine()
    try:
        yield engine
    finally:
        engine.stop()


def compressed_bytes(layer: Path) -> int:
    """How large a layer is where it is pulled from: registries compress with gzip."""
    return len(subprocess.run(["gzip", "-6", "--stdout", str(layer)], capture_output=True, check=True).stdout)


def _script(name: str, *args: str, environ: Mapping[str, str]) -> str:
    """What one of the container scripts prints. Raises NoEngineError where it cannot do its work."""
    done = subprocess.run(
        [str(SCRIPTS / name), *args], env=environ, capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        raise NoEngineError(f"{name} {' '.join(args)} failed: {done.stderr.strip()[-600:]}")
    return done.stdout


def dice_checkout(folder: Path) -> Path:
    """The example in a checkout of its own."""
    shutil.copytree(ROOT / "examples" / "dice", folder, ignore=_LEFT_BEHIND)
    check_out(folder)
    return folder


def check_out(folder: Path) -> None:
    """Make the folder a git checkout with one commit, owned by the runner's user."""
    author = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", str(folder)], check=True)
    subprocess.run(["git", "-C", str(folder), "add", "--all"], check=True)
    subprocess.run(["git", "-C", str(folder), *author, "commit", "--quiet", "-m", "x"], check=True)
    give_to_runner(folder)


def give_to_runner(folder: Path) -> None:
    """Make the folder belong to the runner's user, as a checkout does."""
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", f"{RUNNER_UID}:{RUNNER_UID}", str(folder)], check=True)
