"""``agent-eval init``: set up the gate for a project that has an agent, with at most three questions."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

from rich.text import Text

from agent_eval_action.cli import log
from agent_eval_action.cli.log import console, print_line, terminal
from agent_eval_action.cli.session import settings_for
from agent_eval_action.config.models import Settings
from agent_eval_action.diagnostics.suggestions import plural, shortlist
from agent_eval_action.errors import ExitCode, UsageError
from agent_eval_action.folders import relative
from agent_eval_action.git.repository import Repository
from agent_eval_action.project_setup import (
    CIS,
    STARTERS,
    VERTEX_VARIABLES,
    CiName,
    ProjectSurvey,
    ProposedFile,
    StarterCases,
    capture_starter_cases,
    criteria_file,
    proposed_files,
    starter_file,
    survey_project,
)
from agent_eval_action.run.events import AgentStarting, Event, Notice
from agent_eval_action.run.loader import Loader, discover_eval_files
from agent_eval_action.run.plan import Plan, model_requirements

_NAMES_SHOWN: Final = 10
_TRIES: Final = 3

_Answer = TypeVar("_Answer")


def init_command(
    ci: str | None, named: Sequence[Path], *, yes: bool, force: bool, public: bool | None, capture: bool | None
) -> ExitCode:
    """Survey the project, write its files (or only the ``named`` ones), and capture its first cases.

    On a terminal it asks for each argument that is None, unless ``yes``. Without ``named`` it prints the next steps.
    """
    if ci is not None and ci not in CIS:
        raise UsageError(f"--ci {ci!r} is none of {', '.join(CIS)}")
    settings = settings_for({}).settings
    root = Repository(settings.start, os.environ).root()
    if root is not None and root != settings.start.resolve():
        raise UsageError("the workflow belongs in the root of the repository", hint=f"cd {shlex.quote(str(root))}")
    found = discover_eval_files(settings, may_lack=True)
    plan = Loader(settings.workspace).plan(found, 1) if found.sets else Plan(())
    judges = [required.model for required in model_requirements(plan)]
    survey = survey_project(settings, found, os.environ, judges)
    _print_survey(survey, settings)
    chosen, public, captures = _ask(survey, ci, yes=yes, public=public, capture=False if named else capture)
    files = proposed_files(survey, settings, chosen, public=public)
    if named:
        _write([_proposed_file(path, files, settings) for path in named], settings, force=force)
        return ExitCode.PASS
    _write(files, settings, force=force)
    made = _capture(survey) if captures else []
    captured = [starter.path for starter in made if starter.cases]
    criteria = {path.parent: criteria_file(path, settings.workspace) for path in captured}
    if new := [file for file in criteria.values() if file.before is None]:
        _write(new, settings, force=force)
    for starter in made:
        _print_capture(starter, settings)
    has_cases = bool(survey.eval_files or captured)
    print_line("\nNext:", lines=True)
    steps = _next_steps(survey, chosen, has_cases=has_cases, has_baseline=settings.baseline.path.exists())
    for number, step in enumerate(steps, 1):
        print_line(f"{number}. {step}", indent=2)
    return ExitCode.PASS if len(captured) == len(made) else ExitCode.INCONCLUSIVE


def _print_survey(survey: ProjectSurvey, settings: Settings) -> None:
    agents = [f"{agent.name} in {relative(agent.path, settings.workspace)}" for agent in survey.agents]
    rows: dict[str, tuple[Sequence[str], str]] = {
        "agent" if len(agents) == 1 else "agents": (agents, ""),
        "eval files": ([relative(file, settings.workspace) for file in survey.eval_files], "none yet"),
        "packages": (sorted({*survey.packages.values()}), ""),
        "model": (["Vertex AI"] if survey.vertex else [], ""),
        "secrets": (survey.secrets, "none that the code names"),
        "CI": ([CIS[name].title for name in survey.cis], "none found"),
        "workflow": (survey.gates, ""),
    }
    for what, (names, none) in rows.items():
        if text := shortlist(names, _NAMES_SHOWN) or none:
            print_line(f"{what}: {text}")
    for name, why in survey.lacking.items():
        print_line(f"warning: {name}: {why}", style="yellow")


def _ask(
    survey: ProjectSurvey, given_ci: str | None, *, yes: bool, public: bool | None, capture: bool | None
) -> tuple[CiName, bool, bool]:
    """Return the CI, whether forks send pull requests, and whether to capture cases.

    Asks at most three questions; none with ``yes`` or without a terminal.
    """
    asks = not yes and sys.stdin.isatty() and sys.stderr.isatty()
    if not asks and not yes:
        print_line("nothing is asked, for this is no terminal: the answers of --yes are taken")
    choices: dict[str, CiName] = {name: name for name in survey.cis or CIS}
    ci = next((name for name in CIS if name == given_ci), next(iter(choices.values())))
    if asks and given_ci is None and len(choices) > 1:
        ci = _question(f"Which CI is it for? {', '.join(choices)} [{ci}]", choices.get, ci)
    if ci == "github" and public is None and asks:
        public = _question("Do forks send pull requests, as to a public repository? [y/N]", _yes_or_no, default=False)
    captures = not survey.eval_files and capture is not False
    if captures and asks and capture is None:
        size = plural(len(STARTERS) * len(survey.agents), "message")
        captures = _question(f"Ask the agent {size} now, and keep its answers as cases? [Y/n]", _yes_or_no, True)
    return ci, bool(public), captures


def _question(text: str, read: Callable[[str], _Answer | None], default: _Answer) -> _Answer:
    """Ask on stderr. Returns ``default`` for an empty line, at end of input and after the third invalid answer."""
    for _ in range(_TRIES):
        print(f"{text} ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:  # Ctrl-D
            print(file=sys.stderr)
        if not line.strip():
            return default
        if (answer := read(line.strip().lower())) is not None:
            return answer
        print_line("that is no answer to it; an empty line takes the one in brackets")
    return default


def _yes_or_no(text: str) -> bool | None:
    return {"y": True, "yes": True, "n": False, "no": False}.get(text)


def _proposed_file(path: Path, files: Sequence[ProposedFile], settings: Settings) -> ProposedFile:
    wanted = Path(os.path.normpath(settings.start / path))
    found = next((file for file in files if file.path == wanted), None)
    if found is None:
        known = shortlist([relative(file.path, settings.workspace) for file in files], _NAMES_SHOWN)
        raise UsageError(f"init writes no file {path}", hint=f"it writes {known}")
    return found


def _write(files: Sequence[ProposedFile], settings: Settings, *, force: bool) -> None:
    """Write new files and print their names; for an existing file that differs, print the diff."""
    for file in files:
        if file.is_same:
            continue
        name = relative(file.path, settings.workspace)
        if file.overwrites:
            for line in file.diff(settings.workspace):
                style = {"+": "green", "-": "red"}.get(line[:1])
                console().print(Text(terminal(line, lines=True), style=style or ""), soft_wrap=True, markup=False)
        if file.overwrites and not force:
            print_line(f"kept: {name} differs as shown above; --force {shlex.quote(name)} replaces it", style="yellow")
        else:
            file.write(settings.workspace)
            word = "extended" if file.extends and file.before is not None else "replaced" if file.before else "written"
            print_line(f"{word}: {name}", style="green")
    if all(file.is_same for file in files):
        print_line("everything is there already: nothing was written")


def _capture(survey: ProjectSurvey) -> list[StarterCases]:
    settings = settings_for({}).settings  # reads the configuration just written
    configured = {agent.path: agent for agent in settings.agents}
    made = []
    for found in survey.agents:
        if starter_file(found, settings).exists():
            continue
        agent = configured.get(found.path, found)
        print_line(f"asking {found.name} {plural(len(STARTERS), 'message')} …")
        made.append(asyncio.run(capture_starter_cases(settings, agent, os.environ, _show_event, log.redaction)))
    return made


def _show_event(event: Event) -> None:
    if isinstance(event, AgentStarting):
        print_line(f"{event.agent}: {event.step}")
    elif isinstance(event, Notice) and event.level == "warning":
        print_line(f"warning: {event.text}", style="yellow")


def _print_capture(made: StarterCases, settings: Settings) -> None:
    if made.cases:
        where = relative(made.path, settings.workspace)
        print_line(f"captured: {where} with {plural(len(made.cases), 'case')}: read it", style="green")
    if made.error:
        name = made.agent.name
        print_line(made.error if made.cases else f"{name} could not be asked: {made.error}", style="yellow")
    if not made.cases:
        print_line(f"later: agent-eval capture --agent {shlex.quote(relative(made.agent.path, settings.workspace))}")


def _next_steps(survey: ProjectSurvey, name: CiName, *, has_cases: bool, has_baseline: bool) -> Iterator[str]:
    if not has_cases:
        yield "agent-eval capture: talk to the agent, and keep what is right as cases"
    if not has_baseline:
        yield "agent-eval baseline update: five runs of every case, kept in .agent-eval/baseline.json"
    yield "agent-eval run: compare with it; then commit everything"
    if survey.lacking:
        yield "give the agent a requirements.txt or uv.lock: CI installs it from there"
    lacking = [secret for secret in survey.secrets if secret not in survey.known]
    if name != "github":
        if lacking:
            yield f"give the pipeline its secrets: {shortlist(lacking, _NAMES_SHOWN)}"
        if survey.vertex:
            yield "give the pipeline credentials of Google Cloud (docs/credentials.md)"
        if (ci := CIS[name]).beside and Path(ci.beside).exists():
            yield ci.include
        return
    if lacking:
        yield f"gh secret set {lacking[0]}" + (f", and {shortlist(lacking[1:], _NAMES_SHOWN)}" if lacking[1:] else "")
    if survey.vertex:
        yield f"set the variables {', '.join(VERTEX_VARIABLES)} in the repository's settings (docs/credentials.md)"
