"""``agent-eval plan`` and ``next-wave``, which print the jobs of a matrix; and the end of a run of one shard."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from agent_eval_action.ci import detect
from agent_eval_action.cli import log
from agent_eval_action.cli.log import print_line
from agent_eval_action.cli.outputs import write_data
from agent_eval_action.cli.session import asked, settings_for
from agent_eval_action.config.models import Settings
from agent_eval_action.config.types import MOST_SHARDS, Duration, Origin
from agent_eval_action.errors import ExitCode, UsageError
from agent_eval_action.folders import relative
from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports import results_json
from agent_eval_action.reports.base import write_text
from agent_eval_action.results.run_result import ErrorKind, RunResult, RunStatus
from agent_eval_action.run.shards import CaseSeconds, divide, expected_seconds, part_of, shard_seconds, shards_needed

_SHOWN: Final = 300  # characters of an error


def plan_command(flags: Mapping[str, Any], selectors: Sequence[str], target: str, shards: int | None) -> None:
    """Print the jobs that measure the suite on stdout, and their expected duration on stderr."""
    limit = _seconds(target)
    if shards is not None and not 1 <= shards <= MOST_SHARDS:
        raise UsageError(f"--shards {shards} is not between 1 and {MOST_SHARDS}")
    resolved = settings_for(flags)
    known = asked(resolved, selectors, flags, lambda evaluation: evaluation.case_seconds())
    if known is None:
        print_line("nothing is to be run, so there are no shards")
        _print_jobs([])
        return
    sessions = resolved.settings.concurrency
    count = shards or shards_needed(known.seconds, limit, sessions)
    chosen = divide(known.seconds, count)
    times, cases = shard_seconds(known.seconds, chosen), list(chosen.values())
    if known.known:
        _print_expectation(known, count, expected_seconds(known.seconds, chosen, count, sessions), limit, sessions)
    else:
        print_line(f"main's history has no durations: {fmt.plural(len(chosen), 'case')}, divided by their number")
    suffix = f"@{known.record}" if known.record and known.known else ""
    jobs: list[dict[str, Any]] = [
        {"shard": f"{number}/{count}{suffix}", "cases": cases.count(number)} for number in range(1, count + 1)
    ]
    if known.known:
        jobs = [job | {"seconds": round(times.get(number, 0.0), 1)} for number, job in enumerate(jobs, 1)]
    _print_jobs(jobs)


def _print_expectation(known: CaseSeconds, count: int, expected: float, target: float, sessions: int) -> None:
    total, longest = sum(known.seconds.values()), max(known.seconds.values())
    source = f" (main's record of {known.record})" if known.record else ""
    cases = f"{fmt.plural(len(known.seconds), 'case')}, {known.known:,} with a known duration{source}"
    print_line(f"{cases}: {fmt.duration(total)} one after another, the longest {fmt.duration(longest)}")
    each = fmt.plural(part_of(sessions, 1, count), "session")
    print_line(f"{fmt.plural(count, 'shard')} with {each} at once: about {fmt.duration(expected)}")
    if expected > target >= longest:
        print_line(f"more than {sessions} sessions (concurrency) would be faster, if the models allow them")


def next_wave_command(flags: Mapping[str, Any], selectors: Sequence[str], target: str, output: Path) -> None:
    """Print the jobs that repeat undecided cases, and write the attempts of each to ``output``."""
    limit = _seconds(target)
    resolved = settings_for(flags)
    wave = asked(resolved, selectors, flags, lambda evaluation: evaluation.next_wave(limit))
    if wave is None:
        print_line("no wave is needed: what is to be run again, if anything, the merge runs itself")
        _print_jobs([])
        return
    write_text(output, [wave.model_dump_json(indent=1), "\n"])
    print_line(f"wave {wave.wave}: {wave.why}")
    attempts = {number: wave.attempts_of(number) for number in range(1, wave.count + 1)}
    for number, made in attempts.items():
        print_line(f"  shard {number}/{wave.count}: {fmt.plural(made, 'attempt')}")
    _print_jobs([{"shard": f"{n}/{wave.count}", "wave": wave.wave, "attempts": made} for n, made in attempts.items()])


def _print_jobs(jobs: Sequence[Mapping[str, Any]]) -> None:
    write_data(json.dumps({"include": list(jobs)}, separators=(",", ":")) + "\n", None)


def _seconds(text: str) -> float:
    try:
        seconds: float = TypeAdapter(Duration).validate_python(text, context=Origin(path=Path("--target"), text=True))
    except ValidationError as error:
        message = error.errors(include_url=False)[0]["msg"]
        raise UsageError(f"--target {text}: {message}", hint="a duration is like 5m or 90s") from error
    return seconds


def finish_shard(result: RunResult, settings: Settings) -> ExitCode:
    """Write what one shard measured; the merge decides."""
    interrupted = result.status is RunStatus.INTERRUPTED
    if result.shard is None:  # the run ended before anything was planned; the merge reports why
        print_line("this shard was interrupted" if interrupted else "nothing was measured: the merge says why")
        return ExitCode.INTERRUPTED if interrupted else ExitCode.PASS
    path = settings.out / results_json.RESULTS
    results_json.write(path, result, workspace=settings.workspace)
    shown = relative(path, settings.workspace)
    shard, totals = result.shard, result.totals
    of_wave = f" of wave {shard.wave}" if shard.wave > 1 else ""
    what = f"{fmt.plural(totals.cases, 'case')}, {fmt.plural(totals.attempts + totals.control, 'attempt')}"
    print_line(f"shard {shard.number} of {shard.count}{of_wave}: {what}, {fmt.duration(totals.seconds)}; {shown}")
    errors = [
        (case.case, made.error)
        for owner in result.sets
        for case in owner.cases
        for made in case.attempts
        if made.error is not None and made.error.kind is not ErrorKind.STOPPED
    ]
    for name, error in errors:
        print_line(f"  {name}: {error.kind}: {error.message}"[:_SHOWN], style="yellow")
    if failure := detect(os.environ).write_outputs({"results": shown}, os.environ):
        log.warning(failure)
    if interrupted:
        return ExitCode.INTERRUPTED
    if result.status is not RunStatus.COMPLETE:
        log.error(f"this shard did not measure all of its cases: {result.cut_short or result.status}")
        return ExitCode.INCONCLUSIVE
    return ExitCode.PASS
