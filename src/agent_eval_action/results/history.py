"""The records of main's runs: scores and usual tool calls of each case. ``baseline`` makes and stores them."""

from __future__ import annotations

import datetime as dt
import json
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, model_validator

from agent_eval_action.results.base import CaseKey, Frozen, OfCase, StoreKind, TracksFields, json_digest, text_digest
from agent_eval_action.results.decision import CallBrief, MainCase, MainRun
from agent_eval_action.results.run_result import Goal, RunResult

RECORD_VERSION: Final = 1
DIGEST_LENGTH: Final = 16
DECIMALS: Final = 10
NAME_LIMIT: Final = 240
_MAX_SHORT: Final = 60
_ESCAPED_DELETE: Final = "u007f"
_LONGEST_ESCAPE: Final = len("\\ud83d\\ude00")

Calls = tuple[CallBrief, ...]
Trajectory = tuple[Calls, ...]
"""The tool calls of a conversation, turn by turn."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
ScoreCount = tuple[Finite, Count]


def weighted_mean(scores: Sequence[ScoreCount]) -> float:
    """Return the mean of scores, each with its count. The result does not depend on their order.

    It is rounded only once, by the final division of two integers: the mean of five times 0.8 is 0.8, not just below.
    """
    if len(scores) == 1:
        return scores[0][0]
    ratios = [(*score.as_integer_ratio(), count) for score, count in scores]
    # denominators of floats are powers of two, so the largest is a common one
    common = max(denominator for _, denominator, _ in ratios)
    total = sum(numerator * (common // denominator) * count for numerator, denominator, count in ratios)
    return total / (common * sum(count for _, count in scores))


def rounded(score: float) -> float:
    """Return a score as records keep it, so that noise in the last binary digits is no change in a diff."""
    return round(score, DECIMALS) + 0.0


class CriterionRecord(Frozen):
    """The ``n`` scores of a case on a criterion: the distinct ones, each with its number of attempts.

    ``passed``: the number of attempts that met ``threshold``, the threshold at that time. ``mean``: only in files of
    earlier versions, which rounded the scores to keep the record small.
    """

    digest: str
    threshold: Finite | None = None
    n: Count
    passed: Annotated[int, Field(ge=0)] | None = None
    mean: Finite | None = None
    scores: tuple[ScoreCount, ...]

    @property
    def average(self) -> float:
        """The mean of the scores as measured, even if they are stored rounded."""
        return weighted_mean(self.scores) if self.mean is None else self.mean

    @model_validator(mode="after")
    def _counts_agree(self) -> CriterionRecord:
        counted = sum(count for _, count in self.scores)
        if counted != self.n:
            raise ValueError(f"scores count {counted} attempts, n says {self.n}")
        return self


class TrajectoryRecord(Frozen):
    """The most frequent tool calls in a case, made in ``seen`` of ``attempts``.

    ``digest``: of all calls with their arguments as in results.json. ``turns``: the calls, which may be shortened;
    the last ``cut`` turns may be missing.
    """

    digest: str
    seen: Count
    attempts: Count
    cut: Annotated[int, Field(ge=0)] = 0
    turns: Trajectory = ()


class CaseRecord(OfCase):
    """The record of one case. ``omitted``: the number of criteria that files of earlier versions had no room for.

    ``seconds``: the usual time of an attempt, by which suites are divided into shards; None if not measured.
    """

    digest: str
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    criteria: dict[str, CriterionRecord] = Field(default_factory=dict)
    omitted: Annotated[int, Field(ge=0)] = 0
    trajectory: TrajectoryRecord | None = None

    def without_criteria(self, left_out: Callable[[CaseKey, str], bool]) -> CaseRecord:
        """Return the case without the criteria for which ``left_out`` is true."""
        kept = {name: scores for name, scores in self.criteria.items() if not left_out(self.key, name)}
        return self.model_copy(update={"criteria": kept})


class BaselineAgent(Frozen):
    """An agent at that time. It is shown with comparisons, and never prevents one."""

    agent: str
    adk_version: str = ""
    models: tuple[str, ...] = ()
    packages_digest: str = ""


class Definition(Frozen):
    """A criterion at that time, with enough detail to describe how two versions of it differ.

    ``judge``: the judging model, "" without one. Long ``options`` are cut, with a digest of the whole.
    """

    name: str
    goal: Goal = "maximize"
    scoring_version: str = "1"
    judge: str = ""
    options: dict[str, Any] = Field(default_factory=dict)


class Accepted(Frozen):
    """An entry of ``.agent-eval/accept.yaml`` in force. ``id``: a digest of its text. None matches all names."""

    id: str
    case: str
    criterion: str | None = None
    agent: str | None = None
    eval_set: str | None = None
    reason: str = ""

    def covers(self, key: CaseKey, criterion: str) -> bool:
        """Whether it applies to this pair, given by the names that records keep."""
        return (
            kept_name(self.case) == key.case
            and (self.criterion is None or kept_name(self.criterion) == criterion)
            and (self.agent is None or kept_name(self.agent) == key.agent)
            and (self.eval_set is None or kept_name(self.eval_set) == key.eval_set)
        )


class Quarantine(Accepted):
    """An entry of ``.agent-eval/accept.yaml`` that sets pairs aside: they are run, but decide nothing.

    ``until``: its last day (UTC) as ``YYYY-MM-DD``; from the next day on it is *overdue*.
    """

    owner: str
    until: str

    def is_overdue(self, now: dt.datetime) -> bool:
        """Whether its last day is over. ``now`` is in UTC."""
        return self.until < now.date().isoformat()


def kept_name(name: str) -> str:
    """Return a name as records keep it: a huge one is cut to its beginning and a digest."""
    if len(name) * _LONGEST_ESCAPE <= NAME_LIMIT - len('""'):
        return name
    if len(json.dumps(name)) + len(_ESCAPED_DELETE * name.count("\x7f")) <= NAME_LIMIT:
        return name
    return f"{name[: _MAX_SHORT // 2]}… sha256:{text_digest(name)}"


def kept_key(key: CaseKey) -> CaseKey:
    """Return a case's key as records keep it."""
    return CaseKey(kept_name(key.agent), kept_name(key.eval_set), kept_name(key.case))


def kept_digest(digest: str) -> str:
    """Return a digest as records keep it: its first 64 bits."""
    return digest.removeprefix("sha256:")[:DIGEST_LENGTH]


def short_call(call: CallBrief) -> CallBrief:
    """Return the call with long arguments cut to their beginning and a digest of the whole."""
    return CallBrief(
        name=kept_name(call.name), args={_shorten(key): _shorten(value) for key, value in call.args.items()}
    )


def trajectory_digest(turns: Sequence[Calls]) -> str:
    """Return a digest of the calls in their order. The order of a call's arguments does not matter."""
    return json_digest([[[call.name, call.args] for call in calls] for calls in turns])


def _shorten(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        text = json.dumps(value, default=str)
        return value if len(text) <= _MAX_SHORT else f"{text[: _MAX_SHORT // 2]}… sha256:{text_digest(text)}"
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    if len(json.dumps(text)) <= _MAX_SHORT:
        return value
    return f"{text[: _MAX_SHORT // 4]}… sha256:{text_digest(text)}"


class RunCost(Frozen):
    """The cost of a run: mean tokens and 95th percentile of seconds per attempt, and USD of the run. None: unknown."""

    tokens: Finite | None = None
    seconds: Finite | None = None
    usd: Finite | None = None

    @classmethod
    def of_run(cls, result: RunResult) -> RunCost | None:
        """Return the cost of a run; None if nothing of it is known."""
        attempts = [attempt for owner in result.sets for case in owner.cases for attempt in case.attempts]
        tokens = [made.usage.total_tokens for made in attempts if made.usage.total_tokens is not None]
        seconds = sorted(made.durations.total for made in attempts if made.durations.total is not None)
        cost = cls(
            tokens=round(statistics.fmean(tokens), 1) if tokens else None,
            seconds=round(seconds[min(len(seconds) - 1, int(0.95 * len(seconds)))], 3) if seconds else None,
            usd=result.totals.usd,
        )
        return cost if cost != cls() else None


PairName = tuple[CaseKey, str]
"""A case and a criterion, by the names that records keep."""


class OmittedPair(OfCase):
    """A pair whose scores a record leaves out, and why."""

    criterion: str
    why: Literal["regressed", "unmeasured"]


class Record(TracksFields):
    """The record of one run of main: a file of the branch store, or baseline.json, which calls the cases ``records``.

    ``committed_at``: the time of the commit in seconds since 1970. ``whole``: the run covered the whole suite.
    ``criteria``: the definitions by their digests, to which ``cases`` refer. ``withheld``: pairs without scores.
    ``accepted``: the entries of accept.yaml that were in force. ``cost``: of this run, even if ``cases`` include those
    of earlier runs.
    """

    model_config = ConfigDict(validate_by_name=True)

    schema_version: Literal[1] = RECORD_VERSION
    tool_version: str
    created_at: str
    commit: str | None = None
    parents: tuple[str, ...] = ()
    committed_at: int | None = None
    repeats: Annotated[int, Field(ge=1)] = 1
    whole: bool = True
    agents: tuple[BaselineAgent, ...] = ()
    criteria: dict[str, Definition] = Field(default_factory=dict)
    cases: tuple[CaseRecord, ...] = Field(default=(), validation_alias="records")
    withheld: tuple[OmittedPair, ...] = ()
    accepted: tuple[Accepted, ...] = ()
    cost: RunCost | None = None

    @model_validator(mode="after")
    def _cases_once(self) -> Record:
        for key, times in Counter(case.key for case in self.cases).items():
            if times > 1:
                raise ValueError(f"the case {key} is in it twice")
        return self


@dataclass(frozen=True, slots=True)
class PairHistory:
    """The comparable scores of one pair over all runs of main, each with its number of attempts.

    ``by_run``: the same by run, newest first. ``incomparable``: a sentence why there are no scores, "" if there are.
    ``anew``: the reason of the accepted change with which the history begins, "" if it is no such change.
    ``accepted``: there are no scores because main has not been measured since that change. ``record``: the newest
    record, comparable or not; None if the pair was never measured.
    """

    scores: tuple[ScoreCount, ...] = ()
    by_run: tuple[tuple[ScoreCount, ...], ...] = ()
    incomparable: str = ""
    anew: str = ""
    accepted: bool = False
    record: CriterionRecord | None = None

    @property
    def runs(self) -> int:
        """The number of main's runs with comparable scores."""
        return len(self.by_run)

    @property
    def n(self) -> int:
        """The number of attempts with comparable scores."""
        return sum(count for _, count in self.scores)


@dataclass(frozen=True, slots=True)
class History:
    """The history of main, with which a run is compared.

    ``pairs``: every pair that main has measured, with its comparable scores or the reason why it has none.
    ``pooled``: the newest record, with the scores of all comparable runs; None without a record. ``pending``: accepted
    changes that no record contains yet. ``quarantines``: those in force; ``overdue``: those that have ended.
    ``source``: where the records are, for people, as are ``notes``. ``main_runs``, ``main_cases``: as in ``Decision``.
    """

    pairs: Mapping[PairName, PairHistory] = field(default_factory=dict)
    pooled: Record | None = None
    pending: tuple[Accepted, ...] = ()
    quarantines: tuple[Quarantine, ...] = ()
    overdue: tuple[Quarantine, ...] = ()
    source: str = ""
    store: StoreKind = "file"
    notes: tuple[str, ...] = ()
    main_runs: tuple[MainRun, ...] = ()
    main_cases: tuple[MainCase, ...] = ()

    def acceptance(self, key: CaseKey, criterion: str) -> str | None:
        """Return why the pair's change was accepted, if main has no scores of it since; None if it was not accepted."""
        pair = kept_key(key), kept_name(criterion)
        if entry := next((entry for entry in self.pending if entry.covers(*pair)), None):
            return entry.reason
        known = self.pairs.get(pair)
        return known.anew if known and known.accepted else None

    def pair(self, key: CaseKey, criterion: str) -> PairHistory:
        """Return the history of a pair, by the names in a run; empty if main has not measured it."""
        found = self.pairs.get((kept_key(key), kept_name(criterion)))
        return found or PairHistory(incomparable="main has no scores of it")
