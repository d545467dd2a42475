"""``agent-eval validate``: everything that a run reads, and nothing that it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent_eval_action import api
from agent_eval_action.cli.session import print_line, settings_for
from agent_eval_action.diagnostics.reader import plural
from agent_eval_action.errors import AgentEvalError, ExitCode, Problem
from agent_eval_action.run.loader import Loader, validate_paths

_SHOWN = 200


def validate_command(paths: Sequence[Path], config: str | None) -> ExitCode:
    """Check what a run would read (no paths), or these files and folders. Exit 0, or 2 with every problem."""
    problems: list[Problem] = []
    errors: list[AgentEvalError] = []
    checked = 0
    try:
        resolved = settings_for({"config": config} if config else {})
        settings = resolved.settings
        problems += resolved.warnings
        if paths:
            checked, found = validate_paths(paths, settings.workspace)
            problems += found
        else:
            discovery = api.discover_eval_files(settings)
            loader = Loader(settings.workspace)
            plan = loader.plan(discovery, 1)
            problems += loader.warnings
            checked = len(plan.sets)
            for note in (*resolved.notes, *discovery.notes, *loader.notes):
                print_line(note)
    except AgentEvalError as error:
        errors.append(error)
        problems += error.problems
    return _show(checked, problems, errors)


def _show(checked: int, problems: Sequence[Problem], errors: Sequence[AgentEvalError]) -> ExitCode:
    ordered = sorted(problems, key=lambda problem: (problem.severity != "error", str(problem.path), problem.line or 0))
    for problem in ordered[:_SHOWN]:
        style = "red" if problem.severity == "error" else "yellow"
        print_line(f"{problem.severity}: {problem}", style=style)
    if len(ordered) > _SHOWN:
        print_line(f"… and {len(ordered) - _SHOWN} more")
    for error in errors:
        if not error.problems:
            print_line(f"error: {error}", style="red", lines=True)
    bad = sum(problem.severity == "error" for problem in problems) + sum(not error.problems for error in errors)
    warned = sum(problem.severity == "warning" for problem in problems)
    counts = [f"{plural(checked, 'file')} checked"] if checked else []
    counts += [plural(bad, "error"), plural(warned, "warning")] if checked else [plural(bad, "error")]
    print_line(", ".join(counts))
    return ExitCode.USAGE if bad else ExitCode.PASS
