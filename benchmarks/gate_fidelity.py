"""How often the gate decides correctly: the real gate judges simulated runs of agents with known quality."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent_eval_action.gate.assess import assess
from agent_eval_action.gate.pairs import GateRules
from agent_eval_action.gate.simulate import Agent, Drawn, Sampler, SimulatedCase, SimulatedRun, SimulatedSuite

RUNS: Final = 2_000
SEED: Final = 1
HISTORIES: Final = (3, 10, 20)
REPEATS: Final = 10
THRESHOLD: Final = {False: 1.0, True: 0.5}
"""What a case must reach under the other rules: a pass, or half of a graded score."""

_ATTEMPTS: Final = 24
_FIVE: Final = 5
_LEVEL: Final = 0.05
_MIDDLE: Final = 10
_HARMLESS: Final = 0.01
OURS: Final = "this gate"
FIXED: Final = f"{REPEATS} fixed repeats of everything"

Rates = tuple[tuple[int, float], ...]
SUITES: Final[dict[str, tuple[Rates, float | None]]] = {
    "50 cases": (((35, 0.995), (10, 0.95), (5, 0.80)), None),
    "200 cases": (((140, 0.995), (40, 0.95), (20, 0.80)), None),
    "20 cases": (((10, 0.95), (10, 0.80)), None),
    "50 graded": (((35, 0.90), (10, 0.80), (5, 0.70)), 0.1),
}


def nothing(means: list[float]) -> list[float]:
    """Change nothing."""
    return list(means)


def solid(means: list[float]) -> list[float]:
    """Make the first case, one of the most reliable, always fail."""
    return [0.0, *means[1:]]


def ten(means: list[float]) -> list[float]:
    """Lower every case by ten points."""
    return [mean - 0.1 for mean in means]


def five(means: list[float]) -> list[float]:
    """Halve the first five cases."""
    return [mean / 2 if index < _FIVE else mean for index, mean in enumerate(means)]


def collapse(means: list[float]) -> list[float]:
    """Make every case fail."""
    return [0.0 for _ in means]


COLLAPSES: Final = (5, 9, 20, 50)
COLLAPSE_HISTORIES: Final = (3, 5, 10)
_BLOCKED, _RUNS = 0.995, 2.5
_RUNS_OF_BOTH = 3.1

CHANGES: Final[dict[str, Callable[[list[float]], list[float]]]] = {
    "harmless": nothing,
    "solid break": solid,
    "ten points": ten,
    "five halved": five,
}


def collapsing(cases: int, history: int, *, main_too: bool = False) -> SimulatedSuite:
    """Return a suite in which every fifth case passed 80 % of the time and the others 95 %, and now none passes.

    ``main_too``: main's agent has collapsed too, so the change is not to blame.
    """
    base = [0.8 if number % 5 == 0 else 0.95 for number in range(cases)]
    rates = zip(base, collapse(base), strict=True)
    return SimulatedSuite(
        tuple(SimulatedCase(Agent(now if main_too else past), Agent(now), Agent(past)) for past, now in rates),
        history,
    )


def suite(name: str, change: str, history: int, criteria: int = 1) -> SimulatedSuite:
    """Return the suite of one cell of the table."""
    rates, sd = SUITES[name]
    base = [rate for count, rate in rates for _ in range(count)]
    head = CHANGES[change](base)
    cases = tuple(SimulatedCase(Agent(one, sd), Agent(other, sd)) for one, other in zip(base, head, strict=True))
    return SimulatedSuite(cases, history, criteria)


# --- the other rules ------------------------------------------------------------------------------


def any_case(drawn: Drawn, limit: Any) -> bool:
    """``adk eval``: any case is below its threshold in a single run."""
    return bool((drawn.head[:, :, 0] < limit[:, :, 0]).any())


def two_averaged(drawn: Drawn, limit: Any) -> bool:
    """ADK's pytest: any case's mean of two runs is below its threshold."""
    return bool((drawn.head[:, :, :2].mean(axis=2) < limit[:, :, 0]).any())


def five_points(drawn: Drawn, limit: Any) -> bool:
    """The mean of one run may be at most five points below that of one run of main."""
    del limit
    fell = drawn.history[:, :, 0].mean(axis=0) - drawn.head[:, :, 0].mean(axis=0)
    return bool((fell > 0.05 + 1e-9).any())


def mcnemar(drawn: Drawn, limit: Any) -> bool:
    """McNemar's exact test, one run against one run of main: more cases lost than won, p < 0.05."""
    before, now = drawn.history[:, :, 0] >= limit[:, :, 0], drawn.head[:, :, 0] >= limit[:, :, 0]
    lost, won = (before & ~now).sum(axis=0).tolist(), (~before & now).sum(axis=0).tolist()
    return any(b > c and _one_sided(b, c) < _LEVEL for b, c in zip(lost, won, strict=True))


def _one_sided(lost: int, won: int) -> float:
    n = lost + won
    return sum(math.comb(n, k) for k in range(lost, n + 1)) / 2**n


OTHERS: Final[dict[str, tuple[Callable[[Drawn, Any], bool], int]]] = {
    "any case below its threshold": (any_case, 1),
    "two runs averaged": (two_averaged, 2),
    "mean may drop 5 points": (five_points, 1),
    "McNemar p < 0.05": (mcnemar, 1),
}


@dataclass
class Tally:
    """The decisions of one rule over all runs so far."""

    blocked: int = 0
    inconclusive: int = 0
    runs: float = 0.0

    def shares(self, runs: int) -> dict[str, float]:
        """Return the counts per run."""
        return {
            "blocked": round(self.blocked / runs, 5),
            "inconclusive": round(self.inconclusive / runs, 5),
            "runs_per_case": round(self.runs / runs, 4),
        }


def measure(
    one: SimulatedSuite, runs: int, seed: int, *, others: bool = True, fixed: bool = True
) -> dict[str, dict[str, float]]:
    """Return shares by rule over ``runs`` runs. The gate's runs per case include re-runs and the control."""
    import numpy as np  # noqa: PLC0415 - the table's processes need it, its parent does not

    sampler = Sampler(one, seed)
    graded = np.array([[[case.base.sd is not None]] for case in one.cases])
    limit = np.where(graded, THRESHOLD[True], THRESHOLD[False])
    tallies = {name: Tally() for name in (OURS, *(OTHERS if others else ()), *([FIXED] if fixed else ()))}
    for _ in range(runs):
        drawn = sampler.draw(_ATTEMPTS)
        outcome = SimulatedRun(sampler, drawn, GateRules()).finish()
        ours = tallies[OURS]
        ours.blocked += outcome.blocked
        ours.inconclusive += outcome.inconclusive
        ours.runs += outcome.runs
        for name, (rule, times) in OTHERS.items() if others else ():
            tallies[name].blocked += rule(drawn, limit)
            tallies[name].runs += times
        if fixed:
            everything = SimulatedRun(sampler, drawn, GateRules(adaptive=False), control=False, first=REPEATS)
            tallies[FIXED].blocked += any(
                found.confirmed for found in assess(everything.state, GateRules(adaptive=False)).values()
            )
            tallies[FIXED].runs += REPEATS
    return {name: tally.shares(runs) for name, tally in tallies.items()}


# --- one suite from a file ------------------------------------------------------------------------


def read(text: str) -> tuple[SimulatedSuite, int, int]:
    """Parse a file; return its suite, number of runs and seed. Raises ValueError with the problem."""
    given = json.loads(text)
    if not isinstance(given, dict) or not isinstance(given.get("cases"), list) or not given["cases"]:
        raise ValueError("must be an object with a list of cases")
    cases = tuple(SimulatedCase(_agent(case, "base"), _agent(case, "head")) for case in given["cases"])
    made = SimulatedSuite(
        cases, int(given.get("history", 10)), int(given.get("criteria", 1)), flip=float(given.get("flip", 0.0))
    )
    if made.history < 1 or made.criteria < 1 or not 0 <= made.flip <= 1:
        raise ValueError("history and criteria must be at least 1, flip from 0 to 1")
    runs = int(given.get("runs", RUNS))
    if runs < 1:
        raise ValueError("runs must be at least 1")
    return made, runs, int(given.get("seed", SEED))


def _agent(case: dict[str, Any], side: str) -> Agent:
    given = case.get(side, case.get("base"))
    plain = isinstance(given, int | float) and not isinstance(given, bool)
    if plain and 0 <= given <= 1:
        return Agent(float(given))
    if isinstance(given, dict) and "mean" in given and float(given.get("sd", 0)) >= 0:
        return Agent(float(given["mean"]), float(given.get("sd", 0.0)))
    raise ValueError(f"case {case.get('id')!r}: {side} must be a rate from 0 to 1, or a mean and sd, is {given!r}")


# --- the table ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """A suite with a history, a number of criteria and a change."""

    suite: str
    history: int
    criteria: int
    change: str
    runs: int

    def shares(self) -> dict[str, dict[str, float]]:
        """Measure the cell. The other rules ignore history, so they are measured for one history only."""
        plain = self.criteria == 1
        made = suite(self.suite, self.change, self.history, self.criteria)
        return measure(
            made, self.runs, SEED, others=plain and self.history == _MIDDLE, fixed=plain and self.history == _MIDDLE
        )


def targets(cell: Cell, ours: dict[str, float]) -> list[str]:
    """Return the targets that a cell misses, in words."""
    blocked, cost = ours["blocked"], ours["runs_per_case"]
    wanted: list[tuple[bool, str]] = []
    if cell.change == "harmless":
        wanted.append((blocked <= _HARMLESS, "harmless at most 1 %"))
        most = {"50 cases": 1.7 if cell.history == _MIDDLE else None, "20 cases": 2.2}.get(cell.suite)
        if most is not None and cell.criteria == 1:
            wanted.append((cost <= most, f"at most {most} runs per case"))
    least = _least(cell)
    if least is not None:
        wanted.append((blocked >= least, f"{cell.change} at least {least:.0%}"))
    place = f"{cell.suite}, history {cell.history}, {cell.criteria} criteria"
    return [f"{place}: {words}" for met, words in wanted if not met]


def _least(cell: Cell) -> float | None:
    if cell.change == "solid break":
        return 0.99 if (cell.suite, cell.history) == ("50 cases", 10) else 0.95
    return _FOUND.get((cell.suite, cell.history, cell.change)) if cell.criteria == 1 else None


_FOUND: Final = {
    ("50 cases", 10, "ten points"): 0.90,
    ("50 cases", 10, "five halved"): 0.80,
    ("200 cases", 10, "ten points"): 0.98,
    ("200 cases", 20, "ten points"): 0.98,
    ("200 cases", 10, "five halved"): 0.60,
    ("200 cases", 20, "five halved"): 0.80,
}


@dataclass(frozen=True)
class Collapse:
    """A collapse: number of cases, length of history."""

    cases: int
    history: int
    runs: int
    main_too: bool = False

    def shares(self) -> dict[str, float]:
        """Measure with the default limits, including the control."""
        made = collapsing(self.cases, self.history, main_too=self.main_too)
        return measure(made, self.runs, SEED, others=False, fixed=False)[OURS]

    def missed(self, ours: dict[str, float]) -> list[str]:
        """Return missed targets, in words."""
        place = f"collapse{' of main too' * self.main_too}, {self.cases} cases, history {self.history}"
        if self.main_too:
            wanted = [
                (ours["blocked"] <= _HARMLESS, f"blocked at most {_HARMLESS:.0%}"),
                (ours["runs_per_case"] <= _RUNS_OF_BOTH, f"at most {_RUNS_OF_BOTH} runs per case"),
            ]
        else:
            wanted = [
                (ours["blocked"] >= _BLOCKED, f"at least {_BLOCKED:.1%} blocked"),
                (ours["runs_per_case"] <= _RUNS, f"at most {_RUNS} runs per case"),
            ]
        return [f"{place}: {words}" for met, words in wanted if not met]


def collapses(runs: int) -> list[Collapse]:
    """Return the rows of the second table."""
    return [
        Collapse(cases, history, runs, main_too)
        for main_too in (False, True)
        for cases in COLLAPSES
        for history in COLLAPSE_HISTORIES
    ]


def _show_collapses(found: dict[Collapse, dict[str, float]]) -> None:
    print(f"\n{'nothing passes any more':<46}{'blocked':>13}{'inconclusive':>13}{'runs per case':>15}")
    for row, ours in found.items():
        label = f"{row.cases} cases, history {row.history}{', on main too' if row.main_too else ''}"
        print(
            f"{label:<46}{100 * ours['blocked']:13.1f}{100 * ours['inconclusive']:13.1f}{ours['runs_per_case']:15.2f}"
        )


def cells(runs: int) -> list[Cell]:
    """Return all cells, slowest first, so that no processor idles at the end."""
    table = [
        Cell(name, history, criteria, change, runs)
        for name in SUITES
        for criteria in (1, 4)
        for history in HISTORIES
        for change in CHANGES
    ]
    return sorted(table, key=lambda cell: -len(suite(cell.suite, cell.change, 1).cases) * cell.criteria)


def _show(found: dict[Cell, dict[str, dict[str, float]]]) -> None:
    heads = "".join(f"{change:>13}" for change in CHANGES)
    print(f"{'blocked, per cent':<46}{heads}{'runs per case':>15}")
    rows: dict[tuple[str, int, int, str], dict[str, dict[str, float]]] = {}
    for cell, shares in found.items():
        for rule, own in shares.items():
            rows.setdefault((cell.suite, cell.criteria, cell.history, rule), {})[cell.change] = own
    order = {name: index for index, name in enumerate(SUITES)}
    for (name, criteria, history, rule), own in sorted(rows.items(), key=lambda r: (order[r[0][0]], *r[0][1:3])):
        what = f"{name}, history {history}" if rule == OURS else f"  {rule}"
        label = f"{what}, {criteria} criteria" if criteria > 1 else what
        numbers = "".join(f"{100 * own[change]['blocked']:13.1f}" for change in CHANGES)
        print(f"{label:<46}{numbers}{own['harmless']['runs_per_case']:15.2f}")


def table(runs: int, *, as_json: bool) -> int:
    """Measure every cell and print. Returns 1 if a target is missed."""
    began = time.monotonic()
    todo = cells(runs)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(todo, pool.map(Cell.shares, todo), strict=True))
        rows_of_collapse = collapses(runs)
        fallen = dict(zip(rows_of_collapse, pool.map(Collapse.shares, rows_of_collapse), strict=True))
    missed = [words for cell in todo for words in targets(cell, found[cell][OURS])]
    missed += [words for row, ours in fallen.items() for words in row.missed(ours)]
    if as_json:
        rows = [{**vars(cell), "rules": shares} for cell, shares in found.items()]
        fell = [{**vars(row), **ours} for row, ours in fallen.items()]
        print(json.dumps({"cells": rows, "collapses": fell, "missed": missed}, indent=1))
    else:
        _show(found)
        _show_collapses(fallen)
        print(
            f"{runs} simulated runs a cell, {time.monotonic() - began:.0f} s; 4 criteria: a change shows in all of them"
        )
        print("\n".join(f"missed: {words}" for words in missed) or "every target is met")
    return int(bool(missed))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or one suite's numbers as a JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate_fidelity", description=__doc__)
    parser.add_argument("--suite", type=Path, metavar="FILE", help="a suite of your own, as JSON")
    parser.add_argument("--runs", type=int, help=f"simulated runs ({RUNS}, or what the file says)")
    parser.add_argument("--json", action="store_true", help="the table as JSON")
    options = parser.parse_args(arguments)
    if options.suite is None:
        return table(options.runs or RUNS, as_json=options.json)
    try:
        one, runs, seed = read(options.suite.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, AttributeError) as wrong:
        print(f"{options.suite}: {wrong}", file=sys.stderr)
        return 2
    found = measure(one, options.runs or runs, seed)
    print(json.dumps({**found.pop(OURS), "rules": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
