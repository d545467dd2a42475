"""The main job against ``adk eval``: the same agent, eval set and local model server, alternating in one run."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import ROOT, measure, workload
from benchmarks.command import Benchmark, command_line
from benchmarks.measure import CommandFailed, Taken
from support.gemini_server import client

LATENCY = 0.2
CONCURRENCY = 64
"""The default of ``agent-eval run --concurrency``; the bare Runner gets the same."""

FASTER = 5.0
FASTER_UNDER_LOAD = 4.0
OF_PROCESSOR = 0.35
OVER_LIMIT = 1.2
BUSY = 2
"""Busy processes next to the measured command, in the variant under load."""

ADK_ENVIRONMENT = ROOT / ".venvs" / "adk-2.13"


@dataclass
class Commands:
    """The compared commands, with one workspace and one server."""

    work: workload.Workload
    gemini: client.RunningGemini
    rounds: dict[str, list[Taken]] = field(default_factory=dict)
    runs: int = 0

    def adk_eval(self) -> Taken:
        """Run ``adk eval`` with default settings."""
        argv = [ADK_ENVIRONMENT / "bin" / "adk", "eval", self.work.agent, self.work.eval_set]
        taken = self._run(*argv, "--config_file_path", self.work.criteria)
        passed = re.search(r"Tests passed: (\d+)", taken.output)
        self._must_pass(taken, int(passed[1]) if passed else 0)
        return taken

    def ours(self, *more: object) -> Taken:
        """Run ``agent-eval run`` with default settings, and with the agent's interpreter unless it uses a recording."""
        self.runs += 1
        out = self.work.folder / f"out-{self.runs}"
        argv = [ROOT / ".venv" / "bin" / "agent-eval", "run", self.work.eval_set, "--agent", self.work.agent]
        python = () if "--recording" in more else ("--python", ADK_ENVIRONMENT / "bin" / "python")
        taken = self._run(*argv, *python, "--out", out, *more)
        self._must_pass(taken, passed_cases(out / "results.json") if taken.exit_code == 0 else 0)
        return taken

    def median(self, name: str) -> float:
        """Return the median seconds of a command."""
        return measure.median([taken.seconds for taken in self.rounds[name]])

    def _run(self, *argv: object) -> Taken:
        return measure.run([str(part) for part in argv], self.work.folder, self.gemini.environ)

    def _must_pass(self, taken: Taken, passed: int) -> None:
        if taken.exit_code != 0 or passed != self.work.cases:
            raise CommandFailed(f"exit {taken.exit_code}, {passed} cases passed:\n{taken.output}")


@dataclass
class Bench(Commands):
    """The commands without a judge, and google-adk's bare Runner."""

    def bare_runner(self) -> Taken:
        script = ROOT / "benchmarks" / "bare_runner.py"
        argv = [ADK_ENVIRONMENT / "bin" / "python", script, self.work.folder, workload.AGENT]
        taken = self._run(*argv, self.work.eval_set, CONCURRENCY)
        turns = taken.output.split()[-1:]
        self._must_pass(taken, int(turns[0]) // 2 if turns and turns[0].isdigit() else 0)
        return taken

    def measure(self, name: str, command: Callable[[], Taken], latency: float = LATENCY) -> None:
        """Record one round of a command. Raises CommandFailed if it made an unexpected number of model calls."""
        self.gemini.configure(latency=latency)
        self.gemini.reset()
        taken = command()
        calls = self.gemini.seen()["calls"]
        if calls != self.work.cases * workload.CALLS_PER_CASE:
            raise CommandFailed(f"{name}: {calls} model calls for {self.work.cases} cases\n{taken.output}")
        self.rounds.setdefault(name, []).append(taken)
        print(f"  {name}: {taken.seconds:.2f} s, processor {taken.cpu_seconds:.2f} s", file=sys.stderr, flush=True)


def passed_cases(results: Path) -> int:
    """Count cases in which every attempt has scores and meets all thresholds."""
    cases = [case for one in json.loads(results.read_text())["sets"] for case in one["cases"]]
    scores = [[score for attempt in case["attempts"] for score in attempt["scores"]] for case in cases]
    return sum(bool(of_case) and all(score["passed"] in {True, None} for score in of_case) for of_case in scores)


def compare(rounds: int, cases: int) -> dict[str, Any]:
    """Run all rounds and return a report. Seconds are medians; the limit is the least time any tool could take."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        work = workload.write(Path(folder), cases)
        with client.running(work.rules) as gemini:
            bench = Bench(work, gemini)
            print("warming up (not measured): byte code, file cache", file=sys.stderr)
            for command in (bench.adk_eval, bench.ours, bench.bare_runner):
                command()
            for number in range(1, rounds + 1):
                print(f"round {number} of {rounds}", file=sys.stderr)
                bench.measure("adk eval", bench.adk_eval)
                bench.measure("agent-eval run", bench.ours)
                bench.measure("agent-eval run, latency 0", bench.ours, latency=0)
                bench.measure("bare Runner", bench.bare_runner)
                with measure.busy(BUSY):
                    bench.measure("adk eval, under load", bench.adk_eval)
                    bench.measure("agent-eval run, under load", bench.ours)
    return _report(bench, rounds)


def _report(bench: Bench, rounds: int) -> dict[str, Any]:
    calls = bench.work.cases * workload.CALLS_PER_CASE
    processor = {name: measure.median([taken.cpu_seconds for taken in of]) for name, of in bench.rounds.items()}
    waiting = max(workload.CALLS_PER_CASE * LATENCY, calls * LATENCY / CONCURRENCY)
    ours = bench.median("agent-eval run")
    limit = bench.median("agent-eval run, latency 0") + waiting
    return {
        "cases": bench.work.cases,
        "model_calls": calls,
        "latency": LATENCY,
        "concurrency": CONCURRENCY,
        "rounds": rounds,
        "seconds": {name: [round(taken.seconds, 3) for taken in of] for name, of in bench.rounds.items()},
        "median": {name: round(bench.median(name), 3) for name in bench.rounds},
        "cpu_seconds": {name: round(seconds, 3) for name, seconds in processor.items()},
        "peak_mb": {name: round(max(taken.peak_mb for taken in of), 1) for name, of in bench.rounds.items()},
        "waiting": waiting,
        "limit": round(limit, 3),
        "times_faster": round(bench.median("adk eval") / ours, 2),
        "times_faster_under_load": round(
            bench.median("adk eval, under load") / bench.median("agent-eval run, under load"), 2
        ),
        "of_processor": round(processor["agent-eval run"] / processor["adk eval"], 3),
        "over_limit": round(ours / limit, 2),
        "targets": {
            "times_faster": FASTER,
            "times_faster_under_load": FASTER_UNDER_LOAD,
            "of_processor": OF_PROCESSOR,
            "over_limit": OVER_LIMIT,
        },
    }


def _show(report: dict[str, Any]) -> None:
    print(f"{report['cases']} cases, {report['model_calls']} model calls of {report['latency']} s, medians of")
    print(f"{report['rounds']} rounds, the commands alternating:")
    for name, seconds in report["median"].items():
        spread = f"{min(report['seconds'][name]):.2f} to {max(report['seconds'][name]):.2f}"
        used = f"processor {report['cpu_seconds'][name]:.2f} s, largest process {report['peak_mb'][name]:.0f} MB"
        print(f"  {name:<26} {seconds:6.2f} s   ({spread}; {used})")
    print(f"  times faster than adk eval {report['times_faster']:6.2f}     (target: at least {FASTER})")
    loaded = report["times_faster_under_load"]
    print(f"  beside {BUSY} busy processes    {loaded:6.2f}     (target: at least {FASTER_UNDER_LOAD})")
    print(f"  of its processor time      {report['of_processor']:6.2f}     (target: at most {OF_PROCESSOR})")
    print(f"  over the limit of {report['limit']:.2f} s   {report['over_limit']:6.2f}     ", end="")
    print(f"(target: at most {OVER_LIMIT}; {report['waiting']:.2f} s of it waiting for the model)")


def _met(report: dict[str, Any]) -> bool:
    fast = report["times_faster"] >= FASTER and report["times_faster_under_load"] >= FASTER_UNDER_LOAD
    return fast and report["of_processor"] <= OF_PROCESSOR and report["over_limit"] <= OVER_LIMIT


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. Returns 1 if a target is missed."""
    parser = command_line("main_job", __doc__, rounds=5)
    parser.add_argument("--cases", type=int, default=40)
    return Benchmark(parser, lambda options: compare(options.rounds, options.cases), _show, _met).main(arguments)


if __name__ == "__main__":
    sys.exit(main())
