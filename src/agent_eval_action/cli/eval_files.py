"""Commands that read eval files and run no agent: list, validate, convert; plan and next-wave, which print jobs."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from agent_eval_action.cli.log import data_console, print_columns, print_line
from agent_eval_action.cli.outputs import write_data
from agent_eval_action.cli.progress import working
from agent_eval_action.cli.session import asked, plan_of, read_history, settings_for
from agent_eval_action.config.discovery import column_mappings
from agent_eval_action.config.types import MOST_SHARDS, Duration, Origin
from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.diagnostics.tables import is_table
from agent_eval_action.errors import AgentEvalError, ExitCode, Problem, UsageError
from agent_eval_action.folders import real_path
from agent_eval_action.formats import load_eval_file
from agent_eval_action.reports import formatting as fmt
from agent_eval_action.reports.base import write_text
from agent_eval_action.results.evalset import EVAL_SUFFIXES
from agent_eval_action.run.listing import ListedCase, ListedCriterion, RunEstimate, list_suite
from agent_eval_action.run.loader import Loader, discover_eval_files, names_of, validate_paths
from agent_eval_action.run.shards import divide, expected_seconds, part_of, shard_seconds, shards_needed

_SHOWN = 200


def validate_command(
    paths: Sequence[Path], config: str | None, *, as_json: bool = False, quiet: bool = False
) -> ExitCode:
    """Check these files and folders, or without paths all that a run would read. Exit 0, or 2 with every problem.

    ``quiet``: print only problems. ``as_json``: also print problems and checked files on stdout.
    """
    problems: list[Problem] = []
    alone: AgentEvalError | None = None
    checked = 0
    try:
        resolved = settings_for({"config": config})
        settings = resolved.settings
        problems += resolved.warnings
        if paths:
            named = (pattern for agent in settings.agents for pattern in agent.evals)
            columns = column_mappings((*named, *settings.evals))
            checked, found = validate_paths(paths, settings.workspace, columns)
            problems += found
        else:
            discovery, loader = discover_eval_files(settings), Loader(settings.workspace)
            checked = len(loader.plan(discovery, 1).sets)
            problems += loader.warnings
            notes = (*resolved.notes, *discovery.notes, *discovery.left_out, *loader.notes)
            for note in () if quiet else notes:
                print_line(note)
    except AgentEvalError as error:
        problems += error.problems
        alone = None if error.problems else error
    problems.sort(key=lambda problem: (problem.severity != "error", str(problem.path), problem.line or 0))
    for problem in problems[:_SHOWN]:
        print_line(f"{problem.severity}: {problem}", style="red" if problem.severity == "error" else "yellow")
    if len(problems) > _SHOWN:
        print_line(f"… and {len(problems) - _SHOWN} more")
    warned = sum(problem.severity == "warning" for problem in problems)
    bad = len(problems) - warned + (alone is not None)
    if alone:
        print_line(f"error: {alone}", style="red", lines=True)
    if as_json:
        shown = [problem.fields for problem in problems]
        counts = {"checked": checked, "errors": bad, "warnings": warned}
        print(json.dumps({**counts, "problems": shown, "error": alone.fields if alone else None}, indent=1))
    if not quiet or problems or bad:
        errors = plural(bad, "error")
        print_line(f"{plural(checked, 'file')} checked, {errors}, {plural(warned, 'warning')}" if checked else errors)
    return ExitCode.USAGE if bad else ExitCode.PASS


def eval_files() -> list[str]:
    """Return the eval files found here for shell completion; none on any error."""
    with contextlib.suppress(Exception):  # a run reports the error
        found = discover_eval_files(settings_for({}).settings).sets
        return _without_quoting({os.path.relpath(discovered.path) for discovered in found})
    return []


def case_names() -> list[str]:
    """Return the ids of the cases found here for shell completion; none on any error."""
    with contextlib.suppress(Exception):
        return _without_quoting(names_of(plan_of(settings_for({}).settings)).case)
    return []


def _without_quoting(names: Iterable[str]) -> list[str]:
    """Keep names that need no quoting: shells insert completions unquoted, and eval files may be untrusted."""
    return sorted(name for name in names if shlex.quote(name) == name)


def convert_command(file: Path, session_file: Path | None, output: Path | None) -> None:
    """Write scenarios, or an eval file in an older schema, as an eval set for google-adk, to a file or to stdout.

    The output is deterministic: fields that differ from their defaults, in the schema's order.
    """
    for path in (file, session_file):
        if path is not None and not path.is_file():
            raise UsageError(f"there is no file {path}")
    anywhere = Path(real_path(file).anchor)  # explicitly named files may lie outside the workspace
    loaded = load_eval_file(file, workspace=anywhere, session_file=session_file)
    eval_set = loaded.eval_set
    for problem in loaded.warnings:
        print_line(f"warning: {problem}", style="yellow")
    if loaded.format != "adk":  # google-adk finds a set by its file's name
        path = output or file
        name = path.stem if is_table(path) else path.name.removesuffix(".json")
        name = name.removesuffix(".evalset").removesuffix(".test")
        eval_set = eval_set.model_copy(update={"eval_set_id": name, "name": None})
    plain = eval_set.model_dump(mode="json", exclude_defaults=True, exclude={"eval_cases": {"__all__": {"replay"}}})
    text = json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
    write_data(text, output)
    if output is not None:
        hint = " (only *.evalset.json and *.test.json are found by themselves)"
        hint = "" if output.name.endswith(EVAL_SUFFIXES) else hint
        print_line(f"{plural(len(eval_set.eval_cases), 'case')} written to {output}{hint}")


_CENT = 0.005


def list_command(flags: Mapping[str, Any], selectors: Sequence[str], *, as_json: bool) -> None:
    """Print what a run would measure, as tables or as JSON, on stdout."""
    settings = settings_for(flags).settings
    with working("reading the eval files"):
        found = discover_eval_files(settings, selectors)
        loader = Loader(settings.workspace, settings.case)
        plan = loader.plan(found, settings.repeats)
    session = read_history(settings)
    listing = list_suite(settings, found, plan, session)
    for problem in loader.warnings:
        print_line(f"warning: {problem}", style="yellow")
    for note in session.found.notes:
        print_line(f"note: {note}")
    if as_json:
        print(listing.model_dump_json(indent=1))
        return
    out = data_console()
    for agent in listing.agents:
        print_line(f"{agent.agent}  in {agent.path}" + ("" if agent.sets else ": no eval files"), "bold", out=out)
        for listed in agent.sets:
            print_line(f"{listed.eval_set}  {listed.path}, {fmt.plural(len(listed.cases), 'case')}", indent=2, out=out)
            print_columns(out, map(_criterion, listed.criteria), ("criterion", "threshold", "written in"), 4)
            print_columns(out, map(_case, listed.cases), ("case", "line", "turns", "time", "tags"), 4)
    sets = [listed for agent in listing.agents for listed in agent.sets]
    counts = [(len(listing.agents), "agent"), (len(sets), "eval set"), (sum(len(s.cases) for s in sets), "case")]
    sizes = ", ".join(fmt.plural(*count) for count in counts)
    print_line(f"{sizes}; {', '.join(_expected(listing.estimate))}", out=out)


def _criterion(listed: ListedCriterion) -> Sequence[str]:
    threshold = fmt.threshold(listed.threshold, listed.goal) or "none"
    place = fmt.criterion_place(listed.source, listed.line)
    return listed.name, threshold, place + (f", judged by {listed.judge}" if listed.judge else "")


def _case(listed: ListedCase) -> Sequence[str]:
    seconds = "" if listed.seconds is None else fmt.duration(listed.seconds)
    turns = "simulated" if listed.turns is None else str(listed.turns)
    return listed.case, str(listed.line or ""), turns, seconds, ", ".join(listed.tags)


def _expected(estimate: RunEstimate) -> Iterator[str]:
    yield f"a run makes {fmt.plural(estimate.attempts, 'attempt')} of {fmt.plural(estimate.turns, 'turn')}"
    if estimate.most_judge_calls:
        usd = f" (about ${estimate.judge_usd:,.2f})" if (estimate.judge_usd or 0) >= _CENT else ""
        yield f"asks judges for about {estimate.judge_calls:,} answers, at most {estimate.most_judge_calls:,}{usd}"
    if estimate.seconds is not None:
        yield f"takes about {fmt.duration(estimate.seconds)}"
    if estimate.usd is not None:
        yield f"cost ${estimate.usd:,.2f} on main"
    if estimate.seconds is None:
        yield "how long it takes is not known: main's history " + ("does not say" if estimate.history else "is empty")


# --- the jobs of a matrix --------------------------------------------------------------------------


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
    sessions, seconds = resolved.settings.concurrency, known.seconds
    count = shards or shards_needed(seconds, limit, sessions)
    chosen = divide(seconds, count)
    cases, size = Counter(chosen.values()), fmt.plural(len(chosen), "case")
    jobs: dict[int, dict[str, Any]] = {
        number: {"shard": f"{number}/{count}", "cases": cases[number]} for number in range(1, count + 1)
    }
    if not known.known:
        print_line(f"main's history has no durations: {size}, divided by their number")
        _print_jobs(jobs.values())
        return
    expected, longest = expected_seconds(seconds, chosen, count, sessions), max(seconds.values())
    source = f" (main's record of {known.record})" if known.record else ""
    total = f"{fmt.duration(sum(seconds.values()))} one after another, the longest {fmt.duration(longest)}"
    print_line(f"{size}, {known.known:,} with a known duration{source}: {total}")
    each = fmt.plural(part_of(sessions, 1, count), "session")
    print_line(f"{fmt.plural(count, 'shard')} with {each} at once: about {fmt.duration(expected)}")
    if expected > limit >= longest:
        print_line(f"more than {sessions} sessions (concurrency) would be faster, if the models allow them")
    times = shard_seconds(seconds, chosen)
    for number, job in jobs.items():
        job["shard"] += f"@{known.record}" if known.record else ""
        job["seconds"] = round(times.get(number, 0.0), 1)
    _print_jobs(jobs.values())


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


def _print_jobs(jobs: Iterable[Mapping[str, Any]]) -> None:
    write_data(json.dumps({"include": list(jobs)}, separators=(",", ":")) + "\n", None)


def _seconds(text: str) -> float:
    try:
        seconds: float = TypeAdapter(Duration).validate_python(text, context=Origin(path=Path("--target"), text=True))
    except ValidationError as error:
        message = error.errors(include_url=False)[0]["msg"]
        raise UsageError(f"--target {text}: {message}", hint="a duration is like 5m or 90s") from error
    return seconds
