"""Rescoring recorded cases: seconds and peak memory of ``agent-eval run`` at growing sizes.

``--large`` adds 50,000 cases with a baseline and 100,000 without one, once each, which takes minutes.
"""

from __future__ import annotations

import argparse
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
SECONDS = 5.0
MEGABYTES = 300.0
GROWTH = 1.25
"""The cost of one more case among many, relative to one more among few; 1 is linear."""
LARGE = (50_000, 100_000)
CASES_OF_A_FILE = 50_000
"""Keeps each file below 64 MB, the most that is read."""
LARGE_MEGABYTES = 1_000.0
"""Limit for the first large size, with a baseline."""

EXIT_PASS, EXIT_FAIL = 0, 1
_COMMAND = str(ROOT / ".venv" / "bin" / "agent-eval")


def rescore(folder: Path, cases: int, *, baseline: bool = False) -> Taken:
    """Make a workspace with a recording of that many cases and run the command on it.

    ``baseline``: first store the same recording as the baseline, unmeasured, so that nothing gets worse.
    """
    work = lay_out(folder, cases)
    if baseline:
        measure.run([_COMMAND, "baseline", "update", "--repeats", "1"], work)
    taken = measure.run([_COMMAND, "run"], work)
    _must_have_scored(work, cases, taken, EXIT_PASS if baseline else EXIT_FAIL)
    return taken


def lay_out(folder: Path, cases: int) -> Path:
    """Make a workspace with a recording of that many cases, in files small enough to be read."""
    work = folder / str(cases)
    (work / "evals").mkdir(parents=True)
    made = workload.eval_set(cases)["eval_cases"]
    (work / "evals" / "test_config.json").write_text(json.dumps({"criteria": workload.CRITERIA}))
    for start in range(0, cases, CASES_OF_A_FILE):
        name, some = f"prices_{start:06}", made[start : start + CASES_OF_A_FILE]
        (work / "evals" / f"{name}.evalset.json").write_text(json.dumps({"eval_set_id": name, "eval_cases": some}))
        recording.write(work / "recording", f"evals/{name}", some)
    # JSON is YAML.
    agent = {"path": "recording", "name": workload.AGENT, "driver": "recorded", "recording": "recording"}
    (work / "agent-eval.yaml").write_text(json.dumps({"agents": [{**agent, "evals": "evals/*.evalset.json"}]}))
    return work


def _must_have_scored(work: Path, cases: int, taken: Taken, exit_code: int) -> None:
    """Raise CommandFailed unless every case was scored, and exactly those recorded with a wrong item failed."""
    results = work / ".agent-eval" / "out" / "results.json"
    if taken.exit_code != exit_code or not results.is_file():
        raise CommandFailed(f"exit {taken.exit_code} with {cases} cases:\n{taken.output[-4000:]}")
    found = [case for one in json.loads(results.read_text())["sets"] for case in one["cases"]]
    scores = [[score["passed"] for attempt in case["attempts"] for score in attempt["scores"]] for case in found]
    failed = sum(False in of_case for of_case in scores)
    if len(found) != cases or not all(scores) or failed != math.ceil(cases / recording.EVERY_WRONG):
        raise CommandFailed(f"{len(found)} of {cases} cases scored, {failed} failed:\n{taken.output[-4000:]}")


def report(sizes: Sequence[int], rounds: int, *, large: bool = False) -> dict[str, Any]:
    """Return medians by size and their growth; ``large`` sizes run once."""
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
        "large": _large() if large else {},
        "targets": {"seconds": SECONDS, "peak_mb": MEGABYTES, "growth": GROWTH, "large_peak_mb": LARGE_MEGABYTES},
    }


def _large() -> dict[int, dict[str, float]]:
    found = {}
    for size in LARGE:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            one = rescore(Path(folder), size, baseline=size == LARGE[0])
        found[size] = {
            "seconds": round(one.seconds, 3),
            "cpu_seconds": round(one.cpu_seconds, 3),
            "peak_mb": round(one.peak_mb, 1),
        }
    return found


def growth(seconds: dict[int, float]) -> float:
    """Return the cost of one more case among many relative to few. Differences cancel the fixed start-up time."""
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
    for size, one in found["large"].items():
        used = f"processor {one['cpu_seconds']:.2f} s, peak {one['peak_mb']:.0f} MB"
        beside = f"with a baseline, target {LARGE_MEGABYTES:.0f} MB" if size == LARGE[0] else "without one"
        print(f"  {size:>6} cases {one['seconds']:7.2f} s   ({used}; {beside})")


def _met(found: dict[str, Any]) -> bool:
    largest = max(found["seconds"])
    fast = found["seconds"][largest] < SECONDS and found["peak_mb"][largest] < MEGABYTES
    small = not found["large"] or found["large"][LARGE[0]]["peak_mb"] <= LARGE_MEGABYTES
    return fast and small and found["growth"] <= GROWTH


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. Returns 1 if a target is missed."""
    parser = command_line("rescore", __doc__, rounds=3)
    parser.add_argument("--sizes", type=int, nargs=3, default=SIZES)
    parser.add_argument("--large", action="store_true", help="50,000 cases with a baseline and 100,000 without one")

    def measured(options: argparse.Namespace) -> dict[str, Any]:
        return report(options.sizes, options.rounds, large=options.large)

    return Benchmark(parser, measured, _show, _met).main(arguments)


if __name__ == "__main__":
    sys.exit(main())
