"""``agent-eval validate`` and ``convert``: eval files are read, and nothing is run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from agent_eval_action.api.evaluation import discover_eval_files
from agent_eval_action.cli.console import print_line
from agent_eval_action.cli.outputs import write_data
from agent_eval_action.cli.session import settings_for
from agent_eval_action.config.discovery import column_mappings
from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.diagnostics.tables import is_table
from agent_eval_action.errors import AgentEvalError, ExitCode, Problem, UsageError
from agent_eval_action.folders import real_path
from agent_eval_action.formats import load_eval_file
from agent_eval_action.results.evalset import EVAL_SUFFIXES
from agent_eval_action.run.loader import Loader, validate_paths

_SHOWN = 200


def validate_command(paths: Sequence[Path], config: str | None) -> ExitCode:
    """Check what a run would read (no paths), or these files and folders. Exit 0, or 2 with every problem."""
    problems: list[Problem] = []
    error: AgentEvalError | None = None
    checked = 0
    try:
        resolved = settings_for({"config": config})
        problems += resolved.warnings
        if paths:
            settings = resolved.settings
            named = (pattern for agent in settings.agents for pattern in agent.evals)
            columns = column_mappings((*named, *settings.evals))
            checked, found = validate_paths(paths, settings.workspace, columns)
            problems += found
        else:
            discovery = discover_eval_files(resolved.settings)
            loader = Loader(resolved.settings.workspace)
            plan = loader.plan(discovery, 1)
            problems += loader.warnings
            checked = len(plan.sets)
            for note in (*resolved.notes, *discovery.notes, *discovery.left_out, *loader.notes):
                print_line(note)
    except AgentEvalError as raised:
        error = raised
        problems += raised.problems
    problems.sort(key=lambda problem: (problem.severity != "error", str(problem.path), problem.line or 0))
    for problem in problems[:_SHOWN]:
        print_line(f"{problem.severity}: {problem}", style="red" if problem.severity == "error" else "yellow")
    if len(problems) > _SHOWN:
        print_line(f"… and {len(problems) - _SHOWN} more")
    warned = sum(problem.severity == "warning" for problem in problems)
    bad = len(problems) - warned
    if error is not None and not error.problems:
        print_line(f"error: {error}", style="red", lines=True)
        bad += 1
    errors = plural(bad, "error")
    print_line(f"{plural(checked, 'file')} checked, {errors}, {plural(warned, 'warning')}" if checked else errors)
    return ExitCode.USAGE if bad else ExitCode.PASS


def convert_command(file: Path, session_file: Path | None, output: Path | None) -> None:
    """Write scenarios, or an eval file of an older schema, as an eval set google-adk reads, to a file or to stdout.

    The same file gives the same text: what differs from the schema's defaults, in its order.
    """
    for path in (file, session_file):
        if path is not None and not path.is_file():
            raise UsageError(f"there is no file {path}")
    anywhere = Path(real_path(file).anchor)  # the files were named by hand
    loaded = load_eval_file(file, workspace=anywhere, session_file=session_file)
    eval_set = loaded.eval_set
    for problem in loaded.warnings:
        print_line(f"warning: {problem}", style="yellow")
    if loaded.format != "adk":  # google-adk finds a set by its file's name
        path = output or file
        name = path.stem if is_table(path) else path.name.removesuffix(".json")
        name = name.removesuffix(".evalset").removesuffix(".test")
        eval_set = eval_set.model_copy(update={"eval_set_id": name, "name": None})
    plain = eval_set.model_dump(mode="json", exclude_defaults=True)
    text = json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
    write_data(text, output)
    if output is not None:
        found = output.name.endswith(EVAL_SUFFIXES)
        hint = "" if found else " (only *.evalset.json and *.test.json are found by themselves)"
        print_line(f"{plural(len(eval_set.eval_cases), 'case')} written to {output}{hint}")
