"""What reports show, made once for a result: its cases in groups, rows of criteria, facts, costs."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.messages import Messages
from agent_eval_action.results.decision import ChangeKind, CriterionChange, Decision, PairChange, TurnBrief
from agent_eval_action.results.pair_scores import meets
from agent_eval_action.results.run_result import (
    AttemptSummary,
    CaseKey,
    CaseResult,
    CriterionScore,
    ModelUse,
    RubricScore,
    RunResult,
    ScoreStatus,
    SentenceLabel,
    SetResult,
    Totals,
    TurnScore,
    Votes,
)

AGENT = "agent"
USER = "user_simulator"


def cost_text(totals: Totals) -> str:
    """``$0.0412``, with "at least" where calls have no known price; "" where nothing is priced."""
    if totals.usd is None:
        return ""
    partial = any(use.unpriced for use in totals.uses)
    return f"{'at least ' if partial else ''}{fmt.number(totals.usd, 'usd')}"


def judge_calls(totals: Totals) -> str:
    """``240 judge calls, 12 more from the cache``; "" without any."""
    mine = [use for use in totals.uses if use.purpose != AGENT]
    calls, cached = sum(use.calls for use in mine), sum(use.cached for use in mine)
    if not calls + cached:
        return ""
    users = any(use.purpose == USER for use in mine)
    text = fmt.plural(calls, "judge and user call" if users else "judge call")
    return f"{text}, {fmt.count(cached)} more from the cache" if cached else text


def agent_tokens(totals: Totals) -> str:
    """``1,080 tokens``, and whose where judges have some too; "" where nobody reported any."""
    if totals.usage.total_tokens is None:
        return ""
    least = "at least " if totals.usage.calls_without_usage else ""
    whose = "agent tokens" if any(use.purpose != AGENT for use in totals.uses) else "tokens"
    return f"{least}{fmt.count(totals.usage.total_tokens)} {whose}"


def facts(result: RunResult, decision: Decision) -> list[str]:
    """What was run, what it took, and the baseline: plain texts of one line."""
    totals, base = result.totals, decision.baseline
    found = [
        fmt.plural(totals.cases, "case"),
        fmt.attempts(totals),
        fmt.plural(totals.errors, "error") if totals.errors else "",
        agent_tokens(totals),
        judge_calls(totals),
        cost_text(totals),
        fmt.duration(totals.seconds),
    ]
    commit = f" of {base.commit[:10]}" if base is not None and base.commit else ""
    return [*filter(None, found), "no baseline" if base is None else f"baseline {base.path}{commit}"]


@dataclass(frozen=True, slots=True)
class CriterionRow:
    """One criterion in the table of criteria, as texts that are not escaped yet; "" where there is nothing to show.

    ``current``: over the cases that both sides have, where there are some. ``tone``: "bad" where the change goes the
    wrong way, "good" where it goes the right one. ``below``: how many cases miss their threshold.
    """

    name: str
    status: str
    lower_is_better: bool
    baseline: str
    current: str
    change: str
    interval: str
    tone: str
    limits: str
    detectable: str
    below: str
    errors: str

    @property
    def change_and_interval(self) -> str:
        """``+0.120 (+0.050…+0.190)``."""
        return f"{self.change} ({self.interval})" if self.interval else self.change


def criterion_rows(decision: Decision) -> tuple[CriterionRow, ...]:
    """A row for each criterion, what fell first."""
    return tuple(map(criterion_row, sorted(decision.criteria, key=fmt.by_severity)))


def criterion_row(row: CriterionChange) -> CriterionRow:
    """The row of one criterion."""
    worse, better = fmt.is_worse(row.change, row.goal), fmt.is_better(row.change, row.goal)
    side = "above" if row.goal == "minimize" else "below"
    return CriterionRow(
        name=row.criterion,
        status=row.status,
        lower_is_better=row.goal == "minimize",
        baseline=fmt.number(row.baseline, row.unit),
        current=fmt.number(row.paired if row.paired is not None else row.current, row.unit),
        change=fmt.signed(row.change, row.unit),
        interval=fmt.interval(row),
        tone="bad" if worse else "good" if better else "",
        limits=fmt.row_limits(row),
        detectable="" if row.detectable is None else fmt.detectable(row),
        below=f"{fmt.count(row.failing)} of {fmt.plural(row.pairs, 'case')} {side}" if row.failing else "",
        errors=fmt.plural(row.errors, "error") if row.errors else "",
    )


COLUMNS = ("Asked for", "Model", "Calls", "Cached", "Tokens in", "Tokens out", "Cost")


def cost_rows(totals: Totals) -> list[tuple[str, ...]]:
    """One row per purpose and model, the dearest first; cells are plain text in the order of ``COLUMNS``."""
    in_order = sorted(totals.uses, key=lambda use: (-(use.usd or 0.0), -use.calls, use.purpose, use.model))
    return [_row(use) for use in in_order]


def _row(use: ModelUse) -> tuple[str, ...]:
    least = "≥ " if use.calls_without_usage else ""
    failed = f" ({fmt.count(use.failed)} failed)" if use.failed else ""
    price = fmt.NONE if use.usd is None else f"{'≥ ' if use.unpriced else ''}{fmt.number(use.usd, 'usd')}"
    return (
        use.purpose,
        use.model,
        fmt.count(use.calls) + failed,
        fmt.count(use.cached),
        least + fmt.count(use.input_tokens),
        least + fmt.count(use.output_tokens),
        price,
    )


_LINE = 320
_RUBRICS = 12
_SENTENCES = 8


def judged_lines(score: CriterionScore) -> list[str]:
    """Verdicts per rubric and sentences with their labels; none of turns in which nothing is wrong."""
    return [line for turn in score.turns for line in _turn_lines(turn)]


def votes_text(votes: Votes | None) -> str:
    """``3 of 3 votes yes``, with the samples that gave none."""
    if votes is None or not votes.yes + votes.no:
        return ""
    text = f"{votes.yes} of {fmt.plural(votes.yes + votes.no, 'vote')} yes"
    return f"{text}, {votes.left_out} left out" if votes.left_out else text


def _turn_lines(turn: TurnScore) -> Iterator[str]:
    if all(rubric.score == 1 for rubric in turn.rubrics) and all(map(is_supported, turn.sentences)):
        return
    yield f"turn {turn.turn + 1}"
    for line in (*_rubric_lines(turn.rubrics), *_sentence_lines(turn.sentences)):
        yield " ".join(line[:_LINE].split("\n"))


def _rubric_lines(rubrics: tuple[RubricScore, ...]) -> Iterator[str]:
    in_order = sorted(rubrics, key=lambda rubric: 2.0 if rubric.score is None else rubric.score)
    for rubric in in_order[:_RUBRICS]:
        mark = rubric_mark(rubric)
        why = f": {rubric.rationale}" if rubric.rationale and mark != "✓" else ""
        yield f"  {mark} {rubric.rubric_id} ({rubric_votes(rubric)}){why}"
    if len(rubrics) > _RUBRICS:
        yield f"  … and {fmt.plural(len(rubrics) - _RUBRICS, 'more rubric')} in results.json"


def rubric_mark(rubric: RubricScore) -> str:
    """``✓`` met, ``✗`` not met, ``?`` no score."""
    return "?" if rubric.score is None else "✓" if rubric.score >= 1 else "✗"


def rubric_votes(rubric: RubricScore) -> str:
    """``3 of 3 votes yes, weight 2``."""
    weight = f", weight {rubric.weight:g}" if rubric.weight != 1 else ""
    return f"{votes_text(rubric.votes) or 'no vote'}{weight}"


def is_supported(sentence: SentenceLabel) -> bool:
    """Whether a judge found nothing wrong with a sentence of an answer."""
    return sentence.label in {"supported", "not_applicable"}


def _sentence_lines(sentences: tuple[SentenceLabel, ...]) -> Iterator[str]:
    bad = [sentence for sentence in sentences if not is_supported(sentence)]
    if not sentences:
        return
    yield f"  {len(sentences) - len(bad)} of {fmt.plural(len(sentences), 'sentence')} supported or not applicable"
    for sentence in bad[:_SENTENCES]:
        why = f" – {sentence.rationale}" if sentence.rationale else ""
        yield f"  ✗ {sentence.label}: {sentence.sentence[: _LINE // 2]}{why}"
    if len(bad) > _SENTENCES:
        yield f"  … and {fmt.plural(len(bad) - _SENTENCES, 'more')} in results.json"


_BELOW = frozenset({ChangeKind.NEWLY_FAILING, ChangeKind.STILL_FAILING, ChangeKind.FAILING})
_FELL = frozenset({ChangeKind.NEWLY_FAILING, ChangeKind.WORSE})


class Group(enum.IntEnum):
    """What a case is to its reader, in the order it is read."""

    REGRESSED = 0  # it fell, and blocks itself or by a criterion that blocks
    BLOCKING = 1  # below a threshold as before, or with nothing to compare with
    ERRORED = 2
    FAILING = 3  # below a threshold, and that does not block
    WORSE = 4
    NEW = 5
    REMOVED = 6
    CHANGED = 7
    BETTER = 8
    SAME = 9


GROUP_LABELS: Final = {
    Group.REGRESSED: "regressed",
    Group.BLOCKING: "below a threshold",
    Group.ERRORED: "not measured",
    Group.FAILING: "below a threshold, not blocking",
    Group.WORSE: "worse, not blocking",
    Group.NEW: "new",
    Group.REMOVED: "removed",
    Group.CHANGED: "changed definition",
    Group.BETTER: "better",
    Group.SAME: "unchanged",
}
_WITHOUT_REASON = frozenset({Group.REMOVED, Group.SAME})


@dataclass(frozen=True, slots=True)
class CaseView:
    """One case of either side. ``result`` and ``owner`` are None for a case this run does not have.

    ``pairs`` begin with those that put the case into ``group``; ``telling`` is their number. ``where`` is the agent
    and eval set as far as cases need them to be told apart, "" where there is one of each.
    """

    key: CaseKey
    group: Group
    pairs: tuple[PairChange, ...] = ()
    result: CaseResult | None = None
    owner: SetResult | None = None
    baseline_turns: tuple[TurnBrief, ...] = ()
    telling: int = 0
    where: str = ""

    def pair(self, criterion: str) -> PairChange | None:
        """The conclusion on one criterion."""
        return next((pair for pair in self.pairs if pair.criterion == criterion), None)


def views(result: RunResult, decision: Decision) -> list[CaseView]:
    """Every case of the run in its stable order, then the removed ones."""
    pairs: defaultdict[CaseKey, list[PairChange]] = defaultdict(list)
    for pair in decision.pairs:
        pairs[CaseKey(pair.agent, pair.eval_set, pair.case)].append(pair)
    turns = {CaseKey(b.agent, b.eval_set, b.case): b.turns for b in decision.baseline_trajectories}
    blocked = frozenset(row.criterion for row in decision.criteria if row.status == "fail")
    keys = {(owner.agent, owner.eval_set) for owner in result.sets} | {key[:2] for key in pairs}
    agents = len({agent for agent, _ in keys})
    found: list[CaseView] = []

    def add(key: CaseKey, case: CaseResult | None, owner: SetResult | None) -> None:
        mine = pairs.pop(key, [])
        group = _group(mine, blocked) if case is not None else Group.REMOVED
        reasons = [pair for pair in mine if _is_reason(pair, group, blocked)]
        rest = [pair for pair in mine if not _is_reason(pair, group, blocked)]
        reasons.sort(key=lambda pair: (not pair.blocking, -_fall(pair)))
        where = f"{key.agent} / {key.eval_set}" if agents > 1 else key.eval_set if len(keys) > 1 else ""
        found.append(CaseView(key, group, (*reasons, *rest), case, owner, turns.get(key, ()), len(reasons), where))

    for owner in result.sets:
        for case in owner.cases:
            add(CaseKey(owner.agent, owner.eval_set, case.case), case, owner)
    for key in sorted(pairs):
        add(key, None, None)
    return found


@dataclass(frozen=True, slots=True)
class ReportView:
    """What several reports show of one result. ``cases``: those of the run in its order, then the removed ones."""

    cases: tuple[CaseView, ...]
    criteria: tuple[CriterionRow, ...]
    messages: Messages

    @classmethod
    def build(cls, result: RunResult, decision: Decision) -> ReportView:
        """Compute it; this walks every pair."""
        return cls(tuple(views(result, decision)), criterion_rows(decision), Messages.for_decision(decision))

    @property
    def worst_first(self) -> list[CaseView]:
        """The cases by group, and in each what fell deepest first."""
        return sorted(self.cases, key=lambda case: (case.group, severity(case)))


def severity(view: CaseView) -> tuple[bool, float]:
    """Sort key within a group: what newly fails first, the deepest fall first; else the file's order stays."""
    telling = view.pairs[: view.telling]
    newly = any(pair.blocking and pair.kind is ChangeKind.NEWLY_FAILING for pair in telling)
    return not newly, -max((_fall(pair) for pair in telling), default=0.0)


def worst_attempt(case: CaseResult, criterion: str, goal: str) -> AttemptSummary | None:
    """The scored attempt that says most about a bad score: the worst; the earliest of several."""
    scored = [
        (score.score, attempt) for attempt in case.attempts if (score := score_of(attempt, criterion)) is not None
    ]
    known = [(value, attempt) for value, attempt in scored if value is not None]
    if not known:
        return None
    sign = -1 if goal == "minimize" else 1
    return min(known, key=lambda item: sign * item[0])[1]


def failed_attempt(case: CaseResult, criterion: str | None = None) -> AttemptSummary | None:
    """The first attempt that broke, or whose score of ``criterion`` (of any, if None) could not be made."""
    for attempt in case.attempts:
        if attempt.error is not None:
            return attempt
        if any(s.status is ScoreStatus.ERROR and criterion in (None, s.criterion) for s in attempt.scores):
            return attempt
    return None


def score_of(attempt: AttemptSummary, criterion: str) -> CriterionScore | None:
    """An attempt's score of one criterion."""
    return next((score for score in attempt.scores if score.criterion == criterion), None)


def passing(pair: PairChange) -> bool | None:
    """Whether this run's score meets the threshold; None where there is nothing to meet or no score."""
    if pair.kind in _BELOW:
        return False
    if pair.threshold is None or pair.current is None:
        return None
    return True if pair.kind is ChangeKind.FIXED else meets(pair.current.mean, pair.threshold, pair.goal)


def passed_before(pair: PairChange) -> bool | None:
    """The same of the baseline's score."""
    if pair.threshold is None or pair.baseline is None or pair.kind is ChangeKind.CHANGED:
        return None
    if pair.kind in {ChangeKind.NEWLY_FAILING, ChangeKind.FIXED}:
        return pair.kind is ChangeKind.NEWLY_FAILING
    return meets(pair.baseline.mean, pair.threshold, pair.goal)


def with_threshold(cases: Iterable[CaseView]) -> list[CaseView]:
    """Cases of this run that have something to meet: of these a pass rate is told."""
    return [v for v in cases if v.result is not None and any(pair.threshold is not None for pair in v.pairs)]


def passes(view: CaseView) -> bool:
    """Whether a case was measured and meets every threshold it has."""
    measured = view.group is not Group.ERRORED and not has_errors(view)
    return measured and all_of(map(passing, view.pairs)) is not False


def has_errors(view: CaseView) -> bool:
    """Whether a score of it is missing."""
    return any(pair.errors for pair in view.pairs)


def all_of(verdicts: Iterable[bool | None]) -> bool | None:
    """Whether all that are known hold; None when none is."""
    known = [verdict for verdict in verdicts if verdict is not None]
    return all(known) if known else None


def _group(pairs: list[PairChange], blocked: frozenset[str]) -> Group:
    kinds = {pair.kind for pair in pairs}
    below = bool(kinds & _BELOW) or any(p.kind is ChangeKind.NEW and passing(p) is False for p in pairs)
    # a criterion new for a case that was there makes no new case
    new = ChangeKind.NEW in kinds and kinds <= {ChangeKind.NEW, ChangeKind.NOT_APPLICABLE}
    rules = (
        (any(p.kind in _FELL and (p.blocking or p.criterion in blocked) for p in pairs), Group.REGRESSED),
        (any(p.blocking for p in pairs), Group.BLOCKING),
        (ChangeKind.ERROR in kinds or any(p.errors for p in pairs), Group.ERRORED),
        (below, Group.FAILING),
        (new, Group.NEW),
        (ChangeKind.CHANGED in kinds, Group.CHANGED),
        (ChangeKind.WORSE in kinds, Group.WORSE),
        (bool(kinds & {ChangeKind.FIXED, ChangeKind.BETTER}), Group.BETTER),
    )
    return next((group for holds, group in rules if holds), Group.SAME)


def _is_reason(pair: PairChange, group: Group, blocked: frozenset[str]) -> bool:
    """Whether the pair is a reason for the case to be in its group."""
    return group not in _WITHOUT_REASON and _group([pair], blocked) is group


def _fall(pair: PairChange) -> float:
    """How far a pair fell, as a share of where it stood: comparable between scores and tokens."""
    if pair.change is None or pair.baseline is None:
        return 0.0
    worse = pair.change if pair.goal == "minimize" else -pair.change
    return worse / max(abs(pair.baseline.mean), 0.01)
