"""The results of a run: attempts with their scores (attempts.jsonl) and the RunResult (results.json)."""

# Without annotations as text: pydantic would compile each one again, at every start of the command.

import enum
import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field

from agent_eval_action.results.base import CaseKey, Frozen, OfCase
from agent_eval_action.results.decision import Decision, TurnBrief, Unit
from agent_eval_action.results.evalset import Invocation

SentenceKind = Literal["supported", "unsupported", "contradictory", "disputed", "not_applicable"]


class CastVote(Frozen):
    """One answer of a judge. ``rationale``: the beginning of its explanation."""

    yes: bool
    rationale: str = ""


CastVotes = Annotated[tuple[CastVote, ...], Field(exclude_if=lambda cast: not cast)]
"""The votes in the order of the requests; empty for a single vote, and if all said yes."""


class Votes(Frozen):
    """The votes of a judge's samples. ``left_out``: samples without a usable answer.

    Samples that could no longer change the majority are not requested.
    """

    yes: int = 0
    no: int = 0
    left_out: int = 0

    @property
    def verdict(self) -> bool | None:
        """Whether the majority said yes; a tie counts as no. None: there is no vote."""
        return self.yes > self.no if self.yes + self.no else None


class RubricScore(Frozen):
    """The score of one rubric: 1 or 0 in a turn, the mean of its turns in a case.

    ``rationale``: the explanation of a judge's sample that voted with the majority.
    """

    rubric_id: str
    text: str
    score: float | None
    rationale: str = ""
    votes: Votes = Votes.model_construct()
    cast: CastVotes = ()
    weight: float = 1.0


class SentenceLabel(Frozen):
    """A judge's label of one sentence of an answer, by the context that the answer had."""

    sentence: str
    label: SentenceKind
    rationale: str = ""


class ModelUse(Frozen):
    """The calls of one model for one purpose (a criterion, ``agent`` or ``user_simulator``) in the whole run.

    ``calls`` do not include ``cached`` answers, which cost nothing. ``usd``: the cost of the calls that have a price
    and reported their tokens; ``unpriced``: the number of the others, whose cost is unknown, not zero.
    """

    purpose: str
    provider: str
    model: str
    calls: int = 0
    cached: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    calls_without_usage: int = 0
    usd: float | None = None
    unpriced: int = 0

    @property
    def counts(self) -> dict[str, Any]:
        """The numbers by field name, without an unknown cost."""
        return self.model_dump(exclude={"purpose", "provider", "model"}, exclude_none=True)


_OFTEN: Final = 100_000


@contextmanager
def collector_paused(*, freeze: bool = False) -> Iterator[None]:
    """Pause the garbage collector while many objects without cycles are created.

    It would walk all of a large result again and again, which takes several times as long as the work itself.
    ``freeze``: afterwards exclude all existing objects from collection, if the process is the command.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # the command sets a high threshold; counting frozen objects instead would walk all of them
        if freeze and gc.get_threshold()[0] > _OFTEN:
            gc.freeze()
        if collecting:
            gc.enable()


SCHEMA_VERSION = 2

Goal = Literal["maximize", "minimize"]

Purpose = Literal["first", "rerun", "suite", "control"]
"""Why an attempt was made: in the *first* pass over all cases, as a *rerun* of a suspect, in a further pass over the
*suite*, or as *control*: by the base commit's agent, or interleaved with it. Attempts of the first pass are no evidence
about a suspect, because they are the reason why it is one.
"""

EndReason = Literal["", "stop_signal", "turn_limit"]
"""How a conversation with a simulated user ended; "" for a fixed conversation, and if an error ended it."""

ArmName = Literal["head", "base"]
"""Whose agent made an attempt: this change's (*head*), or that of its base commit."""


class ErrorKind(enum.StrEnum):
    """Why there is no attempt or score. It says nothing about the quality of the agent's answer."""

    ENVIRONMENT = "environment"  # no interpreter, no google-adk, or the worker does not start
    IMPORT = "import"  # the agent's module cannot be imported, or contains no agent
    EXCEPTION = "exception"  # the agent raised
    TIMEOUT = "timeout"  # a turn took longer than timeout_s
    BLOCKED = "blocked"  # a synchronous call blocked the event loop beyond the limit
    DIED = "died"  # the worker process ended: signal, sys.exit, os._exit, segfault
    OUTPUT = "output"  # the agent's answer or event stream is beyond the size limit
    RATE_LIMITED = "rate_limited"  # the model answered 429
    UNAVAILABLE = "unavailable"  # the model answered 5xx, or the connection failed
    PROTOCOL = "protocol"  # a message of the worker breaks the protocol
    CREDENTIALS = "credentials"  # the agent has no key or identity for its model
    NOT_ASKED = "not_asked"  # the case holds an answer to a call that the agent did not make
    USER = "user"  # the simulated user failed, not the agent
    SCORING = "scoring"  # a criterion could not score the answer
    STOPPED = "stopped"  # the run ended first: max_time or a signal


INFRASTRUCTURE = frozenset({ErrorKind.DIED, ErrorKind.RATE_LIMITED, ErrorKind.UNAVAILABLE, ErrorKind.PROTOCOL})
"""Kinds that are retried a limited number of times, because the agent may not be the cause.

Time-outs and blocks are not retried: a retry would take as long again, and a block stops all sessions of its worker.
"""


class AttemptError(Frozen):
    """Why there is no answer. ``traceback``: the last lines that the agent printed or raised. ``turn``: from 0."""

    kind: ErrorKind
    message: str
    traceback: str = ""
    turn: int | None = None


_TOKEN_COUNTS = ("prompt_token_count", "candidates_token_count", "total_token_count")


class Usage(Frozen):
    """The reported use of models in an attempt or a run.

    A token count is None if no call reported it. ``calls_without_usage``: calls without a report, which do not count
    as zero tokens.
    """

    model_calls: int = 0
    tool_calls: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    calls_without_usage: int = 0

    @classmethod
    def total(cls, usages: Iterable["Usage"]) -> "Usage":
        """Return the sum of each field; a field is None if it is None in all usages."""
        every = [vars(usage) for usage in usages]
        known = {name: [value for one in every if (value := one[name]) is not None] for name in cls.model_fields}
        return cls(**{name: sum(values) for name, values in known.items() if values})

    @classmethod
    def of_turns(cls, turns: Sequence[Invocation]) -> "Usage":
        """Return the sum of the usage that the events of all turns report."""
        reports = [event.usage_metadata or {} for turn in turns for event in turn.events if event.is_model_call]
        prompt, candidates, total = [
            [count for report in reports if type(count := report.get(name)) is int] for name in _TOKEN_COUNTS
        ]
        return cls(
            model_calls=len(reports),
            tool_calls=sum(len(turn.tool_calls()) for turn in turns),
            input_tokens=sum(prompt) if prompt else None,
            output_tokens=sum(candidates) if candidates else None,
            total_tokens=sum(total) if total else None,
            calls_without_usage=len(reports) - len(total),
        )


class Durations(Frozen):
    """Seconds, None if not measured. ``total`` includes ``model`` and ``tool``."""

    total: float | None = None
    model: float | None = None
    tool: float | None = None

    @classmethod
    def of_turns(cls, turns: Sequence[Invocation]) -> "Durations":
        """Return the sum of the turns' measured durations."""

        def seconds(name: str) -> float | None:
            measured = [value for turn in turns if (value := getattr(turn, name)) is not None]
            return round(sum(measured), 6) if measured else None

        return cls(total=seconds("duration"), model=seconds("model_duration"), tool=seconds("tool_duration"))


class ScoreStatus(enum.StrEnum):
    """Whether there is a score."""

    SCORED = "scored"
    ERROR = "error"  # there should be a score; this is neither a pass nor a score of 0
    NOT_APPLICABLE = "not_applicable"  # for example the criterion needs a reference, and the user is simulated


class TurnScore(Frozen):
    """A criterion's score of one turn. ``turn`` counts from 0.

    ``votes``, ``cast``, ``rubrics`` and ``sentences`` are set by criteria that ask a judge.
    """

    turn: int
    status: ScoreStatus = ScoreStatus.SCORED
    score: float | None = None
    reason: str = ""
    details: dict[str, Any] = Field(default_factory=dict)
    votes: Votes | None = None
    cast: CastVotes = ()
    rubrics: tuple[RubricScore, ...] = ()
    sentences: tuple[SentenceLabel, ...] = ()


class CriterionScore(Frozen):
    """A criterion's score of one attempt. ``score`` is None unless ``status`` is *scored*.

    ``passed``: whether the score meets the threshold; None without a threshold or a score. ``reason``: a sentence for
    people, for example which call is missing. ``rubrics``: the score of each rubric over the turns it was judged in.
    ``digest``: of the criterion's options, by which a resumed run recognises scores that are still valid.
    """

    criterion: str
    status: ScoreStatus
    score: float | None = None
    passed: bool | None = None
    reason: str = ""
    turns: tuple[TurnScore, ...] = ()
    rubrics: tuple[RubricScore, ...] = ()
    details: dict[str, Any] = Field(default_factory=dict)
    digest: str = ""


class AttemptKey(NamedTuple):
    """The name of one attempt: a repeat (from 0) of a case by one arm's agent."""

    agent: str
    eval_set: str
    case: str
    repeat: int
    arm: ArmName = "head"

    @property
    def case_key(self) -> CaseKey:
        return CaseKey(self.agent, self.eval_set, self.case)


class Provenance(Frozen):
    """Digests of all that an attempt depends on, by which a resumed run recognises attempts that are still valid.

    ``code``: of the checkout. ``environment``: of the agent's interpreter and packages. ``settings``: of the agent's
    options. ``judges``: of the judges' addresses; a judge's model and options are in the digest of its scores.
    """

    code: str = ""
    environment: str = ""
    settings: str = ""
    judges: str = ""


class Attempt(Frozen):
    """One line of attempts.jsonl: the whole transcript of one attempt, and its scores.

    ``commit``: the commit of the agent, "" for the checkout itself. ``tries``: 1, plus the number of retries.
    """

    agent: str
    eval_set: str
    case: str
    repeat: int
    arm: ArmName = "head"
    purpose: Purpose = "first"
    commit: str = ""
    case_digest: str
    provenance: Provenance = Provenance.model_construct()
    turns: tuple[Invocation, ...] = ()
    final_session_state: dict[str, Any] | None = None
    ended: EndReason = ""
    error: AttemptError | None = None
    scores: tuple[CriterionScore, ...] = ()
    usage: Usage = Usage.model_construct()
    durations: Durations = Durations.model_construct()
    tries: int = 1

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(self.agent, self.eval_set, self.case, self.repeat, self.arm)


class AttemptSummary(Frozen):
    """An attempt in results.json: as ``Attempt``, but with excerpts of its turns."""

    repeat: int
    arm: ArmName = "head"
    purpose: Purpose = "first"
    ended: EndReason = ""
    error: AttemptError | None = None
    scores: tuple[CriterionScore, ...] = ()
    turns: tuple[TurnBrief, ...] = ()
    usage: Usage = Usage.model_construct()
    durations: Durations = Durations.model_construct()
    tries: int = 1


class CaseResult(Frozen):
    """All attempts of one case. ``line``: of the case in its eval file.

    ``attempts``: by this change's agent, in the order of their repeats. ``control``: by the base commit's agent in the
    same run. ``unmeasured``: why the case was not run although nothing failed (for example credentials were withheld);
    "" for a case that was run.
    """

    case: str
    line: int | None = None
    digest: str
    expected: tuple[TurnBrief, ...] = ()
    attempts: tuple[AttemptSummary, ...] = ()
    control: tuple[AttemptSummary, ...] = ()
    unmeasured: str = ""


class CriterionInfo(Frozen):
    """A criterion as this run applied it, with all that decides whether its scores are comparable to others.

    ``unit``: of its scores. ``low`` and ``high``: the ends of its scale, None if it has none. ``judge``: the judging
    model as configured. ``source`` and ``line``: where it is configured. ``unmeasured``: why this run did not apply it,
    "" if it did. ``added``: the change under test adds it, so that it blocks nothing before it is merged.
    """

    name: str
    goal: Goal = "maximize"
    unit: Unit = "score"
    low: float | None = None
    high: float | None = None
    threshold: float | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    digest: str
    scoring_version: str = "1"
    judge: str = ""
    source: str = ""
    line: int | None = None
    unmeasured: str = ""
    added: bool = False


class SetResult(Frozen):
    """The results of one eval set against one agent, cases in file order.

    ``path`` is relative to the workspace, with forward slashes.
    """

    agent: str
    eval_set: str
    path: str
    criteria: tuple[CriterionInfo, ...] = ()
    cases: tuple[CaseResult, ...] = ()

    def keyed_cases(self) -> Iterator[tuple[CaseKey, CaseResult]]:
        """Yield every case with its key."""
        return ((CaseKey(self.agent, self.eval_set, case.case), case) for case in self.cases)


class AgentConditions(Frozen):
    """The environment that an agent ran in. It is recorded and shown; results of other environments are comparable.

    ``path``: of the agent's folder, relative to the workspace. ``environment``: where its interpreter comes from.
    """

    agent: str
    path: str
    python: str = ""
    adk_version: str = ""
    environment: str = ""
    models: tuple[str, ...] = ()
    packages_digest: str = ""


class Conditions(Frozen):
    """The circumstances of a run.

    ``commit``: the commit that was checked out; ``change``: in a pull request, the head that it is the merge of.
    ``adaptive``: cases that got worse are run again, and only these re-runs are evidence; if not, all attempts are.
    ``fail_on``: the rule in force, which may be the base commit's; "" if not recorded. ``selection``: the arguments
    that narrowed the run (EVALSET, --case), and ``only_agents``: the agents named; both empty for the whole suite.
    ``withheld``: why the CI system gave the run no secrets, "" if it did. ``lacking``: a sentence for each missing
    credential. ``arguments``: of the `agent-eval run` that repeats this run.
    """

    tool_version: str
    platform: str = ""
    commit: str | None = None
    change: str | None = None
    repeats: int = 1
    adaptive: bool = True
    concurrency: int = 32
    threshold_on: str = "case"
    fail_on: str = ""
    selection: tuple[str, ...] = ()
    only_agents: tuple[str, ...] = ()
    withheld: str = ""
    lacking: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    agents: tuple[AgentConditions, ...] = ()

    def covers(self, agent: str) -> bool:
        """Whether the run includes every case of an agent; only then has a case without a result been removed."""
        return not self.selection and (not self.only_agents or agent in self.only_agents)


class RunStatus(enum.StrEnum):
    """How the run ended. The verdict of a run that is not complete is inconclusive."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"  # of a merged run: shards lack results of cases
    TIMED_OUT = "timed_out"
    LIMITED = "limited"  # a limit was reached before every case was run once
    INTERRUPTED = "interrupted"


class Totals(Frozen):
    """Totals of a run. ``usage``: of all attempts.

    ``attempts``: by this change's agent; ``extra``: those of them after the first pass; ``control``: attempts by the
    base commit's agent. ``uses``: calls of models by judges and simulated users, and by agents whose models have a
    price. ``usd``: their known cost, None without any price.
    """

    cases: int = 0
    attempts: int = 0
    extra: int = 0
    control: int = 0
    errors: int = 0
    retries: int = 0
    seconds: float = 0.0
    usage: Usage = Usage.model_construct()
    uses: tuple[ModelUse, ...] = ()
    usd: float | None = None


class Phase(Frozen):
    """A time span of a run in which attempts of one purpose were made. ``start``: seconds since the run began."""

    purpose: Purpose
    attempts: int
    start: float
    seconds: float


class Base(Frozen):
    """The base commit's agents in this run. ``unavailable``: a sentence why none of them can be run.

    If both this and ``agents`` are empty, the run ended before they were needed. ``unavailable_agents``: the sentences
    for single agents, if others can be run. ``lacking``: agents that did not start because they lack credentials.
    ``absent``: agents that do not exist at that commit.
    """

    commit: str | None = None
    agents: tuple[AgentConditions, ...] = ()
    unavailable: str = ""
    unavailable_agents: dict[str, str] = Field(default_factory=dict)
    lacking: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


class ShardCase(OfCase):
    """A case of the plan, and the number of the shard that measures it."""

    shard: int


class Shard(Frozen):
    """The part of a plan that a result covers: shard ``number``, from 1, of ``count``.

    ``wave``: 1 for the first pass, 2 and more for the attempts that `agent-eval next-wave` distributes after it.
    ``plan``: the digest of the plan's cases and criteria; ``configuration``: the digest of the agents' and judges'
    options. ``cases``: those of all shards, so that a merge can name the cases of a missing one.
    """

    number: int = Field(ge=1)
    count: int = Field(ge=1)
    wave: int = Field(default=1, ge=1)
    plan: str
    configuration: str
    cases: tuple[ShardCase, ...] = ()


class ShardTrouble(enum.StrEnum):
    """Why a merged result lacks a shard or a part of it."""

    MISSING = "missing"
    UNFINISHED = "unfinished"
    UNREADABLE = "unreadable"
    NO_SHARD = "no_shard"
    OTHER_PLAN = "other_plan"
    OTHER_COMMIT = "other_commit"
    OTHER_CONFIGURATION = "other_configuration"
    SUPERSEDED = "superseded"  # by a newer result of the same shard


class ShardProblem(Frozen):
    """A shard that a merged result lacks wholly or in part.

    ``number`` and ``count``: the shard, 0 if the file does not say. ``source``: its file. ``detail``: what is wrong.
    ``cases``: how many cases are unmeasured because of it; ``named``: the first of them.
    """

    kind: ShardTrouble
    number: int = 0
    count: int = 0
    wave: int = 1
    source: str = ""
    detail: str = ""
    cases: int = 0
    named: tuple[CaseKey, ...] = ()

    @property
    def undecided(self) -> bool:
        """Whether it prevents a verdict. Attempts missing from a later wave do not: the gate requests them again."""
        return self.wave == 1 and (self.cases > 0 or self.kind is ShardTrouble.UNFINISHED)


class Merge(Frozen):
    """How a result was merged: the number of ``shards`` used, and the problems of others."""

    shards: int
    problems: tuple[ShardProblem, ...] = ()


class RunResult(Frozen):
    """The content of results.json. ``started_at``: an ISO 8601 time with its offset.

    ``base``: None if the base commit's agent was not needed. ``cut_short``: the limit that ended the re-runs too early,
    "" if none did. ``shard``: set for one part of a run, which has no decision; ``merge``: set if the result was merged
    from such parts. ``phases``: in the order in which they ended.
    """

    schema_version: int = SCHEMA_VERSION
    started_at: str
    status: RunStatus = RunStatus.COMPLETE
    conditions: Conditions
    sets: tuple[SetResult, ...] = ()
    totals: Totals = Totals.model_construct()
    base: Base | None = None
    cut_short: str = ""
    shard: Shard | None = None
    merge: Merge | None = None
    phases: tuple[Phase, ...] = ()
    decision: Decision | None = None

    def keyed_cases(self) -> Iterator[tuple[CaseKey, CaseResult]]:
        """Yield every case of every set with its key."""
        return chain.from_iterable(measured.keyed_cases() for measured in self.sets)
