"""Simulate runs of agents with known pass rates or scores, decided by the gate's own functions.

``benchmarks/gate_fidelity.py`` measures the gate with it; ``agent-eval simulate`` tests a policy on a team's history.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from agent_eval_action.config.models import Policy
from agent_eval_action.gate.assess import assess
from agent_eval_action.gate.next_step import Stop, next_step
from agent_eval_action.gate.pairs import GateRules, GateState, Pair, is_binary
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.history import History, ScoreCount, weighted_mean
from agent_eval_action.results.run_result import Goal
from agent_eval_action.stats import counted

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


_CORRELATION: Final = 0.6
_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Agent:
    """The score distribution of one case: a pass rate (``sd`` None), or normal scores clipped to 0 and 1."""

    mean: float
    sd: float | None = None


@dataclass(frozen=True, slots=True)
class SimulatedCase:
    """One case under main (``base``) and under the change (``head``).

    ``past``: main when its history was recorded; None: the same as ``base``.
    """

    base: Agent
    head: Agent
    past: Agent | None = None


@dataclass(frozen=True)
class SimulatedSuite:
    """A suite with its history.

    ``flip``: the rate at which a judge inverts a verdict (a graded score becomes one minus it). ``criteria`` are
    correlated within each attempt of a case; the change affects all of them.
    """

    cases: tuple[SimulatedCase, ...]
    history: int = 10
    criteria: int = 1
    flip: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One simulated run. ``runs``: attempts on both sides divided by the number of cases."""

    blocked: bool
    inconclusive: bool
    runs: float


@dataclass(frozen=True)
class Drawn:
    """The random scores of one run, by case, criterion and attempt: main's records, the change, the control."""

    history: Floats
    head: Floats
    base: Floats


class Sampler:
    """Draws runs of one suite, reproducibly from a seed."""

    def __init__(self, suite: SimulatedSuite, seed: int) -> None:
        import numpy as np  # noqa: PLC0415 - only simulations need it

        self.suite, self._random = suite, np.random.default_rng(seed)
        self._base = [case.base for case in suite.cases]
        self._past = [case.past or case.base for case in suite.cases]
        self._head = [case.head for case in suite.cases]

    def draw(self, attempts: int) -> Drawn:
        """One run with this many attempts available on each side."""
        return Drawn(
            self._scores(self._past, self.suite.history),
            self._scores(self._head, attempts),
            self._scores(self._base, attempts),
        )

    def more(self, drawn: Drawn) -> Drawn:
        """The same run with twice as many attempts available."""
        import numpy as np  # noqa: PLC0415 - only simulations need it

        count = drawn.head.shape[2]
        head = np.concatenate([drawn.head, self._scores(self._head, count)], axis=2)
        return Drawn(drawn.history, head, np.concatenate([drawn.base, self._scores(self._base, count)], axis=2))

    def _scores(self, agents: Sequence[Agent], attempts: int) -> Floats:
        import numpy as np  # noqa: PLC0415 - only simulations need it
        from scipy.special import ndtri  # type: ignore[import-untyped]  # noqa: PLC0415 - only simulations need it

        shape = (len(agents), self.suite.criteria, attempts)
        latent = self._random.standard_normal(shape)
        if self.suite.criteria > 1:
            shared = self._random.standard_normal((shape[0], 1, attempts))
            latent = _CORRELATION**0.5 * shared + (1 - _CORRELATION) ** 0.5 * latent
        mean = np.array([agent.mean for agent in agents])[:, None, None]
        sd = np.array([np.nan if agent.sd is None else agent.sd for agent in agents])[:, None, None]
        graded = np.clip(mean + np.nan_to_num(sd) * latent, 0.0, 1.0).round(4)
        scores: Floats = np.where(np.isnan(sd), (latent < ndtri(mean)).astype(float), graded)
        if self.suite.flip:
            scores = np.where(self._random.random(shape) < self.suite.flip, 1 - scores, scores)
        return scores


class SimulatedRun:
    """One run as the pipeline makes it: a first pass, then the runs that the gate requests."""

    def __init__(
        self, sampler: Sampler, drawn: Drawn, rules: GateRules, *, control: bool = True, first: int = 1
    ) -> None:
        self._sampler, self._drawn, self._rules, self._control = sampler, drawn, rules, control
        self._extra = 0
        history, head = drawn.history.tolist(), drawn.head[:, :, :first].tolist()
        self._pairs: dict[CaseKey, list[Pair]] = {}
        for case, scores in enumerate(history):
            key = CaseKey("", "", f"{case:06}")
            self._pairs[key] = [
                Pair(key, f"c{n}", counted(past), tuple(head[case][n]), first) for n, past in enumerate(scores)
            ]

    @property
    def state(self) -> GateState:
        return GateState(tuple(chain.from_iterable(self._pairs.values())), self._control, self._extra)

    def finish(self) -> Outcome:
        """Run until the gate stops, and decide."""
        while not isinstance(step := next_step(self.state, self._rules), Stop):
            for key, more in step.attempts:
                self._add(key, more, control=step.purpose == "control")
            for key, more in step.interleaved:
                self._add(key, more, interleaved=True)
        found = assess(self.state, self._rules).values()
        blocked = any(criterion.confirmed for criterion in found)
        unseen = any(criterion.main_collapse for criterion in found)
        runs = sum(len(own[0].attempts) + len(own[0].control) for own in self._pairs.values()) / len(self._pairs)
        return Outcome(blocked, (step.limited or unseen) and not blocked, runs)

    def _add(self, key: CaseKey, more: int, *, control: bool = False, interleaved: bool = False) -> None:
        self._extra += more
        own = self._pairs[key]
        start = len(own[0].control if control else own[0].attempts)
        while start + more > self._drawn.head.shape[2]:
            self._drawn = self._sampler.more(self._drawn)
        drawn = self._drawn.base if control else self._drawn.head
        for n, pair in enumerate(own):
            scores = tuple(drawn[int(key.case), n, start : start + more].tolist())
            if control:
                made = pair.control + scores
                own[n] = replace(pair, control=made, control_attempts=len(made))
            else:
                in_turn = pair.interleaved + (scores if interleaved else ())
                own[n] = replace(pair, attempts=pair.attempts + scores, interleaved=in_turn)


def simulate(
    suite: SimulatedSuite, rules: GateRules, runs: int, seed: int, *, control: bool = True
) -> Iterable[Outcome]:
    """Simulated runs of a suite, each with its own history."""
    sampler = Sampler(suite, seed)
    for _ in range(runs):
        yield SimulatedRun(sampler, sampler.draw(_AT_ONCE), rules, control=control).finish()


_SEVERAL: Final = 5


@dataclass(frozen=True, slots=True)
class BacktestRow:
    """One change to one criterion's suite, simulated repeatedly. ``runs_per_case``: attempts on both sides."""

    criterion: str
    change: str
    cases: int
    history: int
    blocked: float
    inconclusive: float
    runs_per_case: float


@dataclass(frozen=True, slots=True)
class Backtest:
    """Every change to every criterion, harmless ones first; ``left_out`` says why criteria are missing."""

    rows: tuple[BacktestRow, ...]
    left_out: tuple[str, ...] = ()


def backtest_policy(
    history: History,
    policy: Policy,
    goals: Mapping[str, Goal],
    *,
    runs: int,
    seed: int = 1,
    extra_runs: int | None = None,
    report_progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Backtest:
    """Simulate ``runs`` runs of each change. The cases score as in main's history.

    ``extra_runs`` as in the settings. ``report_progress`` takes the numbers of simulated and of all runs.
    """
    left_out: list[str] = []
    simulated: list[tuple[str, str, GateRules, SimulatedSuite]] = []
    by_criterion: dict[str, list[tuple[ScoreCount, ...]]] = defaultdict(list)
    for (_, criterion), pair in sorted(history.pairs.items()):
        if pair.scores:
            by_criterion[criterion].append(pair.scores)
    for criterion, scores in sorted(by_criterion.items()):
        goal = goals.get(criterion, "maximize")
        own = policy.for_criterion(criterion, goal)
        if own.mode != "blocking":
            left_out.append(f"{criterion}: its mode is {own.mode}, so it blocks nothing")
        elif goal == "minimize" or any(not 0 <= score <= 1 for pair in scores for score, _ in pair):
            left_out.append(f"{criterion}: only scores from 0 to 1 are simulated")
        else:
            rules = GateRules(policy.model_copy(update={"criteria": {"c0": own}, "sets": {}}), extra_runs)
            agents = [_agent(pair) for pair in scores]
            recorded = max(1, round(statistics.median(sum(count for _, count in pair) for pair in scores)))
            for change, heads in _changes(agents):
                suite = SimulatedSuite(tuple(map(SimulatedCase, agents, heads)), recorded)
                simulated.append((criterion, change, rules, suite))
    rows: list[BacktestRow] = []
    for criterion, change, rules, suite in simulated:
        outcomes: list[Outcome] = []
        for outcome in simulate(suite, rules, runs, seed):
            outcomes.append(outcome)
            report_progress(len(rows) * runs + len(outcomes), len(simulated) * runs)
        row = BacktestRow(
            criterion=criterion,
            change=change,
            cases=len(suite.cases),
            history=suite.history,
            blocked=statistics.fmean(outcome.blocked for outcome in outcomes),
            inconclusive=statistics.fmean(outcome.inconclusive for outcome in outcomes),
            runs_per_case=statistics.fmean(outcome.runs for outcome in outcomes),
        )
        rows.append(row)
    return Backtest(tuple(rows), tuple(left_out))


def _agent(scores: Sequence[ScoreCount]) -> Agent:
    """A pass rate if every score was 0 or 1, else mean and standard deviation."""
    mean = weighted_mean(scores)
    if is_binary([score for score, _ in scores]):
        return Agent(mean)
    everything = [score for score, count in scores for _ in range(count)]
    return Agent(mean, statistics.stdev(everything) if len(everything) > 1 else 0.0)


def _changes(agents: Sequence[Agent]) -> Iterator[tuple[str, Sequence[Agent]]]:
    """The description of each change, and the agents under it."""
    best = max(range(len(agents)), key=lambda at: agents[at].mean)
    yield "nothing (a harmless change)", agents
    yield "its most reliable case always fails", _scaled(agents, {best}, 0.0)
    if len(agents) > _SEVERAL:
        spread = {at * len(agents) // _SEVERAL for at in range(_SEVERAL)}
        yield "five cases lose half", _scaled(agents, spread, 0.5)
    for drop in (0.05, 0.1, 0.2):
        yield f"every case loses {drop:g}", [replace(agent, mean=max(0.0, agent.mean - drop)) for agent in agents]


def _scaled(agents: Sequence[Agent], cases: set[int], factor: float) -> list[Agent]:
    return [replace(agent, mean=agent.mean * factor) if at in cases else agent for at, agent in enumerate(agents)]
