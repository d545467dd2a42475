"""The job with a judge against ``adk eval``; then again from the cache; and against a rate-limited server."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import ROOT, measure, workload
from benchmarks.command import Benchmark, command_line
from benchmarks.main_job import CONCURRENCY, LATENCY, Commands
from benchmarks.measure import CommandFailed, Taken
from support.gemini_server import client

CRITERIA = {
    "final_response_match_v2": {
        "threshold": 1.0,
        "judge_model_options": {"judge_model": "gemini-2.5-flash", "num_samples": 5},
    }
}
TURNS = 2
SAMPLES = 5
PER_SECOND = 20
RATED_CASES = 80
"""Enough to keep the model busy for 20 s, which dwarfs the start of the command."""
FASTER = 10.0
MOST_CALLS = 8.5
"""Model calls per case, by agents and judges: 340 for 40 cases."""

CALLS_PER_CASE = workload.CALLS_PER_CASE + TURNS
"""The agent's calls, and one judge call for each turn: its candidates are the votes."""

OVER_LIMIT = 1.3
OVER_RATE = 1.25
MODEL = ROOT / "benchmarks" / "judge_model.py"


@dataclass
class Bench(Commands):
    """The commands with a judge. ``calls``: model calls of each command's last run."""

    calls: dict[str, int] = field(default_factory=dict)

    def ours(self, *more: object) -> Taken:
        """Run with a new cache unless one is given."""
        cache = () if "--cache-dir" in more else ("--cache-dir", self.work.folder / f"cache-{self.runs + 1}")
        return super().ours(*more, *cache)

    def again(self) -> Taken:
        """Score the last run's answers again, with its cache."""
        last = self.runs
        folder = self.work.folder
        return self.ours("--recording", folder / f"out-{last}", "--cache-dir", folder / f"cache-{last}")

    def measure(self, name: str, taken: Taken, calls: int) -> None:
        """Record one round. Raises CommandFailed if the model was called more than ``calls`` times."""
        seen = self.gemini.seen()
        answered = seen["calls"] - seen["faults"].get("rate", 0)
        if answered > calls or seen["unexpected"]:
            raise CommandFailed(f"{name}: {answered} model calls, at most {calls}: {seen['unexpected'][:1]}")
        self.calls[name] = answered
        self.rounds.setdefault(name, []).append(taken)
        refused = seen["faults"].get("rate", 0)
        print(f"  {name}: {taken.seconds:.2f} s, {answered} calls, {refused} refused", file=sys.stderr, flush=True)
        self.gemini.reset()


def compare(rounds: int, cases: int) -> dict[str, Any]:
    """Run all rounds and return a report. Seconds are medians."""
    most = cases * (workload.CALLS_PER_CASE + TURNS * SAMPLES)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        work = workload.write(Path(folder), cases, CRITERIA)
        with client.running(MODEL) as gemini:
            bench = Bench(work, gemini)
            print("warming up (not measured)", file=sys.stderr)
            bench.ours()
            for number in range(1, rounds + 1):
                print(f"round {number} of {rounds}", file=sys.stderr)
                gemini.configure(latency=LATENCY)
                gemini.reset()
                bench.measure("adk eval", bench.adk_eval(), most)
                bench.measure("agent-eval run", bench.ours(), cases * CALLS_PER_CASE)
                bench.measure("again, from the cache", bench.again(), 0)
                gemini.configure(latency=0)
                bench.measure("agent-eval run, latency 0", bench.ours(), cases * CALLS_PER_CASE)
            gemini.configure(latency=LATENCY, per_second=PER_SECOND)
            bench.work = workload.write(Path(folder) / "rated", RATED_CASES, CRITERIA)
            bench.measure(f"{PER_SECOND} a second", bench.ours(), RATED_CASES * CALLS_PER_CASE)
    return _report(bench, rounds, cases)


def _report(bench: Bench, rounds: int, cases: int) -> dict[str, Any]:
    agents = cases * workload.CALLS_PER_CASE
    chain = (workload.CALLS_PER_CASE + 1) * LATENCY
    waiting = max(chain, agents * LATENCY / CONCURRENCY)
    ours, alone = bench.median("agent-eval run"), bench.median("agent-eval run, latency 0")
    limited = bench.median(f"{PER_SECOND} a second")
    allowed = RATED_CASES * CALLS_PER_CASE / PER_SECOND
    return {
        "cases": cases,
        "rounds": rounds,
        "latency": LATENCY,
        "calls": bench.calls,
        "seconds": {name: [round(taken.seconds, 3) for taken in of] for name, of in bench.rounds.items()},
        "median": {name: round(bench.median(name), 3) for name in bench.rounds},
        "cpu_seconds": {
            name: round(measure.median([t.cpu_seconds for t in of]), 3) for name, of in bench.rounds.items()
        },
        "waiting": round(waiting, 3),
        "limit": round(alone + waiting, 3),
        "times_faster": round(bench.median("adk eval") / ours, 2),
        "over_limit": round(ours / (alone + waiting), 2),
        "rate_allows": round(allowed, 2),
        "over_rate": round(limited / allowed, 2),
        "targets": {"times_faster": FASTER, "over_limit": OVER_LIMIT, "over_rate": OVER_RATE},
    }


def _show(report: dict[str, Any]) -> None:
    print(f"{report['cases']} cases of {TURNS} turns, a judge with {SAMPLES} samples, {report['latency']} s a call,")
    print(f"medians of {report['rounds']} rounds, the commands alternating:")
    for name, seconds in report["median"].items():
        spread = f"{min(report['seconds'][name]):.2f} to {max(report['seconds'][name]):.2f}"
        used = f"processor {report['cpu_seconds'][name]:.2f} s, {report['calls'][name]} model calls"
        print(f"  {name:<26} {seconds:6.2f} s   ({spread}; {used})")
    print(f"  times faster than adk eval {report['times_faster']:6.2f}     (target: at least {FASTER})")
    calls, most = report["calls"]["agent-eval run"], MOST_CALLS * report["cases"]
    print(f"  model calls                {calls:6}     (target: at most {most:.0f})")
    print(f"  over the limit of {report['limit']:.2f} s   {report['over_limit']:6.2f}     ", end="")
    print(f"(target: at most {OVER_LIMIT}; {report['waiting']:.2f} s of it waiting for the model)")
    print(f"  over what {PER_SECOND} a second allow  {report['over_rate']:6.2f}     ", end="")
    print(f"(target: at most {OVER_RATE}; {report['rate_allows']:.1f} s)")


def _met(report: dict[str, Any]) -> bool:
    fast = report["times_faster"] >= FASTER and report["over_limit"] <= OVER_LIMIT
    fast = fast and report["calls"]["agent-eval run"] <= MOST_CALLS * report["cases"]
    return fast and report["over_rate"] <= OVER_RATE


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. Returns 1 if a target is missed."""
    parser = command_line("judged_job", __doc__, rounds=3)
    parser.add_argument("--cases", type=int, default=40)
    return Benchmark(parser, lambda options: compare(options.rounds, options.cases), _show, _met).main(arguments)


if __name__ == "__main__":
    sys.exit(main())
