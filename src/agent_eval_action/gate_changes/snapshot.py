"""Snapshot of what a checkout measures its agents by: cases, criteria and rules; for the base commit read from git.

Comparing two snapshots shows a change's effect on the gate. No code of the base is run.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from pydantic import BaseModel

from agent_eval_action.baseline import accepted
from agent_eval_action.baseline.stores import FileStore
from agent_eval_action.config.criteria_files import MAX_CODE, function_files
from agent_eval_action.config.discovery import Discovery, may_be_set_id
from agent_eval_action.config.loader import resolve
from agent_eval_action.config.models import AgentSettings, FailOn, Policy, Settings
from agent_eval_action.config.options import BY_NAME
from agent_eval_action.config.types import EvalPattern
from agent_eval_action.config.walk import is_in_bucket
from agent_eval_action.diagnostics.tables import TABLE_SUFFIXES
from agent_eval_action.errors import AgentEvalError, ConfigError, ResultsError
from agent_eval_action.folders import relative
from agent_eval_action.formats.selectors import parse_selector
from agent_eval_action.git.base_commit import Event
from agent_eval_action.git.repository import Repository, export_tree
from agent_eval_action.results.base import CaseKey, text_digest
from agent_eval_action.results.case_matching import CaseIdentity
from agent_eval_action.results.decision import CallBrief
from agent_eval_action.results.evalset import DatasetCase, EvalCase, Rubric
from agent_eval_action.results.history import Accepted, Record
from agent_eval_action.results.run_result import CriterionInfo, RunResult
from agent_eval_action.run.base_agents import BaseCommit, BaseUnavailable, find_base
from agent_eval_action.run.collector import excerpt_call
from agent_eval_action.run.loader import Loader, discover_eval_files
from agent_eval_action.run.plan import Plan, PlannedCase, PlannedSet

_TEXTS: Final = frozenset({".json", ".yaml", ".yml", *TABLE_SUFFIXES})
_AGENTS: Final = frozenset({"agent.py", "__init__.py", "agent.go"})
"""Discovery reads these files, or checks that they exist, to tell agents from other packages."""
_MAX_BYTES: Final = 64 << 20
_IN_TURNS: Final = {"prompt", "reference"}
"""What metrics read beside a conversation and its turns have already."""
_FILES_OF_INPUTS: Final = ("config", "criteria", "user_simulator")
"""Options that name an existing file; if the base commit lacks it, the file is the change's own."""


@dataclass(frozen=True, slots=True)
class TurnSnapshot:
    """One turn's question and expectations. ``asked``: the message or its digest; ``response``: "" if none."""

    asked: str
    calls: tuple[CallBrief, ...] = ()
    response: str = ""
    rubrics: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CaseSnapshot:
    """One case. ``turns``: None if only the digest is known.

    ``setting`` and ``rest`` are digests: of how the session begins and ends, or of the scenario; and of what only
    datasets and replays have. ``recorded``: its turns are scored as they stand, and no agent is asked.
    """

    key: CaseKey
    digest: str
    turns: tuple[TurnSnapshot, ...] | None = None
    rubrics: frozenset[str] = frozenset()
    setting: str = ""
    rest: str = ""
    recorded: bool = False


@dataclass(frozen=True, slots=True)
class SetSnapshot:
    """One eval set for one agent. ``path`` is relative to the workspace."""

    agent: str
    eval_set: str
    path: str
    criteria: tuple[CriterionInfo, ...] = ()
    cases: tuple[CaseSnapshot, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that judges a run. ``policy``: None if unknown; ``policy_file`` names its file.

    ``baseline``: the committed baseline, None if there is none that can be read.
    """

    sets: tuple[SetSnapshot, ...] = ()
    policy: Policy | None = None
    policy_file: str = "agent-eval.yaml"
    fail_on: FailOn = "inconclusive"
    repeats: int = 1
    accepted: tuple[Accepted, ...] = field(default=())
    baseline: Record | None = None


def case_identities(sets: Iterable[SetSnapshot | PlannedSet]) -> Iterator[CaseIdentity]:
    """The cases of these sets, in the form for matching them with another checkout's."""
    for item in sets:
        if isinstance(item, PlannedSet):
            infos, cases = item.infos, [(item.case_key(case), case.digest) for case in item.cases]
        else:
            infos, cases = item.criteria, [(case.key, case.digest) for case in item.cases]
        criteria = frozenset(info.digest for info in infos)
        yield from (CaseIdentity(key, digest, criteria) for key, digest in cases)


def sets_of_result(result: RunResult) -> tuple[SetSnapshot, ...]:
    """The sets of a finished run, as far as results.json keeps their expectations."""
    found = []
    for measured in result.sets:
        cases = tuple(
            CaseSnapshot(
                key=key,
                digest=case.digest,
                turns=tuple(TurnSnapshot(turn.user, turn.calls, turn.response) for turn in case.expected) or None,
            )
            for key, case in measured.keyed_cases()
        )
        found.append(SetSnapshot(measured.agent, measured.eval_set, measured.path, measured.criteria, cases))
    return tuple(found)


def _case(key: CaseKey, item: PlannedCase) -> CaseSnapshot:
    case = item.case
    setting = case.model_dump(
        include={"conversation_scenario", "session_input", "final_session_state"}, exclude_none=True
    )
    own = set(type(case).model_fields.keys() - EvalCase.model_fields.keys())
    rest = case.model_dump(mode="json", include=own, exclude={"metric_fields": _IN_TURNS})
    turns = tuple(
        TurnSnapshot(
            asked=text_digest(repr(turn.user_content.model_dump(exclude_none=True, exclude={"role"}))),
            calls=tuple(map(excerpt_call, turn.tool_calls())),
            response=turn.response_text,
            rubrics=_rubrics(turn.rubrics),
        )
        for turn in case.turns
    )
    return CaseSnapshot(
        key,
        item.digest,
        turns,
        _rubrics(case.rubrics),
        setting=text_digest(repr(sorted(setting.items()))),
        rest=text_digest(json.dumps(rest, sort_keys=True)) if any(rest.values()) else "",
        recorded=isinstance(case, DatasetCase) and bool(case.recorded),
    )


def _rubrics(rubrics: Iterable[Rubric] | None) -> frozenset[str]:
    return frozenset(rubric.rubric_content.text_property or rubric.rubric_id for rubric in rubrics or ())


# --- a checkout, and the base commit's -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommandContext:
    """This run's command, which also selects what to read of the base. ``flags`` as for ``resolve``.

    ``selectors`` name the files of this run. ``base``: the commit whose rules and cases a change is compared with, None
    if unknown. If ``event`` belongs to a change, the base's rules apply.
    """

    flags: Mapping[str, Any]
    environ: Mapping[str, str]
    cwd: Path
    base: str | None = None
    event: Event = field(default_factory=Event)
    selectors: Sequence[str] = ()

    def suite(self, settings: Settings, here: Path, there: Path, *, may_lack: bool = False) -> Discovery:
        """Every discovered eval file, and those that only the selectors lead to. Raises what discovery raises.

        Selected files below ``here`` are looked for below ``there``, with all their cases.
        """
        cwd = Path.cwd()
        paths = [str(parse_selector(text).path) for text in self.selectors]
        named = tuple(
            path
            if is_in_bucket(path) or may_be_set_id(path, cwd)
            else str(_relocate(Path(os.path.normpath(cwd / path)), here, there))
            for path in paths
        )
        found = discover_eval_files(settings, may_lack=may_lack or bool(named))
        if not named:
            return found
        known = {(eval_set.agent.name, eval_set.path) for eval_set in found.sets}
        more = discover_eval_files(settings, named, may_lack=may_lack).sets
        return replace(found, sets=(*found.sets, *(item for item in more if (item.agent.name, item.path) not in known)))

    @property
    def fail_on(self) -> FailOn:
        """``fail_on`` by flags and inputs only, for when no configuration file can be trusted."""
        flags = {name: value for name, value in self.flags.items() if name == "fail_on"}
        environ = {name: self.environ[name] for name in BY_NAME["fail_on"].variables if name in self.environ}
        return resolve(flags=flags, environ=environ, cwd=self.cwd, files=False).settings.fail_on


@dataclass(frozen=True, slots=True)
class BaseSnapshot:
    """The base commit's side. Paths in ``settings`` and ``agents`` are in the change's workspace.

    ``sets`` have criteria and simulated users, but no cases. ``chosen_agents_lack``: the run selects agents that the
    base lacks, so ``sets`` cover all its agents. ``scoring_files``: its criteria files and the code of their functions,
    relative to the workspace.
    """

    source: BaseCommit
    settings: Settings
    snapshot: Snapshot
    sets: tuple[PlannedSet, ...] = ()
    agents: tuple[AgentSettings, ...] = ()
    notes: tuple[str, ...] = ()
    chosen_agents_lack: bool = False
    scoring_files: tuple[str, ...] = ()

    @property
    def eval_files(self) -> tuple[str, ...]:
        """Its eval files, relative to the workspace."""
        return tuple(dict.fromkeys(item.path for item in self.snapshot.sets))


def take_snapshot(settings: Settings, context: CommandContext, plan: Plan | None = None) -> Snapshot:
    """The snapshot of the whole checkout, even if the run is narrowed. Raises what loading raises.

    ``plan``: the whole suite's, if already made.
    """
    if plan is not None:
        return _snapshot(settings, plan.sets)
    found = context.suite(settings, settings.workspace, settings.workspace)
    sets, _ = _load(settings, found, "this change")  # what this run leaves out may be unreadable
    return _snapshot(settings, sets)


def _snapshot(settings: Settings, sets: Iterable[PlannedSet]) -> Snapshot:
    accept_file = settings.workspace / accepted.ACCEPT
    try:
        baseline = FileStore(settings.baseline.path, settings.workspace).read()
    except ResultsError:  # nothing can be compared with an unreadable file
        baseline = None
    return Snapshot(
        sets=tuple(
            SetSnapshot(
                planned.agent,
                planned.key,
                planned.path,
                planned.infos,
                tuple(_case(planned.case_key(item), item) for item in planned.cases),
            )
            for planned in sets
        ),
        policy=settings.policy,
        policy_file=relative(settings.config, settings.workspace) if settings.config else "agent-eval.yaml",
        fail_on=settings.fail_on,
        repeats=settings.repeats,
        accepted=tuple(accepted.read(accept_file, workspace=settings.workspace)),
        baseline=baseline,
    )


def read_base(settings: Settings, context: CommandContext) -> BaseSnapshot | BaseUnavailable:
    """The base commit's side of the comparison, or why it cannot be read."""
    found = find_base(settings, context.base, context.environ, context.event.clone_hint.format(2))
    if isinstance(found, BaseUnavailable):
        return found
    short = found.commit[:10]
    try:
        with tempfile.TemporaryDirectory(prefix="agent-eval-base-") as name, found.open_repository() as repository:
            root = Path(name).resolve()
            wanted = _wanted(repository, found.commit)
            export_tree(repository, found.commit, root, wanted=wanted)
            folder = root / found.inner if found.inner else root
            folder.mkdir(parents=True, exist_ok=True)  # a commit without this folder has only default rules
            if not context.event.is_change:
                return _read_checkout(found, folder, context)
            unknown = []
            for path, commit, submodule in found.submodules(repository):
                if submodule.commit(commit) is not None:
                    export_tree(submodule, commit, root / path, wanted=wanted)
                else:
                    why = f"its commit {commit[:10]} is not here"
                    unknown.append(f"what the change does in the submodule {path} is not known: {why}")
            beyond_git = _copy_beyond_git(found, repository.submodules(found.commit), folder, context)
            read = _read_checkout(found, folder, context, beyond_git)
            return replace(read, notes=(*unknown, *read.notes)) if isinstance(read, BaseSnapshot) else read
    except (OSError, ValueError) as error:
        return BaseUnavailable(f"the files of the base commit {short} cannot be had: {error}", found.commit)


def _wanted(repository: Repository, commit: str) -> Callable[[str, int], bool]:
    """Which files to write: those that hold settings, cases and agents, and code if a criteria file names some."""
    named = [
        file.oid
        for file in repository.all_files(commit)
        if (file.size or 0) <= MAX_CODE and file.name.endswith((".yaml", ".yml", "eval_config.json"))
    ]
    code = any(b"custom_function_file" in content for content in repository.blobs(named).values())

    def is_read(path: str, size: int) -> bool:
        name = PurePosixPath(path)
        text = size <= _MAX_BYTES and (name.suffix.lower() in _TEXTS or name.name in _AGENTS)
        return text or (code and size <= MAX_CODE and name.suffix == ".py")

    return is_read


def _copy_beyond_git(
    base: BaseCommit, submodules: Mapping[str, str], folder: Path, context: CommandContext
) -> frozenset[str]:
    """Copy the eval files that are not in git, with their criteria, and return their names in the workspace.

    A step of the job has written them, or they are in a submodule of which only the change's commit is here. The change
    does not add them, so they count as main's as well.
    """
    settings = base.settings
    here, prefix = settings.workspace, f"{base.inner}/" if base.inner else ""
    repository = Repository(here, context.environ)
    head, indexed = repository.resolve("HEAD"), repository.indexed()
    try:
        found = context.suite(settings, here, here)
    except AgentEvalError:  # raised again when the run reads them
        return frozenset()
    if head is None or indexed is None:
        return frozenset()
    added = tuple(f"{path}/" for path in repository.submodules(head).keys() - submodules.keys())
    copied: set[str] = set()
    for eval_set in found.sets:
        for file in filter(None, (eval_set.path, eval_set.criteria_file, eval_set.session_file)):
            name = file.relative_to(here).as_posix() if file.is_relative_to(here) else ""
            target = folder / name
            if not name or name in indexed or f"{prefix}{name}".startswith(added) or os.path.lexists(target):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
            copied.add(name)
    return frozenset(copied)


def _read_checkout(
    base: BaseCommit, root: Path, context: CommandContext, beyond_git: Collection[str] = ()
) -> BaseSnapshot | BaseUnavailable:
    here, short = base.settings.workspace, base.commit[:10]
    try:
        there, lack = _settings(here, root, context)
        discovery = context.suite(there, here, root, may_lack=True)
        sets, notes = _load(there, discovery, short)
        snapshot = _without_copies(_snapshot(there, sets), beyond_git)
    except AgentEvalError as error:
        problem = f" ({error.problems[0].message})" if error.problems else ""
        why = f"{error.message}{problem}".replace(f"{root}/", "")
        return BaseUnavailable(
            f"the configuration of the base commit {short} cannot be used: {why} (repair it on the base branch first)",
            base.commit,
        )
    agents = {found.agent.name: found.agent for found in discovery.sets}
    agents |= {agent.name: agent for agent in there.agents}
    named = (path for found in discovery.sets for path in (found.criteria_file, found.agent.criteria))
    criteria = {path for path in named if isinstance(path, Path)}
    files = {file for path in criteria for file in (path, *function_files(path, there.workspace))}
    return BaseSnapshot(
        source=base,
        settings=_relocate(there, root, here),
        snapshot=snapshot,
        sets=tuple(replace(planned, cases=()) for planned in sets),
        agents=tuple(_relocate(agent, root, here) for agent in agents.values()),
        notes=tuple(notes),
        chosen_agents_lack=lack,
        scoring_files=tuple(
            sorted(relative(file, there.workspace) for file in files if file.is_relative_to(there.workspace))
        ),
    )


def _without_copies(snapshot: Snapshot, beyond_git: Collection[str]) -> Snapshot:
    """The snapshot without cases of untracked files that a committed file has too.

    Such cases belong to the commit, even if they moved, and are judged as they were there.
    """
    committed = {
        (item.agent, case.digest) for item in snapshot.sets if item.path not in beyond_git for case in item.cases
    }
    sets = []
    for item in snapshot.sets:
        cases = item.cases
        if item.path in beyond_git:
            cases = tuple(case for case in cases if (item.agent, case.digest) not in committed)
        sets.append(replace(item, cases=cases))
    return replace(snapshot, sets=tuple(sets))


def _settings(here: Path, root: Path, context: CommandContext) -> tuple[Settings, bool]:
    """The command's settings in the base's tree, and whether they select agents that it lacks.

    Paths into the workspace are mapped into the base's tree.
    """
    old, new = str(here), str(root)

    def moved(value: Any) -> Any:
        if isinstance(value, Path | str) and Path(value).is_absolute() and Path(value).is_relative_to(old):
            return str(root / Path(value).relative_to(old))
        return [moved(item) for item in value] if isinstance(value, list | tuple) else value

    flags = {name: moved(value) for name, value in context.flags.items()}
    environ = {name: moved(value) if name.startswith("INPUT_") else value for name, value in context.environ.items()}
    inside = context.cwd.resolve()
    cwd = root / inside.relative_to(old) if inside.is_relative_to(old) else root
    cwd = cwd if cwd.is_dir() else root
    environ["GITHUB_WORKSPACE"] = new
    for name in _FILES_OF_INPUTS:
        if flags.get(name) and not (cwd / str(flags[name])).is_file():
            del flags[name]
        for variable in BY_NAME[name].variables:
            text = environ.get(variable, "").strip()
            if text and "\n" not in text and not text.startswith("{") and not (root / text).is_file():
                del environ[variable]
    found = resolve(flags=flags, environ=environ, cwd=cwd, may_lack=True).settings
    chosen = [name for name in ("agent", *BY_NAME["agent"].variables) if flags.pop(name, None) or environ.pop(name, "")]
    if not chosen or found.only_agents:
        return found, False
    return resolve(flags=flags, environ=environ, cwd=cwd, may_lack=True).settings, True


def _load(there: Settings, discovery: Discovery, commit: str) -> tuple[list[PlannedSet], list[str]]:
    """Every set of the base, and notes about unreadable eval files.

    Raises ConfigError if criteria cannot be used.
    """
    sets: list[PlannedSet] = []
    notes: list[str] = []
    for found in discovery.sets:
        loader = Loader(there.workspace)
        planned = loader.planned_set(found)
        if planned is None and not loader.config_problems:
            path, problem = relative(found.path, there.workspace), loader.eval_problems[0].message
            notes.append(f"what the change does to {path} is not known, {commit} has it unreadable: {problem}")
            planned = Loader(there.workspace).planned_set(found, without_cases=True)
        if planned is None:
            raise ConfigError("the criteria cannot be used", problems=loader.config_problems)
        sets.append(planned)
    return sets, notes


def _relocate(value: Any, old: Path, new: Path) -> Any:
    """The value with every path below ``old`` moved to the same place below ``new``."""
    if isinstance(value, Path):
        return new / value.relative_to(old) if value.is_relative_to(old) else value
    if isinstance(value, EvalPattern):
        origin = value.origin
        moved = replace(origin, base=_relocate(origin.base, old, new), path=_relocate(origin.path, old, new))
        return replace(value, origin=moved)
    if isinstance(value, BaseModel):
        fields = {name: _relocate(getattr(value, name), old, new) for name in type(value).model_fields}
        return value.model_copy(update=fields)
    if isinstance(value, dict):
        return {key: _relocate(item, old, new) for key, item in value.items()}
    return tuple(_relocate(item, old, new) for item in value) if isinstance(value, tuple) else value
