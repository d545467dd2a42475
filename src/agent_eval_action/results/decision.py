"""The verdict of a run: the outcome of every pair and criterion, and the reasons."""

# Without annotations as text: pydantic would compile each one again, at every start of the command.

import enum
from typing import Any, Literal

from pydantic import Field

from agent_eval_action.results.base import Frozen, OfCase, StoreKind
from agent_eval_action.results.findings import Finding, Reason, Subject


class CallBrief(Frozen):
    """A tool call in reports. Huge ``args`` are shortened."""

    name: str
    args: dict[str, Any] = Field(default_factory=dict)


class TurnBrief(Frozen):
    """A turn in reports: excerpts of limited size."""

    user: str = ""
    calls: tuple[CallBrief, ...] = ()
    response: str = ""


Unit = Literal["score", "tokens", "calls", "seconds", "usd"]
"""The unit of a criterion's scores. The criterion declares it."""


class Verdict(enum.StrEnum):
    """The verdict of a run. ``errors.ExitCode`` has the exit code of each."""

    PASS = "pass"  # noqa: S105 - a verdict, no password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    COLLECTING = "collecting"


class ChangeKind(enum.StrEnum):
    """The outcome of a pair: of a case on a criterion."""

    SAME = "same"
    BETTER = "better"
    WORSE = "worse"
    NEWLY_FAILING = "newly_failing"  # met its threshold in the baseline, and misses it now
    FIXED = "fixed"  # missed its threshold in the baseline, and meets it now
    STILL_FAILING = "still_failing"
    FAILING = "failing"  # misses its threshold, and has no baseline
    PASSING = "passing"  # does not miss a threshold; there is no baseline at all
    NEW = "new"  # the baseline lacks the case or the criterion
    REMOVED = "removed"  # this run lacks the case or the criterion
    CHANGED = "changed"  # not comparable: the definition of the case or the criterion differs
    ERROR = "error"  # no score
    NOT_APPLICABLE = "not_applicable"
    FLAKY = "flaky"  # worse in the first pass, but not over the re-runs
    ON_MAIN = "on_main"  # worse than its history, but the base commit's agent is as bad


class Stat(Frozen):
    """The scores of ``n`` attempts of a pair: mean, lowest and highest. ``passed``: those that met the threshold."""

    n: int
    mean: float
    passed: int | None = None
    low: float
    high: float


class PairChange(OfCase):
    """The comparison of a pair with its baseline. ``reason`` describes the outcome; None if there is nothing to report.

    ``interval``: of the change, with 95 % confidence. ``fresh``: the scores of re-runs, which confirm or clear a
    suspect. ``control``: the scores of the base commit's agent. Both are None without such runs. ``confirmed``: worse
    than main beyond chance, whatever the policy decides. ``misses_threshold``: it blocks by its threshold, even if it
    is no worse than main. ``accepted``: accept.yaml has an entry for its change. ``quarantined``: accept.yaml sets it
    aside, so that it decides nothing.
    """

    criterion: str
    goal: Literal["maximize", "minimize"] = "maximize"
    unit: Unit = "score"
    threshold: float | None = None
    kind: ChangeKind
    baseline: Stat | None = None
    current: Stat | None = None
    errors: int = 0
    change: float | None = None
    interval: tuple[float, float] | None = None
    fresh: Stat | None = None
    control: Stat | None = None
    blocking: bool = False
    confirmed: bool = False
    misses_threshold: bool = False
    accepted: bool = False
    quarantined: bool = False
    reason: Reason | None = None

    @property
    def fall(self) -> float:
        """The size of the change for the worse; negative for the better, 0 if unknown."""
        change = self.change or 0.0
        return change if self.goal == "minimize" else -change

    @property
    def subject(self) -> Subject:
        """The pair as the subject of a finding."""
        return Subject(agent=self.agent, eval_set=self.eval_set, case=self.case, criterion=self.criterion)


class CriterionChange(Frozen):
    """A criterion over all cases: a row of the report's table.

    ``current``: the mean of all scored pairs of this run. ``baseline``, ``paired`` and ``change``: the means of the
    baseline and of this run over the comparable pairs, and their difference. ``interval``: of the change, with 95 %
    confidence, clustered by case. ``detectable``: the smallest drop of the mean that this run would find four times out
    of five. ``flaky``: pairs that were worse at first, but not over more runs. ``max_drop``, ``max_rise``: the change
    that the policy allows. ``blocks_nothing``: why missing a limit has no effect.
    """

    criterion: str
    goal: Literal["maximize", "minimize"] = "maximize"
    unit: Unit = "score"
    threshold: float | None = None
    current: float | None = None
    baseline: float | None = None
    paired: float | None = None
    change: float | None = None
    interval: tuple[float, float] | None = None
    detectable: float | None = None
    flaky: int = 0
    pairs: int = 0
    compared: int = 0
    passing: int = 0
    failing: int = 0
    errors: int = 0
    misses_suite_threshold: bool = False
    max_drop: float | None = None
    max_rise: float | None = None
    status: Literal["pass", "fail", "error", "advisory", "not_applicable"] = "pass"
    blocks_nothing: Literal["", "advisory", "no_limit", "collecting"] = ""


class BaselineInfo(Frozen):
    """The origin of the baseline."""

    path: str
    commit: str | None = None
    created_at: str | None = None
    repeats: int | None = None


class BaselineTrajectory(OfCase):
    """The most frequent tool calls of the baseline's agent in a case, which reports compare with this run's.

    Only cases that reports show in detail have one: regressed, failing, errored, changed, removed. ``seen`` of
    ``attempts`` made these calls; None if unknown.
    """

    turns: tuple[TurnBrief, ...] = ()
    seen: int | None = None
    attempts: int | None = None


class MainEvent(Frozen):
    """A change on main that a run was the first to include. ``subject``: an agent or a criterion; if accepted, a case.

    ``text``: the old and the new value, the first of the ``cases`` whose definition changed, or the reason for
    accepting it.
    """

    kind: Literal["model", "adk", "judge", "criterion", "cases", "accepted"]
    subject: str = ""
    text: str = ""
    cases: int = 0


class MainRun(Frozen):
    """A recorded run of main. ``means``: by criterion. ``passed``: the number of ``cases`` that always passed.

    ``tokens``, ``seconds`` and ``usd``: as in ``RunCost``. ``events``: the changes since the run before.
    """

    commit: str | None = None
    created_at: str
    models: tuple[str, ...] = ()
    means: dict[str, float] = Field(default_factory=dict)
    cases: int = 0
    passed: int = 0
    tokens: float | None = None
    seconds: float | None = None
    usd: float | None = None
    events: tuple[MainEvent, ...] = ()


class MainCase(OfCase):
    """A case over main's runs: a character each, p(assed), f(ailed), m(ixed), or - if the run lacks the case."""

    outcomes: str


class Decision(Frozen):
    """The decision on a run: everything that reports show and exit codes depend on.

    ``reasons``: why the outcome is what it is, in order. ``notes``: what else a reader must know. ``weakenings``: how
    the change weakens the gate itself; those that block are also in ``findings``. ``store``: where the baseline is kept
    or would be. ``accept``, ``on_weakened``: the rules in force. ``excused``: inconclusive only because the CI system
    gave the run no secrets, which alone does not fail the job. ``main_runs``, ``main_cases``: the runs of main in the
    history, oldest first, whether their scores are comparable or not.
    """

    outcome: Verdict
    reasons: tuple[Finding, ...]
    excused: bool = False
    findings: tuple[Finding, ...] = ()
    criteria: tuple[CriterionChange, ...] = ()
    pairs: tuple[PairChange, ...] = ()
    baseline: BaselineInfo | None = None
    baseline_trajectories: tuple[BaselineTrajectory, ...] = ()
    main_runs: tuple[MainRun, ...] = ()
    main_cases: tuple[MainCase, ...] = ()
    notes: tuple[Finding, ...] = ()
    weakenings: tuple[Finding, ...] = ()
    store: StoreKind = "file"
    accept: Literal["honour", "ignore"] = "honour"
    on_weakened: Literal["warn", "fail"] = "warn"
