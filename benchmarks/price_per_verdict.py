"""The price of a verdict in model calls, tokens and USD, compared with ``adk eval``'s rule at the same error rates.

One real run gives the cost of an attempt. Simulated runs of the gate's suites give the attempts per verdict and the
error rates. ADK's rule fails if any case's mean over its repeats is below the threshold; it gets the threshold that
suits it best.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import gate_fidelity, workload
from benchmarks.command import Benchmark, command_line
from benchmarks.main_job import ADK_ENVIRONMENT, Bench
from support.gemini_server import client

CHANGES: Final = ("solid break", "ten points", "five halved")
RUNS: Final = 500
MOST_REPEATS: Final = 50
HISTORY: Final = 10
THRESHOLDS: Final = tuple(number / 20 for number in range(1, 21))


@dataclass(frozen=True)
class Price:
    """The cost of one attempt."""

    calls: float
    tokens: float
    usd: float

    def times(self, attempts: float) -> dict[str, float]:
        """Return the cost of a number of attempts."""
        return {
            "calls": round(self.calls * attempts),
            "tokens": round(self.tokens * attempts),
            "usd": round(self.usd * attempts, 4),
        }


def price_of_attempt(cases: int) -> Price:
    """Measure one run of the price agent and return its totals per attempt."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        work = workload.write(Path(folder), cases)
        with client.running(work.rules) as gemini:
            Bench(work, gemini, ADK_ENVIRONMENT).ours()
        totals = json.loads((Path(folder) / "out-1" / "results.json").read_text())["totals"]
    used = totals["usage"]
    return Price(used["model_calls"] / cases, used["total_tokens"] / cases, totals["usd"] / cases)


@dataclass(frozen=True)
class Row:
    """A suite and a change that ADK's rule must find as often as this gate does."""

    suite: str
    change: str
    runs: int

    def measure(self) -> dict[str, Any]:
        """Simulate attempts per verdict and error rates of both rules."""
        ours = {change: self._ours(change) for change in ("harmless", self.change)}
        blocked, missed = ours["harmless"]["blocked"], 1 - ours[self.change]["blocked"]
        found = {
            "suite": self.suite,
            "change": self.change,
            "cases": sum(count for count, _ in gate_fidelity.SUITES[self.suite][0]),
            "runs_per_case": ours["harmless"]["runs_per_case"],
            "harmless_blocked": blocked,
            "missed": round(missed, 5),
        }
        return {**found, "adk_repeats": self._adk_repeats(blocked, missed)}

    def _ours(self, change: str) -> dict[str, float]:
        one = gate_fidelity.suite(self.suite, change, HISTORY)
        return gate_fidelity.measure(one, self.runs, gate_fidelity.SEED, others=False, fixed=False)[gate_fidelity.OURS]

    def _adk_repeats(self, blocked: float, missed: float) -> int | None:
        """Return the fewest repeats with which ADK's rule errs no more often; None if 50 are not enough."""
        means = zip(self._worst_means("harmless"), self._worst_means(self.change), strict=True)
        for repeats, (harmless, changed) in enumerate(means, 1):
            if any((harmless < at).mean() <= blocked and (changed >= at).mean() <= missed for at in THRESHOLDS):
                return repeats
        return None

    def _worst_means(self, change: str) -> Iterator[Any]:
        """Yield, for each number of repeats, every run's lowest case mean, which ADK compares with its threshold."""
        import numpy as np  # noqa: PLC0415 - the table's processes need it, its parent does not

        sampler = gate_fidelity.Sampler(gate_fidelity.suite(self.suite, change, HISTORY), gate_fidelity.SEED)
        heads = np.stack([sampler.draw(MOST_REPEATS).head[:, 0, :] for _ in range(self.runs)])
        for number in range(1, MOST_REPEATS + 1):
            yield heads[:, :, :number].mean(axis=2).min(axis=1).round(9)


def table(runs: int, cases: int) -> dict[str, Any]:
    """Measure every row."""
    price = price_of_attempt(cases)
    todo = [Row(suite, change, runs) for suite in gate_fidelity.SUITES for change in CHANGES]
    with ProcessPoolExecutor() as pool:
        rows = list(pool.map(Row.measure, todo))
    for row in rows:
        row["ours"] = price.times(row["cases"] * row["runs_per_case"])
        row["adk_eval"] = price.times(row["cases"] * row["adk_repeats"]) if row["adk_repeats"] else None
    return {"attempt": price.times(1), "runs": runs, "history": HISTORY, "rows": rows}


def _show(report: dict[str, Any]) -> None:
    price = report["attempt"]
    print(f"an attempt of the price agent: {price['calls']} calls, {price['tokens']} tokens, ${price['usd']:.4f};")
    print(f"a verdict on a harmless change, {report['runs']} simulated runs a row, history {report['history']}:")
    print(f"{'':<24}{'wrong: blocked':>15}{'missed':>9}{'repeats':>9}{'calls':>8}{'tokens':>11}{'USD':>9}   adk eval")
    for row in report["rows"]:
        ours, adk = row["ours"], row["adk_eval"]
        name = f"{row['suite']}, {row['change']}"
        wrong = f"{row['harmless_blocked']:15.1%}{row['missed']:9.1%}{row['runs_per_case']:9.2f}"
        print(f"{name:<24}{wrong}{ours['calls']:8}{ours['tokens']:11,}{ours['usd']:9.4f}", end="   ")
        if adk is None:
            print(f"as few wrong with no number of repeats up to {MOST_REPEATS}, whatever the threshold")
        else:
            print(f"{row['adk_repeats']} repeats: {adk['calls']} calls, {adk['tokens']:,} tokens, ${adk['usd']:.4f}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. There is no target; the table only shows what the gate costs."""
    parser = command_line("price_per_verdict", __doc__, rounds=1)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--cases", type=int, default=10, help="cases of the real run that gives an attempt's price")
    return Benchmark(parser, lambda options: table(options.runs, options.cases), _show, lambda _: True).main(arguments)


if __name__ == "__main__":
    sys.exit(main())
