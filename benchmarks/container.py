"""The container: time to the first line, the example inside and outside, restoring its environment, image size."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.command import Benchmark, command_line
from benchmarks.measure import CommandFailed, median
from support.container import Engine, Job, NoEngineError, compressed_bytes, dice_checkout, running_engine

FIRST_LINE_S = 0.5
OVER_OUTSIDE = 1.3
OVER_COPY = 1.1
MEGABYTES = 260

# Runs in the container: restores the kept environment, then makes a plain copy of it.
RESTORE = """
import subprocess, sys, time
from pathlib import Path
from agent_eval_action.environments.build import restore
from agent_eval_action.folders import OutputFolder
from agent_eval_action.sandbox.sandboxes import make_container_environments
cache, folder = Path("/github/workspace/.agent-eval/cache/environments"), make_container_environments()
name = next(cache.glob("*.tar")).stem
for number in range(int(sys.argv[1]) + 1):  # the first is not measured
    began = time.monotonic()
    assert restore(OutputFolder.at(cache), name, folder)
    restored = time.monotonic()
    subprocess.run(["cp", "-r", folder / name, folder / f"copy-{number}"], check=True)
    print(restored - began, time.monotonic() - restored)
    (folder / name).rename(folder / f"restored-{number}")  # what is removed is still busy while the next is written
"""


@dataclass
class Bench:
    """The example's job in the container, and the same checkout outside, each with a kept environment."""

    job: Job
    outside: Path
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def in_container(self) -> tuple[float, float]:
        """Return the seconds to the first line and to the end."""
        argv, environ = self.job.command("run")
        return _time_command(argv, self.job.workspace, environ)

    def on_the_machine(self) -> tuple[float, float]:
        environ = {**os.environ, "CI": "true", "AGENT_EVAL_ISOLATION": "off"}
        return _time_command([str(ROOT / ".venv" / "bin" / "agent-eval"), "run"], self.outside, environ)

    def round(self) -> None:
        first_line, inside = self.in_container()
        _, outside = self.on_the_machine()
        for name, seconds in (("first line", first_line), ("in the container", inside), ("outside", outside)):
            self.seconds.setdefault(name, []).append(seconds)
        print(f"  first line {first_line:.2f} s, end {inside:.2f} s, outside {outside:.2f} s", file=sys.stderr)

    def restore(self, rounds: int) -> None:
        mount = f"{self.job.workspace}:/github/workspace"
        argv = ("run", "--rm", *self.job.engine.options, "-v", mount, "--entrypoint", "/opt/venv/bin/python")
        done = self.job.engine.docker(*argv, self.job.image, "-I", "-c", RESTORE, str(rounds))
        measured = [tuple(map(float, line.split())) for line in done.stdout.splitlines()[1:]]
        self.seconds["restore"], self.seconds["copy"] = ([*column] for column in zip(*measured, strict=True))


def _time_command(argv: Sequence[str], folder: Path, environ: Mapping[str, str]) -> tuple[float, float]:
    began = time.monotonic()
    lines, seconds = [], []
    process = subprocess.Popen(argv, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with process as started, started.stdout or contextlib.nullcontext([]) as output:
        for line in output:
            lines.append(line.decode(errors="replace"))
            seconds.append(time.monotonic() - began)
    if process.returncode:
        raise CommandFailed(f"exit {process.returncode}:\n{''.join(lines)}")
    return seconds[0], time.monotonic() - began


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Build the image and measure; without a container engine the report says only why."""
    try:
        with running_engine() as engine, tempfile.TemporaryDirectory(prefix="bench-") as folder:
            print("builds the image", file=sys.stderr)
            return _measured(engine, engine.build_image(), Path(folder), options.rounds)
    except NoEngineError as error:
        return {"not_measured": str(error)}


def _measured(engine: Engine, image: str, folder: Path, rounds: int) -> dict[str, Any]:
    job = Job(engine, image, dice_checkout(folder / "ws"), folder / "temp", {})
    bench = Bench(job, folder / "outside")
    shutil.copytree(job.workspace, bench.outside)
    print("warming up (not measured): environments, file cache", file=sys.stderr)
    bench.in_container()
    bench.on_the_machine()
    for _ in range(rounds):
        bench.round()
    bench.restore(rounds)
    medians = {name: round(median(values), 3) for name, values in bench.seconds.items()}
    (folder / "image").mkdir()
    return {
        "rounds": rounds,
        "seconds": {name: [round(value, 3) for value in values] for name, values in bench.seconds.items()},
        "median": medians,
        "over_outside": round(medians["in the container"] / medians["outside"], 2),
        "over_copy": round(medians["restore"] / medians["copy"], 2),
        "layers_mb": [round(compressed_bytes(layer) / 1e6, 1) for layer in engine.layers(image, folder / "image")],
    }


def _show(report: dict[str, Any]) -> None:
    if "not_measured" in report:
        print(f"container: NOT MEASURED, {report['not_measured']}")
        return
    print(f"the example in the container and outside of it, medians of {report['rounds']} rounds, alternating:")
    for name, seconds in report["median"].items():
        spread = f"{min(report['seconds'][name]):.2f} to {max(report['seconds'][name]):.2f}"
        print(f"  {name:<20} {seconds:6.2f} s   ({spread})")
    print(f"  container ÷ outside  {report['over_outside']:6.2f}     (target: at most {OVER_OUTSIDE})")
    print(f"  restore ÷ copy       {report['over_copy']:6.2f}     (target: at most {OVER_COPY})")
    layers = " + ".join(map(str, report["layers_mb"]))
    print(f"  image, compressed    {sum(report['layers_mb']):6.1f} MB   ({layers}; target: at most {MEGABYTES})")


def _met(report: dict[str, Any]) -> bool:
    return "not_measured" in report or (
        report["median"]["first line"] <= FIRST_LINE_S
        and report["over_outside"] <= OVER_OUTSIDE
        and report["over_copy"] <= OVER_COPY
        and sum(report["layers_mb"]) <= MEGABYTES
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. Returns 1 if a target is missed; 0 without a container engine."""
    return Benchmark(command_line("container", __doc__, 5), compare, _show, _met).main(arguments)


if __name__ == "__main__":
    sys.exit(main())
