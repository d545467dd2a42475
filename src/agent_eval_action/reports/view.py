"""What reports show of a result: classified cases, rows of criteria, facts, costs. Computed once."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import Final, Self

from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.messages import Messages
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.decision import (
    BaselineTrajectory,
    ChangeKind,
    CriterionChange,
    Decision,
    PairChange,
    TurnBrief,
)
from agent_eval_action.results.findings import Subject
from agent_eval_action.results.pair_scores import meets
from agent_eval_action.results.run_result import (
    AttemptSummary,
    CaseResult,
    CriterionScore,
    RunResult,
    ScoreStatus,
    SetResult,
    Totals,
)

_BELOW: Final = frozenset({ChangeKind.NEWLY_FAILING, ChangeKind.STILL_FAILING, ChangeKind.FAILING})
_FELL: Final = frozenset({ChangeKind.NEWLY_FAILING, ChangeKind.WORSE})
_UNREMARKABLE: Final = frozenset({ChangeKind.SAME, ChangeKind.PASSING})


class Group(enum.IntEnum):
    """The class of a case, in reading order, as reports show it. ``WORSE`` lists those that count as *worse*."""

    label: str
    icon: str
    tone: str

    REGRESSED = 0, "regressed", "❌", "bad"  # worse than main, and blocks
    NEEDS_RUNS = 1, "needs more runs", "⏳", "warn"  # looks worse, but has too few runs to be sure
    NOT_MEASURED = 2, "not measured", "⚠️", "warn"
    BELOW_THRESHOLD = 3, "below threshold", "🔸", "bad"  # no worse, or not comparable; blocks if one of its pairs does
    WORSE = 4, "worse, not blocking", "🔻", "warn"  # significantly
    FLAKY = 5, "flaky", "🎲"
    BROKEN_ON_MAIN = 6, "already broken on main", "🔇"
    QUARANTINED = 7, "quarantined", "🚧"
    NEW = 8, "new", "🆕"
    CHANGED = 9, "changed definition", "✏️"
    REMOVED = 10, "removed", "🗑️"
    BETTER = 11, "better", "🟢", "good"
    UNCHANGED = 12, "unchanged", ""

    def __new__(cls, value: int, label: str, icon: str, tone: str = "") -> Self:
        group = int.__new__(cls, value)
        group._value_, group.label, group.icon, group.tone = value, label, icon, tone
        return group


WORSE: Final = frozenset({Group.REGRESSED, Group.WORSE})
"""The classes that count as *worse* wherever cases are counted or selected."""
NOT_GREEN: Final = frozenset(group for group in Group if group <= Group.BROKEN_ON_MAIN)
"""The classes with any problem, including problems that main has too; for ``--last-failed`` and ``update``."""


@dataclass(frozen=True, slots=True)
class CaseView:
    """A case of the run or of main. ``result`` and ``owner`` are None for a case that this run does not have.

    ``pairs`` begins with those that put the case into ``group``; ``telling`` is their number. ``where``: agent and
    eval set if needed to tell cases apart, else "". ``main``: what main's agent usually does.
    ``in_failed_criterion``: it fell on a criterion whose mean blocks.
    """

    key: CaseKey
    group: Group
    pairs: tuple[PairChange, ...] = ()
    result: CaseResult | None = None
    owner: SetResult | None = None
    main: BaselineTrajectory | None = None
    telling: int = 0
    where: str = ""
    in_failed_criterion: bool = False

    @property
    def reasons(self) -> tuple[PairChange, ...]:
        """The pairs that put the case into its class."""
        return self.pairs[: self.telling]

    @property
    def attempts(self) -> tuple[AttemptSummary, ...]:
        return self.result.attempts if self.result is not None else ()

    @property
    def expected(self) -> tuple[TurnBrief, ...]:
        return self.result.expected if self.result is not None else ()

    @property
    def line(self) -> int | None:
        return self.result.line if self.result is not None and (self.result.line or 0) > 0 else None

    @property
    def baseline_turns(self) -> tuple[TurnBrief, ...]:
        """What main's agent usually does; () if unknown."""
        return self.main.turns if self.main is not None else ()

    def pair(self, criterion: str) -> PairChange | None:
        """Return the comparison for one criterion."""
        return next((pair for pair in self.pairs if pair.criterion == criterion), None)

    @property
    def blocks(self) -> bool:
        return any(pair.blocking for pair in self.pairs)

    @property
    def needs_attention(self) -> bool:
        """Whether a reader should look into the case."""
        return self.group <= Group.BELOW_THRESHOLD or (self.group is Group.WORSE and self.in_failed_criterion)

    @property
    def urgency(self) -> tuple[bool, bool, Group, float]:
        """Sort key: blocking cases first, then by class, largest drop first; ties keep the file's order."""
        falls = [_relative_drop(pair) for pair in self.reasons]
        return not self.blocks, not self.needs_attention, self.group, -max(falls, default=0.0)

    @property
    def is_compared(self) -> bool:
        """Whether any criterion of the case is compared with main."""
        return any(pair.change is not None for pair in self.pairs)

    @property
    def passes(self) -> bool:
        """Whether the case was measured and meets all its thresholds."""
        return all(
            pair.kind is not ChangeKind.ERROR and not pair.errors and passing(pair) is not False for pair in self.pairs
        )

    @property
    def sides(self) -> tuple[str, str]:
        """Main's and this run's result: ``5/5`` and ``0/4`` for a tested pass/fail pair, else the means."""
        pair = self.pairs[0] if self.pairs else None
        if pair is None or pair.kind is ChangeKind.ERROR:
            return fmt.NONE, fmt.NONE
        if (counts := run_counts(pair)) is not None:
            return f"{counts[0]}/{counts[1]}", f"{counts[2]}/{counts[3]}"
        if pair.baseline is not None and pair.current is not None:
            return fmt.numbers(pair.baseline.mean, pair.current.mean, pair.unit)
        then, now = (side.mean if side is not None else None for side in (pair.baseline, pair.current))
        return fmt.number(then, pair.unit), fmt.number(now, pair.unit)

    def worst_attempt(self, pair: PairChange) -> AttemptSummary | None:
        """Return the attempt with the worst score of a pair; the earliest of several."""
        found = ((score_of(attempt, pair.criterion), attempt) for attempt in self.attempts)
        known = [(score.score, attempt) for score, attempt in found if score is not None and score.score is not None]
        sign = -1 if pair.goal == "minimize" else 1
        return min(known, key=lambda item: sign * item[0])[1] if known else None

    def telling_attempt(self) -> AttemptSummary | None:
        """Return the attempt with the worst score of the pairs behind the case's class, else the first failed one."""
        return next(filter(None, map(self.worst_attempt, self.reasons)), None) or self.failed_attempt()

    def failed_attempt(self, criterion: str | None = None) -> AttemptSummary | None:
        """Return the first attempt with an error, or without a score for ``criterion`` (for any, if None)."""
        for attempt in self.attempts:
            unscored = (score.criterion for score in attempt.scores if score.status is ScoreStatus.ERROR)
            if attempt.error is not None or any(criterion in (None, name) for name in unscored):
                return attempt
        return None


@dataclass(frozen=True, slots=True)
class CriterionRow:
    """A row of the table of criteria. Texts are not escaped; "" means nothing to show.

    ``current``: the mean over the cases that both sides have, if any. ``tone``: "bad" or "good" by the direction of
    the change. ``cases``: how many are worse, below the threshold or not measured.
    """

    name: str
    status: str
    lower_is_better: bool
    baseline: str
    current: str
    change: str
    tone: str
    limits: str
    detectable: str
    cases: str


@dataclass(frozen=True)
class ReportView:
    """What several reports show of one result. ``cases``: in the run's order, then removed ones."""

    cases: tuple[CaseView, ...]
    criteria: tuple[CriterionRow, ...]
    messages: Messages
    agents: int

    @classmethod
    def build(cls, result: RunResult, decision: Decision) -> ReportView:
        """Compute the view, from every pair of the decision."""
        cases = tuple(_views(result, decision))
        rows = (_criterion_row(row, cases) for row in sorted(decision.criteria, key=by_severity))
        agents = len({owner.agent for owner in result.sets})
        return cls(cases, tuple(rows), Messages.for_decision(decision), agents)

    @cached_property
    def worst_first(self) -> list[CaseView]:
        return sorted(self.cases, key=lambda case: case.urgency)

    @property
    def run(self) -> list[CaseView]:
        """The cases of this run, without those left unmeasured on purpose."""
        return [view for view in self.cases if view.result is not None and not view.result.unmeasured]

    def in_groups(self, *groups: Group) -> list[CaseView]:
        """Return the cases of these classes, in the view's order."""
        return [view for view in self.cases if view.group in groups]


def _views(result: RunResult, decision: Decision) -> Iterator[CaseView]:
    """Yield every case of the run in its order, then removed ones."""
    pairs: defaultdict[CaseKey, list[PairChange]] = defaultdict(list)
    for pair in decision.pairs:
        pairs[pair.key].append(pair)
    main = {usual.key: usual for usual in decision.baseline_trajectories}
    failed = frozenset(row.criterion for row in decision.criteria if row.status == "fail")
    undecided = frozenset(finding.subject for finding in decision.findings if finding.severity == "inconclusive")
    keys = {(owner.agent, owner.eval_set) for owner in result.sets} | {key[:2] for key in pairs}
    agents = len({agent for agent, _ in keys})
    run = [(key, case, owner) for owner in result.sets for key, case in owner.keyed_cases()]
    gone = [(key, None, None) for key in sorted(pairs.keys() - {key for key, _, _ in run})]
    for key, case, owner in [*run, *gone]:
        own = pairs.get(key, [])
        group = _group(own, undecided) if case is not None else Group.REMOVED
        alone = group in _WITHOUT_REASON or len(own) == 1
        telling = [group not in _WITHOUT_REASON if alone else _group([pair], undecided) is group for pair in own]
        reasons = sorted(compress(own, telling), key=lambda pair: (not pair.blocking, -_relative_drop(pair)))
        where = f"{key.agent} / {key.eval_set}" if agents > 1 else key.eval_set if len(keys) > 1 else ""
        in_failed = any(pair.kind in _FELL and pair.criterion in failed for pair in own)
        ordered = (*reasons, *(pair for pair, tells in zip(own, telling, strict=True) if not tells))
        yield CaseView(key, group, ordered, case, owner, main.get(key), len(reasons), where, in_failed)


_WITHOUT_REASON: Final = frozenset({Group.REMOVED, Group.UNCHANGED})


def _group(pairs: list[PairChange], undecided: frozenset[Subject]) -> Group:
    """Classify a case by its pairs outside quarantine; *quarantined* if these show no problem."""
    counting = [pair for pair in pairs if not pair.quarantined]
    group = _group_of(counting, undecided)
    return Group.QUARANTINED if len(counting) < len(pairs) and group > Group.QUARANTINED else group


def _group_of(pairs: list[PairChange], undecided: frozenset[Subject]) -> Group:
    kinds = {pair.kind for pair in pairs}
    if not undecided and kinds <= _UNREMARKABLE and not any(pair.blocking or pair.errors for pair in pairs):
        return Group.UNCHANGED
    below = bool(kinds & _BELOW) or any(p.kind is ChangeKind.NEW and passing(p) is False for p in pairs)
    # a known case with a new criterion is not a new case
    new = ChangeKind.NEW in kinds and kinds <= {ChangeKind.NEW, ChangeKind.NOT_APPLICABLE}
    certain = [p for p in pairs if p.interval is None or not p.interval[0] <= 0 <= p.interval[1]]
    rules = (
        (any(p.blocking and (p.kind in _FELL or p.confirmed) for p in pairs), Group.REGRESSED),
        (any(p.blocking for p in pairs), Group.BELOW_THRESHOLD),
        (
            bool(undecided) and any(p.kind is not ChangeKind.ERROR and p.subject in undecided for p in pairs),
            Group.NEEDS_RUNS,
        ),
        (ChangeKind.ERROR in kinds or any(p.errors for p in pairs), Group.NOT_MEASURED),
        (below, Group.BELOW_THRESHOLD),
        (any(p.kind is ChangeKind.WORSE for p in certain), Group.WORSE),
        (ChangeKind.FLAKY in kinds, Group.FLAKY),
        (ChangeKind.ON_MAIN in kinds, Group.BROKEN_ON_MAIN),
        (new, Group.NEW),
        (ChangeKind.CHANGED in kinds, Group.CHANGED),
        (bool(kinds & {ChangeKind.FIXED, ChangeKind.BETTER}), Group.BETTER),
    )
    return next((group for holds, group in rules if holds), Group.UNCHANGED)


def _relative_drop(pair: PairChange) -> float:
    """Return how far a pair fell relative to its baseline, which is comparable between scores and tokens."""
    if pair.change is None or pair.baseline is None:
        return 0.0
    worse = pair.change if pair.goal == "minimize" else -pair.change
    return worse / max(abs(pair.baseline.mean), 0.01)


def by_severity(row: CriterionChange) -> tuple[int, bool, str]:
    """Sort key of criteria: blocking, errors, drops, then the rest by name."""
    worse = fmt.is_worse(row)
    rank = {"fail": 0, "error": 1, "advisory": 4, "pass": 3, "not_applicable": 5}[row.status]
    return 2 if row.status == "advisory" and (row.failing or worse) else rank, not worse, row.criterion


def _criterion_row(row: CriterionChange, cases: Iterable[CaseView]) -> CriterionRow:
    now = row.paired if row.paired is not None else row.current
    then, here = fmt.number(row.baseline, row.unit), fmt.number(now, row.unit)
    if row.status == "fail" and row.baseline is not None and now is not None:
        then, here = fmt.numbers(row.baseline, now, row.unit)
    side = "above" if row.goal == "minimize" else "below"
    fell = [view.reasons for view in cases if view.group in WORSE]
    worse = sum(pair.criterion == row.criterion for telling in fell for pair in telling)
    shown = [
        f"{fmt.count(worse)} worse" if worse else "",
        f"{fmt.count(row.failing)} {side} threshold" if row.failing > worse else "",
        f"{fmt.count(row.errors)} not measured" if row.errors and row.status in {"fail", "error"} else "",
        f"{fmt.count(row.compared)} of {fmt.count(row.pairs)} compared" if 0 < row.compared < row.pairs else "",
    ]
    return CriterionRow(
        name=row.criterion,
        status=row.status,
        lower_is_better=row.goal == "minimize",
        baseline=then,
        current=here,
        change=fmt.signed(row.change, row.unit),
        tone="bad" if fmt.is_worse(row) else "good" if fmt.is_better(row) else "",
        limits=fmt.limits(row),
        detectable=fmt.detectable(row),
        cases=", ".join(filter(None, shown)),
    )


def score_of(attempt: AttemptSummary, criterion: str) -> CriterionScore | None:
    """Return an attempt's score of one criterion."""
    return next((score for score in attempt.scores if score.criterion == criterion), None)


def passing(pair: PairChange) -> bool | None:
    """Return whether this run's score meets the threshold; None without a threshold or a score."""
    if pair.kind in _BELOW:
        return False
    if pair.threshold is None or pair.current is None:
        return None
    return True if pair.kind is ChangeKind.FIXED else meets(pair.current.mean, pair.threshold, pair.goal)


def with_threshold(cases: Iterable[CaseView]) -> list[CaseView]:
    """Return this run's cases with a threshold, without quarantined ones: the base of the pass rate."""
    here = (v for v in cases if v.result is not None and v.group is not Group.QUARANTINED)
    return [
        view
        for view in here
        if any(pair.threshold is not None and pair.kind is not ChangeKind.NOT_APPLICABLE for pair in view.pairs)
    ]


def run_counts(pair: PairChange) -> tuple[int, int, int, int] | None:
    """Return (passed, runs) on main and (passed, runs) here for a tested pass/fail pair; else None."""
    data = pair.reason.data if pair.reason is not None else {}
    if not data.get("binary"):
        return None
    counts = [data.get(side, {}).get(name) for side in ("main", "here") for name in ("passed", "n")]
    return None if None in counts else (counts[0], counts[1], counts[2], counts[3])


# --- costs of the run ------------------------------------------------------------------------------

AGENT = "agent"
USER = "user_simulator"
COLUMNS = ("Asked for", "Model", "Calls", "Cached", "Tokens in", "Tokens out", "Cost")


def cost_text(totals: Totals) -> str:
    """Format the costs: ``$0.0412``, with "at least" if some calls have no known price; "" if none has one."""
    if totals.usd is None:
        return ""
    partial = any(use.unpriced for use in totals.uses)
    return f"{'at least ' if partial else ''}{fmt.number(totals.usd, 'usd')}"


def judge_calls(totals: Totals) -> str:
    """Count judge calls: ``240 judge calls, 12 more from the cache``; "" without any."""
    uses = [use for use in totals.uses if use.purpose != AGENT]
    calls, cached = sum(use.calls for use in uses), sum(use.cached for use in uses)
    if not calls + cached:
        return ""
    users = any(use.purpose == USER for use in uses)
    text = fmt.plural(calls, "judge and user call" if users else "judge call")
    return f"{text}, {fmt.count(cached)} more from the cache" if cached else text


def agent_tokens(totals: Totals) -> str:
    """Format the agents' tokens: ``1,080 tokens``, "agent tokens" if judges used some too; "" if unknown."""
    if totals.usage.total_tokens is None:
        return ""
    least = "at least " if totals.usage.calls_without_usage else ""
    whose = "agent tokens" if any(use.purpose != AGENT for use in totals.uses) else "tokens"
    return f"{least}{fmt.count(totals.usage.total_tokens)} {whose}"


def facts(result: RunResult) -> list[str]:
    """Return what was run and its costs, as one-line plain texts."""
    totals = result.totals
    found = [
        fmt.plural(totals.cases, "case"),
        fmt.attempts(totals),
        fmt.plural(totals.errors, "error") if totals.errors else "",
        agent_tokens(totals),
        judge_calls(totals),
        cost_text(totals),
        fmt.duration(totals.seconds),
    ]
    return list(filter(None, found))


def cost_rows(totals: Totals) -> list[tuple[str, ...]]:
    """Return a row for each purpose and model, most expensive first; plain-text cells in the order of ``COLUMNS``."""
    rows: list[tuple[str, ...]] = []
    for use in sorted(totals.uses, key=lambda use: (-(use.usd or 0.0), -use.calls, use.purpose, use.model)):
        least = "≥ " if use.calls_without_usage else ""
        failed = f" ({fmt.count(use.failed)} failed)" if use.failed else ""
        price = fmt.NONE if use.usd is None else f"{'≥ ' if use.unpriced else ''}{fmt.number(use.usd, 'usd')}"
        tokens = (least + fmt.count(use.input_tokens), least + fmt.count(use.output_tokens))
        rows.append((use.purpose, use.model, fmt.count(use.calls) + failed, fmt.count(use.cached), *tokens, price))
    return rows


# --- judges' objections ----------------------------------------------------------------------------


def objections(score: CriterionScore) -> Iterator[tuple[int, str, str, str]]:
    """Yield judges' objections: (turn from 1, ``rubric`` or the sentence's label, the rubric or sentence, reason)."""
    for turn in score.turns:
        for rubric in turn.rubrics:
            if rubric.score is None or rubric.score < 1:
                weight = f", weight {rubric.weight:g}" if rubric.weight != 1 else ""
                graded = "no vote" if rubric.score is None else f"graded {rubric.score:.2f}"
                if rubric.votes is not None and (made := rubric.votes.yes + rubric.votes.no):
                    graded = f"{rubric.votes.yes} of {fmt.plural(made, 'vote')} yes"
                    graded += f", {rubric.votes.left_out} left out" if rubric.votes.left_out else ""
                yield turn.turn + 1, "rubric", rubric.rubric_id, f"{graded}{weight}. {rubric.rationale}".rstrip(". ")
        for sentence in turn.sentences:
            if sentence.label not in {"supported", "not_applicable"}:
                yield turn.turn + 1, sentence.label.replace("_", " "), sentence.sentence, sentence.rationale
