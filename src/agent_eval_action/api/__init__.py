"""The library: ``evaluate``, ``evaluate_sync`` and ``compare``, and the evaluation that the command runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_eval_action.config.models import Settings
    from agent_eval_action.results.run_result import RunResult
    from agent_eval_action.run.events import Event

# Importing the library is cheap: each function imports what it needs when it is called.
# ruff: noqa: PLC0415


async def evaluate(
    settings: Settings | Path | str = ".",
    *,
    eval_sets: Sequence[str] = (),
    on_event: Callable[[Event], None] | None = None,
    **options: Any,
) -> RunResult:
    """Run the eval sets of a checkout against its agents and decide, as ``agent-eval run`` does.

    Args:
        settings: The settings, or a folder of the checkout, from which they are read as the command does.
        eval_sets: Eval files to run, as ``path`` or ``path:case,case``; by default all that belong to an agent.
        on_event: Called with each event of ``agent_eval_action.run.events``: attempts, phases and notices.
        **options: Options of the command, by name with underscores (``repeats=3``). They override the file and the
            environment, and are only allowed with a folder.

    Returns:
        The result; ``result.decision.outcome`` is a ``Verdict``. Transcripts are in ``attempts.jsonl`` of
        ``settings.out``. Reports are not written.

    Raises:
        AgentEvalError: The configuration, an eval file or a credential is wrong, so that nothing could be measured.
            What fails later is part of the result.
    """
    from agent_eval_action.api.evaluation import Evaluation, RunContext
    from agent_eval_action.ci import detect
    from agent_eval_action.config.loader import load_settings
    from agent_eval_action.run.orchestrator import StopRequest

    if isinstance(settings, Path | str):
        settings = load_settings(settings, **options)
    elif options:
        raise TypeError("options are for a folder; settings hold theirs already")
    context = RunContext(
        environ=os.environ,
        emit=on_event or (lambda _: None),
        stop=StopRequest(),
        selectors=tuple(eval_sets),
        flags=options,
        cwd=settings.start,
        job=detect(os.environ).job(os.environ),
    )
    return await Evaluation(settings, context).result()


def evaluate_sync(
    settings: Settings | Path | str = ".",
    *,
    eval_sets: Sequence[str] = (),
    on_event: Callable[[Event], None] | None = None,
    **options: Any,
) -> RunResult:
    """Do what ``evaluate`` does, for code without an event loop."""
    import asyncio

    return asyncio.run(evaluate(settings, eval_sets=eval_sets, on_event=on_event, **options))


def compare(base: RunResult | Path | str, head: RunResult | Path | str, settings: Settings | None = None) -> RunResult:
    """Decide the result ``head`` against ``base``; nothing is run.

    Args:
        base: What to compare with: a result, or the path of results.json, of a baseline, of results of google-adk
            or agents-cli (also a pattern), or of a folder that holds one of these.
        head: The result to decide, given like ``base``.
        settings: The gate rules to apply; by default those of the current folder.

    Returns:
        The result ``head`` with its decision. What only one of the two measured is a finding.

    Raises:
        ResultsError: One of the two cannot be read.
    """
    from agent_eval_action.api.comparison import compare_results

    return compare_results(base, head, settings)
