"""Cases as tests: list them, and check each against its thresholds. Nothing is compared with main."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from agent_eval_action.api.evaluation import Evaluation, RunContext
from agent_eval_action.baseline.stores import FOLDER, keep_out_of_git
from agent_eval_action.config.models import AgentSettings, CriterionPolicy, Policy, Settings
from agent_eval_action.processes.process import ForkServers
from agent_eval_action.results.run_result import RunResult
from agent_eval_action.run.events import Event
from agent_eval_action.run.loader import Loader, discover_eval_files
from agent_eval_action.run.orchestrator import StopRequest
from agent_eval_action.run.plan import Plan

_NO_BASELINE: Final = "no-baseline.json"
_FORK_SERVERS: Final = ForkServers(kept=True)
"""Tests run one after the other: google-adk is imported for the first, and later agents are forked from there."""
atexit.register(_FORK_SERVERS.close)
_RUNNING: Final = threading.Lock()
_LOOK_S: Final = 0.05

_Rules = TypeVar("_Rules", Policy, CriterionPolicy)


def read_cases(settings: Settings, eval_sets: Sequence[str] = ()) -> tuple[Plan, tuple[AgentSettings, ...]]:
    """Return the cases of these eval sets (see ``evaluate``) with their criteria, and their agents, which do not start.

    Raises AgentEvalError with every problem of the files.
    """
    found = discover_eval_files(settings, eval_sets)
    agents = tuple({item.agent.name: item.agent for item in found.sets}.values())
    return Loader(settings.workspace, settings.case).plan(found, settings.repeats), agents


async def measure_cases(
    settings: Settings, eval_sets: Sequence[str] = (), *, on_event: Callable[[Event], None] | None = None
) -> RunResult:
    """Run these eval sets (see ``evaluate``) once per repeat; a pair blocks if it misses its threshold.

    Ignores the baseline and the CI job, re-runs nothing, and writes no reports. Overlapping calls wait for each other.

    Raises AgentEvalError if nothing could be measured. Later failures are part of the result.
    """
    context = RunContext(
        environ=os.environ,
        emit=on_event or (lambda _: None),
        stop=StopRequest(),
        selectors=tuple(eval_sets),
        cwd=settings.start,
        fork_servers=_FORK_SERVERS,
    )
    # git must be read before an agent starts, so runs are serialised; callers may use several event loops and threads
    while not _RUNNING.acquire(blocking=False):  # noqa: ASYNC110 - asyncio.Event belongs to one loop
        await asyncio.sleep(_LOOK_S)
    try:
        with contextlib.suppress(OSError):  # the run itself reports an unwritable folder
            folder = settings.output_folder(settings.workspace / FOLDER)
            folder.make()
            keep_out_of_git(folder)
        return await Evaluation(_without_history(settings), context).result()
    finally:
        _RUNNING.release()


def _without_history(settings: Settings) -> Settings:
    store = {"store": "file", "path": settings.out / _NO_BASELINE}
    policy = _by_case(settings.policy)
    rules = {name: _by_case(own) for name, own in policy.criteria.items()}
    return settings.model_copy(
        update={
            "baseline": settings.baseline.model_copy(update=store),
            "reruns": "off",
            "policy": policy.model_copy(update={"criteria": rules}),
        }
    )


def _by_case(rules: _Rules) -> _Rules:
    """The rules with every case held to its threshold, instead of only to regressions."""
    return rules.model_copy(update={"threshold_on": "case"}) if rules.threshold_on == "regression" else rules
