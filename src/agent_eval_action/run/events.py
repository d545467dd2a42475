"""Events of a run for a progress display, as values; the display decides how to show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agent_eval_action.results.run_result import Attempt, AttemptError, AttemptKey, Purpose

NoticeLevel = Literal["setup", "info", "warning"]
"""*setup*: details of how the run is set up, which few readers need."""


@dataclass(frozen=True, slots=True)
class AgentStarting:
    """A step of an agent's start that may take long; ``step`` like "builds its environment"."""

    agent: str
    step: str


@dataclass(frozen=True, slots=True)
class AgentStarted:
    """An agent has started. ``environment``: where its interpreter comes from. All fields are "" for a recording."""

    agent: str
    adk_version: str = ""
    python: str = ""
    environment: str = ""


@dataclass(frozen=True, slots=True)
class SuiteRead:
    """The eval files are read. ``reference``: the commit of main to compare with, "" if there is none."""

    agents: tuple[str, ...]
    cases: int
    criteria: int
    reference: str = ""


@dataclass(frozen=True, slots=True)
class RunPlanned:
    """The number of attempts to make, and of those that an earlier run already made."""

    attempts: int
    cases: int
    kept: int = 0


@dataclass(frozen=True, slots=True)
class RerunsPlanned:
    """Attempts beyond the first pass are about to start; ``why`` is one sentence."""

    attempts: int
    purpose: Purpose
    why: str


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """An attempt's session begins."""

    key: AttemptKey


@dataclass(frozen=True, slots=True)
class AttemptRetried:
    """An infrastructure error; the attempt is retried."""

    key: AttemptKey
    error: AttemptError
    tries: int


@dataclass(frozen=True, slots=True)
class AttemptFinished:
    """An attempt is scored and stored."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for the log."""

    text: str
    level: NoticeLevel = "info"


Event = (
    AgentStarting
    | AgentStarted
    | SuiteRead
    | RunPlanned
    | RerunsPlanned
    | AttemptStarted
    | AttemptRetried
    | AttemptFinished
    | Notice
)
