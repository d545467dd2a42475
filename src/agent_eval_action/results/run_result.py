"""What a run leaves: attempts with their scores in attempts.jsonl, and the RunResult of results.json."""

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
    """One sample of a judge, and the beginning of its words."""

    yes: bool
    rationale: str = ""


CastVotes = Annotated[tuple[CastVote, ...], Field(exclude_if=lambda cast: not cast)]
"""Each vote, in the order of the requests, where there were several and not all said yes."""


class Votes(Frozen):
    """How a judge's samples fell; ``left_out`` gave no usable answer. What could change nothing was not asked."""

    yes: int = 0
    no: int = 0
    left_out: int = 0

    @property
    def verdict(self) -> bool | None:
        """The majority; a tie is negative, None without a vote."""
        return self.yes > self.no if self.yes + self.no else None


class RubricScore(Frozen):
    """One rubric: 1 or 0 in a turn, the mean over its turns in a case. ``rationale`` is a judge's of the majority."""

    rubric_id: str
    text: str
    score: float | None
    rationale: str = ""
    votes: Votes = Votes.model_construct()
    cast: CastVotes = ()
    weight: float = 1.0


class SentenceLabel(Frozen):
    """One sentence of an answer, judged by its context."""

    sentence: str
    label: SentenceKind
    rationale: str = ""


class ModelUse(Frozen):
    """What one purpose (a criterion, ``agent``, ``user_simulator``) asked of one model over the whole run.

    ``cached`` answers cost nothing and are not among ``calls``. ``usd`` is of the calls that have a price and
    reported their tokens; ``unpriced`` counts the others: their cost is unknown, not zero.
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
        """Everything that is counted, without the names; a cost that is not known is no count."""
        return self.model_dump(exclude={"purpose", "provider", "model"}, exclude_none=True)


_OFTEN: Final = 100_000


@contextmanager
def collector_paused(*, freeze: bool = False) -> Iterator[None]:
    """Pause the garbage collector while values without cycles are made, of which none becomes garbage.

    It would walk all of a large result again and again and take several times the work itself. ``freeze``: nor does it
    ever walk what there is then, in a process that collects as rarely as the command does.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # Counting what is frozen walks all of it: whether it is the command is told by how rarely it collects.
        if freeze and gc.get_threshold()[0] > _OFTEN:
            gc.freeze()
        if collecting:
            gc.enable()


SCHEMA_VERSION = 2

Goal = Literal["maximize", "minimize"]

Purpose = Literal["first", "rerun", "suite", "control"]
"""Why an attempt was made: the *first* pass over everything; a *rerun* of a suspect; a further pass over
the whole *suite*; beside or on the base commit's agent, as *control*. Only what is not *first* is fresh
evidence about a suspect: the first pass chose it.
"""

EndReason = Literal["", "stop_signal", "turn_limit"]
"""How a simulated user's conversation ended; "" for a fixed one, and where an error ended it."""

ArmName = Literal["head", "base"]
"""Whose agent made an attempt: this change's, or that of the commit it is merged onto."""


class ErrorKind(enum.StrEnum):
    """Why an attempt or a score could not be made. Never a verdict on the agent's answer."""

    ENVIRONMENT = "environment"  # no interpreter, google-adk missing, worker does not start
    IMPORT = "import"  # the agent's module does not import, or has no agent in it
    EXCEPTION = "exception"  # the agent raised
    TIMEOUT = "timeout"  # a turn took longer than timeout_s
    BLOCKED = "blocked"  # a synchronous call blocked the event loop beyond the limit
    DIED = "died"  # the worker process ended: signal, sys.exit, os._exit, segfault
    OUTPUT = "output"  # the agent's answer or event stream is beyond the size limit
    RATE_LIMITED = "rate_limited"  # the model answered 429
    UNAVAILABLE = "unavailable"  # the model answered 5xx, or the connection failed
    PROTOCOL = "protocol"  # the worker said something that is not of the protocol
    CREDENTIALS = "credentials"  # the agent has no key or identity for its model here
    NOT_ASKED = "not_asked"  # the case answers a call that the agent did not make
    USER = "user"  # the simulated user could not go on; the agent did nothing wrong
    SCORING = "scoring"  # a criterion could not score what the agent did
    STOPPED = "stopped"  # the run ended first: max_time or a signal


INFRASTRUCTURE = frozenset({ErrorKind.DIED, ErrorKind.RATE_LIMITED, ErrorKind.UNAVAILABLE, ErrorKind.PROTOCOL})
"""Kinds that are tried again (bounded): what broke may not have been this agent's answer.

A time-out or a block is: it would cost as long again, and a block every other session of its worker too.
"""


class AttemptError(Frozen):
    """Why there is no answer. ``traceback`` holds the last lines of what the agent printed or raised."""

    kind: ErrorKind
    message: str
    traceback: str = ""
    turn: int | None = None


_TOKEN_COUNTS = ("prompt_token_count", "candidates_token_count", "total_token_count")


class Usage(Frozen):
    """Model use of an attempt or a run, as reported. Missing reports are counted, not taken for zero."""

    model_calls: int = 0
    tool_calls: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    calls_without_usage: int = 0

    @classmethod
    def total(cls, usages: Iterable["Usage"]) -> "Usage":
        """Sum each field; None where none of them has a number."""
        every = [vars(usage) for usage in usages]
        known = {name: [value for one in every if (value := one[name]) is not None] for name in cls.model_fields}
        return cls(**{name: sum(values) for name, values in known.items() if values})

    @classmethod
    def of_turns(cls, turns: Sequence[Invocation]) -> "Usage":
        """Sum what the events of all turns report; a model event without a report is counted as such."""
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
    """Seconds. ``model`` and ``tool`` are inside ``total``; None where not measured."""

    total: float | None = None
    model: float | None = None
    tool: float | None = None

    @classmethod
    def of_turns(cls, turns: Sequence[Invocation]) -> "Durations":
        """Sum the durations of the turns that were measured."""

        def seconds(name: str) -> float | None:
            measured = [value for turn in turns if (value := getattr(turn, name)) is not None]
            return round(sum(measured), 6) if measured else None

        return cls(total=seconds("duration"), model=seconds("model_duration"), tool=seconds("tool_duration"))


class ScoreStatus(enum.StrEnum):
    """Whether there is a score."""

    SCORED = "scored"
    ERROR = "error"  # a configured criterion without a score: never a pass, never a zero
    NOT_APPLICABLE = "not_applicable"  # e.g. needs a reference and the case has a simulated user


class TurnScore(Frozen):
    """A criterion's score of one turn. ``turn`` counts from 0.

    ``votes``, ``rubrics`` and ``sentences`` are what a judge said, of the criteria that ask one.
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
    """A criterion's score of one attempt. ``score`` is None exactly when ``status`` is not scored.

    ``passed`` is whether the score meets the threshold in the criterion's direction; None without a
    threshold or without a score. ``reason`` is for people: which call was missing, extra, different.
    ``rubrics``: each rubric over the turns it was judged in.
    """

    criterion: str
    status: ScoreStatus
    score: float | None = None
    passed: bool | None = None
    reason: str = ""
    turns: tuple[TurnScore, ...] = ()
    rubrics: tuple[RubricScore, ...] = ()
    details: dict[str, Any] = Field(default_factory=dict)
    digest: str = ""  # of the criterion's options, so that a resumed run knows which scores still hold


class AttemptKey(NamedTuple):
    """Names one repeat of one case."""

    agent: str
    eval_set: str
    case: str
    repeat: int
    arm: ArmName = "head"

    @property
    def case_key(self) -> CaseKey:
        return CaseKey(self.agent, self.eval_set, self.case)


class Provenance(Frozen):
    """Digests of what an attempt was made with, so that a resumed run knows which attempts still hold.

    ``code`` is of the checkout, ``environment`` of the agent's interpreter and packages, ``settings`` of what
    configures the agent, ``judges`` of where judges are asked; what they are asked for is in a score's own digest.
    """

    code: str = ""
    environment: str = ""
    settings: str = ""
    judges: str = ""


class Attempt(Frozen):
    """One line of attempts.jsonl: everything one repeat of a case did, and its scores.

    ``commit`` is what the agent was of, "" for the checkout itself.
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
    """An attempt without its transcript: what results.json keeps."""

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
    """All attempts of one case, and where the case is written down.

    ``attempts`` are this change's, the first pass before what was made again; ``control`` are those of
    the base commit's agent on the same case, made by the same run. ``unmeasured`` says why nothing of it
    could be measured where that is nobody's failure; "" for every case that was run.
    """

    case: str
    line: int | None = None
    digest: str
    expected: tuple[TurnBrief, ...] = ()
    attempts: tuple[AttemptSummary, ...] = ()
    control: tuple[AttemptSummary, ...] = ()
    unmeasured: str = ""


class CriterionInfo(Frozen):
    """A criterion as it was applied: enough to say whether two scores are comparable.

    ``unit``: what its numbers count. ``low`` and ``high``: the ends of its scale, None where it has none.
    ``source`` and ``line`` say where it is configured. ``unmeasured`` says why it was left out of this run
    though it is configured; "" where it was applied. ``added``: the change under test adds it, so it blocks
    nothing before it is merged.
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
    judge: str = ""  # the model that judges, as configured
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
        """Every case with its key."""
        return ((CaseKey(self.agent, self.eval_set, case.case), case) for case in self.cases)


class AgentConditions(Frozen):
    """The agent's environment as found: recorded and shown, never a reason not to compare."""

    agent: str
    path: str
    python: str = ""
    adk_version: str = ""
    environment: str = ""
    models: tuple[str, ...] = ()
    packages_digest: str = ""


class Conditions(Frozen):
    """Under what conditions the run was made."""

    tool_version: str
    platform: str = ""
    commit: str | None = None
    change: str | None = None  # the head of the pull request that ``commit`` is the merge of; None outside of CI
    repeats: int = 1
    adaptive: bool = True  # what got worse is run again, and only that is evidence; else every attempt is
    concurrency: int = 32
    threshold_on: str = "case"
    fail_on: str = ""  # the rule in force, which may be the base's; "": not recorded
    selection: tuple[str, ...] = ()  # what narrowed the run (EVALSET arguments, --case); empty: the whole suite
    only_agents: tuple[str, ...] = ()  # the agents asked for by name; empty: all there are
    withheld: str = ""  # why GitHub gave this run no secrets; "": it gave them
    lacking: tuple[str, ...] = ()  # which credentials were missed, one sentence each
    arguments: tuple[str, ...] = ()  # what `agent-eval run` needs to make this run again
    agents: tuple[AgentConditions, ...] = ()

    def covers(self, agent: str) -> bool:
        """Whether the run was to make every case of an agent: only then is a case that is not there gone."""
        return not self.selection and (not self.only_agents or agent in self.only_agents)


class RunStatus(enum.StrEnum):
    """How the run ended; anything but complete makes the verdict inconclusive."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"  # shards were merged, and some of them left no usable result of all their cases
    TIMED_OUT = "timed_out"
    LIMITED = "limited"  # a limit of calls or tokens, met before every case was run once
    INTERRUPTED = "interrupted"


class Totals(Frozen):
    """Counts over the run; ``usage`` is of all attempts.

    ``attempts`` are this change's, of which ``extra`` were made after the first pass; ``control`` are
    those of the base commit's agent. ``uses``: what judges and simulated users were asked, by purpose and
    model, and the agents where their models are priced; ``usd`` is what of it is known, None without a price.
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
    """A part of the run in which attempts were made for one purpose. ``start``: seconds since the run began."""

    purpose: Purpose
    attempts: int
    start: float
    seconds: float


class Base(Frozen):
    """The base commit's agents as this run met them. ``unavailable`` says in one sentence why none was run.

    With neither that nor ``agents`` they could have been run, but the run ended before. ``unavailable_agents`` says
    the same of those that cannot be run while others can. ``lacking``: agents of it that did not start for want of
    credentials; ``absent``: those that it does not have.
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
    """Which part of a plan a result is of: shard ``number``, from 1, of ``count``.

    ``wave``: 1 for the first pass, 2 for what `agent-eval next-wave` sent out after it. ``plan`` is the digest of all
    cases and criteria of the plan, ``configuration`` that of what the agents and judges were asked with. ``cases`` are
    those of all shards, so that what a missing one leaves unmeasured can be named.
    """

    number: int = Field(ge=1)
    count: int = Field(ge=1)
    wave: int = Field(default=1, ge=1)
    plan: str
    configuration: str
    cases: tuple[ShardCase, ...] = ()


class ShardTrouble(enum.StrEnum):
    """Why a shard, or a file that was given for one, is not or not wholly part of a merged result."""

    MISSING = "missing"
    UNFINISHED = "unfinished"
    UNREADABLE = "unreadable"
    NO_SHARD = "no_shard"
    OTHER_PLAN = "other_plan"
    OTHER_COMMIT = "other_commit"
    OTHER_CONFIGURATION = "other_configuration"
    SUPERSEDED = "superseded"  # by a newer result of the same shard


class ShardProblem(Frozen):
    """A shard, or a file, that is not or not wholly part of a merged result.

    ``number`` and ``count``: of which shard, 0 where the file does not say. ``source`` is the file, ``detail`` what is
    wrong with it. ``cases`` are not measured because of it; ``named`` are the first of them.
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
        """Whether it keeps the run from a verdict. What a later wave lacks, the gate asks for again."""
        return self.wave == 1 and (self.cases > 0 or self.kind is ShardTrouble.UNFINISHED)


class Merge(Frozen):
    """What a merged result was joined of: so many ``shards``, and what was wrong with others."""

    shards: int
    problems: tuple[ShardProblem, ...] = ()


class RunResult(Frozen):
    """results.json.

    ``base`` is None when nothing asked for it; ``cut_short`` says which limit ended the re-runs before
    everything was decided, "" when none did. ``shard`` is set where this is a part of a run, which is never decided;
    ``merge`` where it was joined of such parts. ``phases`` are in the order in
    which they ended.
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
        """Every case of every set with its key."""
        return chain.from_iterable(measured.keyed_cases() for measured in self.sets)
