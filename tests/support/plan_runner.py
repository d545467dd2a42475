"""Runs a plan over drivers of a test, through the real runner and orchestrator."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agent_eval_action.folders import OutputFolder
from agent_eval_action.llm.budget import Meter
from agent_eval_action.results.run_result import Conditions
from agent_eval_action.results.transcripts import TranscriptWriter
from agent_eval_action.run.attempt_runner import AttemptRunner
from agent_eval_action.run.base_agents import AgentGroup
from agent_eval_action.run.collector import ResultCollector
from agent_eval_action.run.orchestrator import Orchestrator, StopRequest
from agent_eval_action.run.plan import Plan

CONDITIONS = Conditions(tool_version="test")


def attempt_runner(plan: Plan, writer: TranscriptWriter, **options: Any) -> AttemptRunner:
    """A runner of four sessions that keeps no events; ``options`` are its fields."""
    given = {"meter": Meter(), "concurrency": 4, "emit": lambda _: None, **options}
    return AttemptRunner(
        scoring_ready=asyncio.create_task(asyncio.sleep(0)),
        writer=writer,
        collector=ResultCollector(plan),
        **given,
    )


async def run_plan(
    out: Path, plan: Plan, head: AgentGroup, *, stop: StopRequest | None = None, orchestrate: Any = None, **options: Any
) -> Orchestrator:
    """Run the whole plan. ``orchestrate``: further fields of the orchestrator, ``options`` those of the runner."""
    with TranscriptWriter(OutputFolder.at(out)) as writer:
        runner = attempt_runner(plan, writer, **options)
        orchestrator = Orchestrator(plan, head, runner, stop or StopRequest(), CONDITIONS, **(orchestrate or {}))
        await orchestrator.run()
    return orchestrator
