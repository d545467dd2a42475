"""What a baseline keeps: per case counts, scores and the usual tool calls. ``baseline`` makes and stores it."""

from __future__ import annotations

import datetime as dt
import json
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, model_validator

from agent_eval_action.results.base import CaseKey, Frozen, Given, OfCase, StoreKind, json_digest, text_digest
from agent_eval_action.results.decision import CallBrief, MainCase, MainRun
from agent_eval_action.results.run_result import Goal, RunResult

RECORD_VERSION: Final = 1
DIGEST_LENGTH: Final = 16
DECIMALS: Final = 10
NAME_LIMIT: Final = 240
_HEAD: Final = 60
_ESCAPED: Final = "u007f"
_LONGEST_ESCAPE: Final = len("\\ud83d\\ude00")

Calls = tuple[CallBrief, ...]
Trajectory = tuple[Calls, ...]
"""Tool calls of a conversation: one tuple of calls per turn."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
ScoreCount = tuple[Finite, Count]


def weighted_mean(scores: Sequence[ScoreCount]) -> float:
    """Mean of scores by their counts: exact, rounded once, the same in any order; a count costs nothing.

    The quotient of two integers is the float nearest to it: five times 0.8 is 0.8, not just below.
    """
    if len(scores) == 1:
        return scores[0][0]
    ratios = [(*score.as_integer_ratio(), count) for score, count in scores]
    # denominators of floats are powers of two, so the largest is a common one
    common = max(denominator for _, denominator, _ in ratios)
    total = sum(numerator * (common // denominator) * count for numerator, denominator, count in ratios)
    return total / (common * sum(count for _, count in scores))


def rounded(score: float) -> float:
    """A score as a baseline keeps it: noise of the last binary digits is no change in a diff."""
    return round(score, DECIMALS) + 0.0


class CriterionRecord(Frozen):
    """Scores of one case on one criterion: ``n`` attempts, the distinct scores with how often each was seen.

    ``passed`` counts the attempts that met ``threshold``, the threshold of that time. ``mean`` is given only in files
    of earlier versions, where the scores were made coarser to keep the record small.
    """

    digest: str
    threshold: Finite | None = None
    n: Count
    passed: Annotated[int, Field(ge=0)] | None = None
    mean: Finite | None = None
    scores: tuple[ScoreCount, ...]

    @property
    def average(self) -> float:
        """The mean of the measured scores, also where they are stored with lower precision."""
        return weighted_mean(self.scores) if self.mean is None else self.mean

    @model_validator(mode="after")
    def _counts_agree(self) -> CriterionRecord:
        counted = sum(count for _, count in self.scores)
        if counted != self.n:
            raise ValueError(f"scores count {counted} attempts, n says {self.n}")
        return self


class TrajectoryRecord(Frozen):
    """The tool calls most attempts made: ``seen`` of ``attempts``.

    ``digest`` is of all calls with all arguments results.json had; ``turns`` may be shortened, and the
    last ``cut`` turns left out.
    """

    digest: str
    seen: Count
    attempts: Count
    cut: Annotated[int, Field(ge=0)] = 0
    turns: Trajectory = ()


class CaseRecord(OfCase):
    """One case. ``omitted`` criteria did not fit, in files of earlier versions.

    ``seconds``: what an attempt of it usually takes, by which suites are split into shards; None: not measured.
    """

    digest: str
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    criteria: dict[str, CriterionRecord] = Field(default_factory=dict)
    omitted: Annotated[int, Field(ge=0)] = 0
    trajectory: TrajectoryRecord | None = None

    def without_criteria(self, left_out: Callable[[CaseKey, str], bool]) -> CaseRecord:
        """The case without the scores of the pairs that ``left_out`` names."""
        kept = {name: scores for name, scores in self.criteria.items() if not left_out(self.key, name)}
        return self.model_copy(update={"criteria": kept})


class BaselineAgent(Frozen):
    """An agent as it was: shown beside a comparison, never a reason not to compare."""

    agent: str
    adk_version: str = ""
    models: tuple[str, ...] = ()
    packages_digest: str = ""


class Definition(Frozen):
    """What a criterion was: enough to say in words how two of them differ.

    ``judge`` is the model that judges, "" where none does. Long ``options`` are shortened to their beginning
    and a digest of all of it.
    """

    name: str
    goal: Goal = "maximize"
    scoring_version: str = "1"
    judge: str = ""
    options: dict[str, Any] = Field(default_factory=dict)


class Accepted(Frozen):
    """An entry of ``.agent-eval/accept.yaml`` that was in force. ``id`` names its words; None stands for every one."""

    id: str
    case: str
    criterion: str | None = None
    agent: str | None = None
    eval_set: str | None = None
    reason: str = ""

    def covers(self, key: CaseKey, criterion: str) -> bool:
        """Whether it is about this pair (by the names a record keeps)."""
        return (
            kept_name(self.case) == key.case
            and (self.criterion is None or kept_name(self.criterion) == criterion)
            and (self.agent is None or kept_name(self.agent) == key.agent)
            and (self.eval_set is None or kept_name(self.eval_set) == key.eval_set)
        )


class Quarantine(Accepted):
    """An entry of ``.agent-eval/accept.yaml`` that sets pairs aside: they run, and neither block nor hold up a run.

    ``until``: the last day (UTC) that it holds, as ``YYYY-MM-DD``; from the next one on it is *overdue*.
    """

    owner: str
    until: str

    def is_overdue(self, now: dt.datetime) -> bool:
        """Whether it has run out at a time in UTC."""
        return self.until < now.date().isoformat()


def kept_name(name: str) -> str:
    """A name as a baseline keeps it: itself, or its beginning and a digest when it is huge."""
    if len(name) * _LONGEST_ESCAPE <= NAME_LIMIT - len('""'):
        return name
    if len(json.dumps(name)) + len(_ESCAPED * name.count("\x7f")) <= NAME_LIMIT:
        return name
    return f"{name[: _HEAD // 2]}… sha256:{text_digest(name)}"


def kept_key(key: CaseKey) -> CaseKey:
    """The key a case has in a baseline."""
    return CaseKey(kept_name(key.agent), kept_name(key.eval_set), kept_name(key.case))


def kept_digest(digest: str) -> str:
    """A digest as a baseline keeps it: 64 bits of it tell definitions apart."""
    return digest.removeprefix("sha256:")[:DIGEST_LENGTH]


def short_call(call: CallBrief) -> CallBrief:
    """A call with every long argument cut to its beginning and a digest of all of it."""
    return CallBrief(name=kept_name(call.name), args={_short(key): _short(value) for key, value in call.args.items()})


def trajectory_digest(turns: Sequence[Calls]) -> str:
    """One digest of every call in order; the order of a call's arguments does not matter."""
    plain = [[[call.name, call.args] for call in calls] for calls in turns]
    return json_digest(plain)


def _short(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        text = json.dumps(value, default=str)
        return value if len(text) <= _HEAD else f"{text[: _HEAD // 2]}… sha256:{text_digest(text)}"
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    if len(json.dumps(text)) <= _HEAD:
        return value
    return f"{text[: _HEAD // 4]}… sha256:{text_digest(text)}"


class RunCost(Frozen):
    """What a run took: tokens of an attempt (mean), its seconds (95th percentile), USD of all. None: not known."""

    tokens: Finite | None = None
    seconds: Finite | None = None
    usd: Finite | None = None

    @classmethod
    def of_run(cls, result: RunResult) -> RunCost | None:
        """The cost of a run; None where nothing of it is known."""
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
"""A case and a criterion, by the names a record keeps."""


class OmittedPair(OfCase):
    """A pair this run has no scores of in the record, and why."""

    criterion: str
    why: Literal["regressed", "unmeasured"]


class Record(Given):
    """What one run of main leaves: a file of the branch store, or baseline.json, which calls the cases ``records``.

    ``committed_at``: of the commit, seconds since 1970; ``whole``: nothing narrowed the run. ``criteria`` are
    definitions by the digest that ``cases`` name. ``accepted``: the entries of accept.yaml that were in force.
    ``cost`` is of the run itself, also where ``cases`` are of earlier ones.
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
    """The comparable scores of one pair, pooled, with how often each was seen.

    ``by_run``: the same, run by run, newest first. ``incomparable``: why there are none, in words ("" when
    there are some). ``anew``: the reason given where an accepted change let the history begin anew.
    ``accepted``: there are none because that change was accepted, and main has not measured it since.
    ``record`` is the newest one as it was written, comparable or not; None for a pair never measured.
    """

    scores: tuple[ScoreCount, ...] = ()
    by_run: tuple[tuple[ScoreCount, ...], ...] = ()
    incomparable: str = ""
    anew: str = ""
    accepted: bool = False
    record: CriterionRecord | None = None

    @property
    def runs(self) -> int:
        """How many runs of main the scores come from."""
        return len(self.by_run)

    @property
    def n(self) -> int:
        """How many attempts."""
        return sum(count for _, count in self.scores)


@dataclass(frozen=True, slots=True)
class History:
    """What a run is compared with.

    ``pairs`` holds every pair of the current suite that main knows, those that only main has, and those whose history
    does not count, each with its reason. ``pooled``: the newest record with the pooled scores of every case; None
    when there is no record. ``pending``: accepted changes that no record carries yet. ``quarantines``: those in
    force; ``overdue``: those that have run out. ``notes`` are for people.
    ``main_runs``, ``main_cases``: as in ``Decision``.
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
        """Why the pair's change was accepted, where main has no scores of it since; None where it was not."""
        pair = kept_key(key), kept_name(criterion)
        if entry := next((entry for entry in self.pending if entry.covers(*pair)), None):
            return entry.reason
        known = self.pairs.get(pair)
        return known.anew if known and known.accepted else None

    def pair(self, key: CaseKey, criterion: str) -> PairHistory:
        """The history of a pair of a run; empty when main does not know it."""
        found = self.pairs.get((kept_key(key), kept_name(criterion)))
        return found or PairHistory(incomparable="main has no scores of it")
