"""The verdict of a run: the outcome of every pair and criterion, and the reasons."""

# Without annotations as text: pydantic would compile each one again, at every start of the command.

import enum
from typing import Any, Literal

from pydantic import Field

from agent_eval_action.results.base import Frozen, OfCase, StoreKind
from agent_eval_action.results.findings import Finding, Reason, Subject


class CallBrief(Frozen):
    """A tool call as reports show it; ``args`` is shortened where it is huge."""

    name: str
    args: dict[str, Any] = Field(default_factory=dict)


class TurnBrief(Frozen):
    """A turn as reports show it: excerpts, never megabytes."""

    user: str = ""
    calls: tuple[CallBrief, ...] = ()
    response: str = ""


Unit = Literal["score", "tokens", "calls", "seconds", "usd"]
"""What a criterion's numbers count: a property of the criterion, never guessed from its name."""


class Verdict(enum.StrEnum):
    """The verdict; its exit code is in ``errors.ExitCode``."""

    PASS = "pass"  # noqa: S105 - a verdict, no password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    COLLECTING = "collecting"


class ChangeKind(enum.StrEnum):
    """The outcome of a pair."""

    SAME = "same"
    BETTER = "better"
    WORSE = "worse"
    NEWLY_FAILING = "newly_failing"  # met its threshold in the baseline, does not now
    FIXED = "fixed"  # the other way round
    STILL_FAILING = "still_failing"
    FAILING = "failing"  # below its threshold, and nothing to compare with
    PASSING = "passing"  # there is no baseline at all, and nothing to object to
    NEW = "new"  # the baseline does not have the case or the criterion
    REMOVED = "removed"  # the baseline has it, this run does not
    CHANGED = "changed"  # case or criterion definition differs: not comparable
    ERROR = "error"  # no score
    NOT_APPLICABLE = "not_applicable"
    FLAKY = "flaky"  # worse in the first pass, and cleared by the runs after it
    ON_MAIN = "on_main"  # worse than its history, and as bad on the base commit's agent


class Stat(Frozen):
    """Scored attempts of a pair: how many, their mean, how many met the threshold, extremes."""

    n: int
    mean: float
    passed: int | None = None
    low: float
    high: float


class PairChange(OfCase):
    """A pair, then and now. ``reason`` describes the outcome; None where there is nothing to report.

    ``interval``: the change with 95 % confidence. ``fresh`` are the runs made to confirm a suspect or clear
    it, ``control`` those of the base commit's agent; None where there were none. ``confirmed``: worse than
    main beyond chance, whatever the policy makes of it. ``misses_threshold``: it blocks by its threshold
    alone, also if it is no worse than main. ``accepted``: accept.yaml has an entry for its change. ``quarantined``:
    accept.yaml sets it aside, so that it decides nothing.
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
        """The change in the bad direction; 0 where there is none to be seen."""
        change = self.change or 0.0
        return change if self.goal == "minimize" else -change

    @property
    def subject(self) -> Subject:
        """The pair as findings name it."""
        return Subject(agent=self.agent, eval_set=self.eval_set, case=self.case, criterion=self.criterion)


class CriterionChange(Frozen):
    """A criterion over all cases: the row of the report's table.

    ``baseline``, ``paired`` and ``change`` are means over the pairs both runs have comparable;
    ``current`` is the mean over all scored pairs of this run. ``interval``: the change with 95 %
    confidence, clustered by case. ``detectable``: the smallest drop of the mean this run would have found
    four times out of five. ``flaky``: pairs that were worse at first and cleared by more runs. ``max_drop`` and
    ``max_rise`` are the allowed change, as in the policy. ``blocks_nothing`` says why missing a limit has no effect.
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
    """Where the comparison's other side came from."""

    path: str
    commit: str | None = None
    created_at: str | None = None
    repeats: int | None = None


class BaselineTrajectory(OfCase):
    """What the baseline's agent did in a case (its modal attempt), for the reports to set beside this run's.

    Kept for the cases that a report goes into: regressed, failing, errored, changed, removed. ``seen`` of ``attempts``
    made these calls, where that is known.
    """

    turns: tuple[TurnBrief, ...] = ()
    seen: int | None = None
    attempts: int | None = None


class MainEvent(Frozen):
    """What changed on main with a run. ``subject`` is an agent, a criterion or, of what was accepted, a case.

    ``text``: the old and the new value, the first of the ``cases`` whose definition changed, or why it was accepted.
    """

    kind: Literal["model", "adk", "judge", "criterion", "cases", "accepted"]
    subject: str = ""
    text: str = ""
    cases: int = 0


class MainRun(Frozen):
    """A run of main as its record has it: ``means`` by criterion, and how many of its ``cases`` always passed.

    ``tokens``, ``seconds`` and ``usd``: as in ``RunCost``. ``events``: what changed since the run before.
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
    """A case over main's runs: a letter each, p(assed), f(ailed), m(ixed) or - for a run that does not have it."""

    outcomes: str


class Decision(Frozen):
    """The whole conclusion; reports render this and nothing else decides.

    ``reasons`` say why the outcome is what it is, in order; ``notes`` are what a reader must know beside.
    ``weakenings`` are what the change does to the gate itself; those that block are in ``findings`` too.
    ``store``: what keeps, or would keep, the baseline. ``accept`` and
    ``on_weakened`` are the rules in force. ``excused``: inconclusive for no other reason than
    that GitHub gave the run no secrets; no step is made red by that alone. ``main_runs`` and ``main_cases`` are
    the runs of main in the history, oldest first, whether their scores are comparable or not.
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
