"""What main has scored: one small record per run, and the pooled history a run is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Literal

from pydantic import Field

from agent_eval_action.model.base import Frozen, StoreKind
from agent_eval_action.model.baseline import (
    Accepted,
    Baseline,
    BaselineAgent,
    CaseRecord,
    CriterionRecord,
    Definition,
    ScoreCount,
    kept_key,
    kept_name,
)
from agent_eval_action.model.result import CaseKey

__all__ = [
    "RECORD_VERSION",
    "Accepted",
    "Definition",
    "History",
    "PairHistory",
    "PairName",
    "Record",
    "RecordCase",
    "Withheld",
]

RECORD_VERSION: Final = 1

PairName = tuple[CaseKey, str]
"""A case and a criterion, by the names a record keeps."""


class RecordCase(CaseRecord):
    """One case of one run. ``simulator`` names the simulated user and its version, "" where there is none."""

    simulator: str = ""


class Withheld(Frozen):
    """A pair this run has no scores of in the record, and why."""

    agent: str
    eval_set: str
    case: str
    criterion: str
    why: Literal["regressed", "unmeasured"]

    @property
    def pair(self) -> PairName:
        return CaseKey(self.agent, self.eval_set, self.case), self.criterion


class Record(Frozen):
    """One run of main. ``committed_at``: of the commit, seconds since 1970; ``whole``: nothing narrowed the run.

    ``criteria`` are definitions by the digest that ``cases`` name.
    """

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
    cases: tuple[RecordCase, ...] = ()
    withheld: tuple[Withheld, ...] = ()
    accepted: tuple[Accepted, ...] = ()


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
    """What a run is compared with. ``commit`` and ``created_at`` are those of the newest record used.

    ``pairs`` holds every pair of the current suite that main knows, those that only main has, and those
    whose history does not count, each with its reason. ``pending``: accepted changes that no record carries yet.
    ``notes`` are for people.
    """

    pairs: Mapping[PairName, PairHistory] = field(default_factory=dict)
    cases: Mapping[CaseKey, CaseRecord] = field(default_factory=dict)
    records: int = 0
    commit: str | None = None
    created_at: str | None = None
    tool_version: str = ""
    repeats: int = 1
    agents: tuple[BaselineAgent, ...] = ()
    criteria: Mapping[str, Definition] = field(default_factory=dict)
    accepted: tuple[Accepted, ...] = ()
    pending: tuple[Accepted, ...] = ()
    source: str = ""
    store: StoreKind = "file"
    notes: tuple[str, ...] = ()

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

    def without_cases(self) -> History:
        """What it says of main's newest run, without any score."""
        return replace(self, pairs={}, cases={})

    def as_baseline(self) -> Baseline | None:
        """The pooled counts in the form of a stored baseline; None when there is no record."""
        if not self.records or self.created_at is None:
            return None
        return Baseline(
            tool_version=self.tool_version,
            created_at=self.created_at,
            commit=self.commit,
            repeats=self.repeats,
            agents=self.agents,
            criteria=dict(self.criteria),
            accepted=self.accepted,
            records=tuple(self.cases[key] for key in sorted(self.cases)),
        )
