"""Scoring recorded cases again: seconds and peak memory of ``agent-eval run`` at growing sizes."""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import ROOT, measure, recording, workload
from benchmarks.command import Benchmark, command_line
from benchmarks.measure import CommandFailed, Taken

SIZES = (1_000, 3_000, 10_000)
SECONDS = 10.0
MEGABYTES = 500.0
GROWTH = 1.25
"""What one more case costs at the large end over what it costs at the small end; 1 is linear."""

EXIT_FAIL = 1


def rescore(folder: Path, cases: int) -> Taken:
    """Lay out a workspace with a recording of that many cases and run the command on it."""
    work = lay_out(folder, cases)
    taken = measure.run([str(ROOT / ".venv" / "bin" / "agent-eval"), "run"], work)
    _must_have_scored(work, cases, taken)
    return taken


def lay_out(folder: Path, cases: int) -> Path:
    """A workspace with a recording of that many cases."""
    work = folder / str(cases)
    (work / "evals").mkdir(parents=True)
    eval_set = workload.eval_set(cases)
    (work / "evals" / "prices.evalset.json").write_text(json.dumps(eval_set))
    (work / "evals" / "test_config.json").write_text(json.dumps({"criteria": workload.CRITERIA}))
    recording.write(work / "recording", "evals/prices", eval_set["eval_cases"])
    # JSON is YAML.
    agent = {"path": "recording", "name": workload.AGENT, "driver": "recorded", "recording": "recording"}
    (work / "agent-eval.yaml").write_text(json.dumps({"agents": [{**agent, "evals": "evals/*.evalset.json"}]}))
    return work


def _must_have_scored(work: Path, cases: int, taken: Taken) -> None:
    """Every case scored, and exactly those failed that were recorded wrong."""
    results = work / ".agent-eval" / "out" / "results.json"
    if taken.exit_code != EXIT_FAIL or not results.is_file():
        raise CommandFailed(f"exit {taken.exit_code} with {cases} cases:\n{taken.output[-4000:]}")
    found = [case for one in json.loads(results.read_text())["sets"] for case in one["cases"]]
    scores = [[score["passed"] for attempt in case["attempts"] for score in attempt["scores"]] for case in found]
    failed = sum(False in of_case for of_case in scores)
    if len(found) != cases or not all(scores) or failed != math.ceil(cases / recording.EVERY_WRONG):
        raise CommandFailed(f"{len(found)} of {cases} cases scored, {failed} failed:\n{taken.output[-4000:]}")


def report(sizes: Sequence[int], rounds: int) -> dict[str, Any]:
    """Medians by size, and how they grow."""
    taken: dict[int, list[Taken]] = {size: [] for size in sizes}
    for number in range(rounds):
        for size in sizes:
            with tempfile.TemporaryDirectory(prefix="bench-") as folder:
                one = rescore(Path(folder), size)
            taken[size].append(one)
            used = f"{one.seconds:.2f} s, processor {one.cpu_seconds:.2f} s"
            print(f"  round {number + 1}, {size} cases: {used}", file=sys.stderr, flush=True)
    seconds = {size: measure.median([one.seconds for one in of]) for size, of in taken.items()}
    return {
        "rounds": rounds,
        "seconds": {size: round(value, 3) for size, value in seconds.items()},
        "cpu_seconds": {size: round(measure.median([t.cpu_seconds for t in of]), 3) for size, of in taken.items()},
        "peak_mb": {size: round(max(one.peak_mb for one in of), 1) for size, of in taken.items()},
        "growth": round(growth(seconds), 3),
        "targets": {"seconds": SECONDS, "peak_mb": MEGABYTES, "growth": GROWTH},
    }


def growth(seconds: dict[int, float]) -> float:
    """Seconds of one more case among many over those among few: differences, so that the fixed start is out of it."""
    small, middle, large = sorted(seconds)
    among_few = (seconds[middle] - seconds[small]) / (middle - small)
    return (seconds[large] - seconds[middle]) / (large - middle) / among_few


def _show(found: dict[str, Any]) -> None:
    print(f"rescoring recorded cases (two turns, one tool call), medians of {found['rounds']} rounds:")
    for size, seconds in found["seconds"].items():
        used = f"processor {found['cpu_seconds'][size]:.2f} s, peak {found['peak_mb'][size]:.0f} MB"
        print(f"  {size:>6} cases {seconds:7.2f} s   ({used})")
    print(
        f"  growth {found['growth']:.2f}: one more case among many over one more among few (target: at most {GROWTH})"
    )
    print(f"  targets for the largest: under {SECONDS:.0f} s and {MEGABYTES:.0f} MB")


def _met(found: dict[str, Any]) -> bool:
    largest = max(found["seconds"])
    fast = found["seconds"][largest] < SECONDS and found["peak_mb"][largest] < MEGABYTES
    return fast and found["growth"] <= GROWTH


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 when a target is missed."""
    parser = command_line("rescore", __doc__, rounds=3)
    parser.add_argument("--sizes", type=int, nargs=3, default=SIZES)
    return Benchmark(parser, lambda options: report(options.sizes, options.rounds), _show, _met).main(arguments)


if __name__ == "__main__":
    sys.exit(main())
