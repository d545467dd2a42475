"""A thousand cases against google-adk's own ``api_server``, which ``agent-eval run`` starts."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import ROOT, measure, workload
from benchmarks.command import Benchmark, command_line
from benchmarks.main_job import ADK_ENVIRONMENT, LATENCY, passed_cases
from benchmarks.measure import CommandFailed, Taken
from support.gemini_server import client

SESSIONS = 32
OVER_LIMIT = 1.3

_COMMAND = (
    str(ADK_ENVIRONMENT / "bin" / "adk"),
    "api_server",
    "--port",
    "{port}",
    "--session_service_uri",
    "memory://",
)


def _evaluate(work: workload.Workload, gemini: client.RunningGemini, latency: float) -> Taken:
    """Run the command once. Raises CommandFailed unless every case passed."""
    gemini.configure(latency=latency)
    out = work.folder / f"out-{latency}"
    argv = [str(ROOT / ".venv" / "bin" / "agent-eval"), "run", "--out", str(out), "--concurrency", str(SESSIONS)]
    taken = measure.run(argv, work.folder, gemini.environ)
    passed = passed_cases(out / "results.json") if taken.exit_code == 0 else 0
    if passed != work.cases:
        raise CommandFailed(f"exit {taken.exit_code}, {passed} cases passed:\n{taken.output}")
    print(f"  {latency} s a call: {taken.seconds:.2f} s, processor {taken.cpu_seconds:.2f} s", file=sys.stderr)
    return taken


def compare(rounds: int, cases: int) -> dict[str, Any]:
    """Run all rounds, with and without the model's latency; the limit is the longer of computing and waiting."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        work = workload.write(Path(folder), cases)
        agent = {"path": workload.AGENT, "driver": "adk_server", "command": [*_COMMAND, str(work.folder)]}
        agent["workers"] = os.cpu_count()
        # JSON is YAML.
        (work.folder / "agent-eval.yaml").write_text(
            json.dumps({"agents": [{**agent, "evals": "evals/*.evalset.json"}]})
        )
        with client.running(work.rules) as gemini:
            at_once = [_evaluate(work, gemini, 0.0).seconds for _ in range(rounds)]
            waited = [_evaluate(work, gemini, LATENCY).seconds for _ in range(rounds)]
    calls = cases * workload.CALLS_PER_CASE
    ceiling = max(workload.CALLS_PER_CASE * LATENCY, calls * LATENCY / SESSIONS)
    # The servers compute for some sessions while others wait for the model, so the longer of the two is the least time.
    limit = max(ceiling, measure.median(at_once))
    seconds = measure.median(waited)
    return {
        "cases": cases,
        "rounds": rounds,
        "seconds": round(seconds, 2),
        "at_once": round(measure.median(at_once), 2),
        "ceiling_of_sessions": round(ceiling, 2),
        "over_ceiling": round(seconds / ceiling, 2),
        "over_limit": round(seconds / limit, 2),
        "target": OVER_LIMIT,
    }


def _show(report: dict[str, Any]) -> None:
    print(f"{report['cases']} cases against adk api_server, {LATENCY} s a model call: {report['seconds']} s")
    print(f"  {SESSIONS} sessions allow       {report['ceiling_of_sessions']} s   ({report['over_ceiling']} times)")
    print(f"  the servers alone take {report['at_once']} s")
    print(f"  over the longer of both {report['over_limit']}   (target: at most {OVER_LIMIT})")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. Returns 1 if the target is missed."""
    parser = command_line("adk_server", __doc__, rounds=1)
    parser.add_argument("--cases", type=int, default=1000)
    measured = Benchmark(
        parser,
        lambda options: compare(options.rounds, options.cases),
        _show,
        lambda report: report["over_limit"] <= OVER_LIMIT,
    )
    return measured.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
