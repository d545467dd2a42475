"""From discovered files to the plan: eval sets read, cases selected, criteria built, all problems at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Final

from agent_eval_action import criteria
from agent_eval_action.config.criteria import DEFAULT_CRITERIA, CriterionSpec, UserSimulatorConfig, load_criteria_file
from agent_eval_action.config.discovery import DiscoveredSet as FoundSet
from agent_eval_action.config.discovery import Discovery
from agent_eval_action.config.loader import resolve
from agent_eval_action.criteria.base import Criterion
from agent_eval_action.diagnostics.reader import JsonPath, Source
from agent_eval_action.errors import AgentEvalError, ConfigError, EvalFileError, Problem, UsageError
from agent_eval_action.folders import real_path
from agent_eval_action.formats import load_eval_file, match_cases, select_cases
from agent_eval_action.results.evalset import EVAL_SUFFIXES, EvalCase, EvalSet
from agent_eval_action.results.run_result import CriterionInfo, collector_paused
from agent_eval_action.run.applicable import nothing_to_measure, refused_users, skipped
from agent_eval_action.run.plan import Plan, PlannedCase, PlannedSet
from agent_eval_action.run.resources import planned_digest

_PACKED_ABOVE: Final = 10_000
"""Cases of a plan. Fewer fit into memory as they are, and are scored a little faster."""


@dataclass(frozen=True, slots=True)
class _Built:
    """Criteria as configured in one place, and the simulated user written there."""

    criteria: tuple[Criterion, ...]
    infos: tuple[CriterionInfo, ...]
    simulator: UserSimulatorConfig | None = None


@dataclass
class Loader:
    """Reads what a run needs. Problems, warnings and notes grow; nothing is raised before every file was seen."""

    workspace: Path
    patterns: Sequence[str] = ()
    eval_problems: list[Problem] = field(default_factory=list)
    config_problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _built: dict[Path | tuple[tuple[Path | None, JsonPath], ...] | None, _Built | None] = field(default_factory=dict)

    def plan(self, found: Discovery, repeats: int) -> Plan:
        """The plan over every discovered set. Raises with all problems of all files."""
        sets = [planned for item in found.sets if (planned := self.planned_set(item)) is not None]
        if self.config_problems:
            raise ConfigError("the criteria cannot be used", problems=(*self.config_problems, *self.eval_problems))
        if self.eval_problems:
            raise EvalFileError("the eval files cannot be used", problems=self.eval_problems)
        if not self.patterns and not any(item.case_ids for item in found.sets):
            self._fit(sets)
        kept = [planned for planned in sets if planned.cases]
        if unmeasured := nothing_to_measure(kept, self.workspace):
            raise EvalFileError("there is nothing to measure", problems=unmeasured)
        self.notes += skipped(kept)
        if not kept and self.patterns:
            raise UsageError(f"no case matches {', '.join(self.patterns)}", hint="--case takes shell-style patterns")
        if not kept:
            raise EvalFileError("there is nothing to measure: no eval file holds a case")
        many = sum(len(planned.cases) for planned in kept) > _PACKED_ABOVE
        return Plan(_packed(sets, kept) if many else tuple(kept), repeats)

    def _fit(self, sets: Sequence[PlannedSet]) -> None:
        """Raise ConfigError for options that fit no case of all the sets that share their configuration."""
        cases: dict[int, list[Iterable[EvalCase]]] = {}
        built: dict[int, tuple[Criterion, CriterionInfo]] = {}
        for one in sets:
            for pair in zip(one.criteria, one.infos, strict=True):
                built[id(pair[0])] = pair
                cases.setdefault(id(pair[0]), []).append(item.case for item in one.cases)
        problems = [
            Problem(Path(info.source or "criteria"), f"{criterion.name}: {why}")
            for name, (criterion, info) in built.items()
            if (why := criterion.check_cases(chain.from_iterable(cases[name])))
        ]
        if problems:
            raise ConfigError("the criteria cannot be used", problems=problems)

    def planned_set(self, found: FoundSet) -> PlannedSet | None:
        """One set; None, with the problems added to this loader's, where its files cannot be used."""
        built = self._criteria(found)
        eval_set = self._eval_set(found)
        if eval_set is None or built is None:
            return None
        path = relative(found.path, self.workspace)
        simulator = found.agent.user_simulator or built.simulator or UserSimulatorConfig()
        self.config_problems += refused_users(eval_set, simulator, found)
        self.eval_problems += unscorable_cases(eval_set.eval_cases, built.criteria, found.path)
        if self.config_problems or self.eval_problems:
            return None
        cases = tuple(PlannedCase.of(case, planned_digest(case, simulator)) for case in eval_set.eval_cases)
        return PlannedSet(found.agent.name, found.key, path, cases, built.criteria, built.infos, simulator)

    def set_without_cases(self, found: FoundSet) -> PlannedSet:
        """What a set is scored by, whatever is wrong with its eval file. Raises ConfigError."""
        built = self._criteria(found)
        if built is None:
            raise ConfigError("the criteria cannot be used", problems=self.config_problems)
        simulator = found.agent.user_simulator or built.simulator or UserSimulatorConfig()
        path = relative(found.path, self.workspace)
        return PlannedSet(found.agent.name, found.key, path, (), built.criteria, built.infos, simulator)

    def _eval_set(self, found: FoundSet) -> EvalSet | None:
        try:
            loaded = load_eval_file(found.path, workspace=self.workspace, session_file=found.session_file)
            self.warnings.extend(loaded.warnings)
            eval_set = loaded.eval_set
            if found.case_ids:
                eval_set = select_cases(eval_set, found.case_ids)
            if self.patterns:
                eval_set = self._matching(eval_set)
        except EvalFileError as error:
            self.eval_problems.extend(error.problems or (Problem(found.path, error.message, hint=error.hint),))
            return None
        return eval_set

    def _matching(self, eval_set: EvalSet) -> EvalSet:
        """The cases that any pattern matches."""
        matched = {case.eval_id for one in self.patterns for case in match_cases(eval_set, one).eval_cases}
        cases = tuple(case for case in eval_set.eval_cases if case.eval_id in matched)
        return eval_set.model_copy(update={"eval_cases": cases})

    def _criteria(self, found: FoundSet) -> _Built | None:
        """Criteria of a set, built once per file or inline mapping."""
        source = found.agent.criteria if isinstance(found.agent.criteria, tuple) else found.criteria_file
        # Entries written in agent-eval.yaml hold dicts; where they stand names them.
        key = tuple((spec.path, spec.at) for spec in source) if isinstance(source, tuple) else source
        if key not in self._built:
            self._built[key] = self._build(source)
        return self._built[key]

    def _build(self, source: Path | tuple[CriterionSpec, ...] | None) -> _Built | None:
        specs: tuple[CriterionSpec, ...]
        simulator = None
        try:
            if source is None:
                specs, where = DEFAULT_CRITERIA, "default"
            elif isinstance(source, tuple):
                specs, where = source, _origin(source, self.workspace)
            else:
                config = load_criteria_file(source, workspace=self.workspace)
                self.warnings.extend(config.warnings)
                specs, where = config.specs, relative(source, self.workspace)
                simulator = config.user_simulator_config
            built = criteria.build(specs)
        except ConfigError as error:
            self.config_problems.extend(error.problems or (Problem(self.workspace, error.message, hint=error.hint),))
            return None
        lines = {spec.name: spec.line for spec in specs}
        infos = (criteria.criterion_info(criterion, where, lines.get(criterion.name)) for criterion in built)
        return _Built(built, tuple(infos), simulator)


@collector_paused()
def _packed(sets: list[PlannedSet], kept: list[PlannedSet]) -> tuple[PlannedSet, ...]:
    """The sets to run, with their cases packed one set after the other: both lists are emptied meanwhile."""
    sets.clear()
    kept.reverse()
    found = []
    while kept:
        planned = kept.pop()
        found.append(replace(planned, cases=tuple(item.packed() for item in planned.cases)))
    return tuple(found)


def unscorable_cases(cases: Iterable[EvalCase], criteria: Sequence[Criterion], path: Path) -> list[Problem]:
    """Cases that a criterion could never score, whatever the agent does: better known before it is asked."""
    return [
        Problem(path, f"{case.eval_id}: {criterion.name}: {why}", line=case.line)
        for case in cases
        for criterion in criteria
        if (why := criterion.check(case))
    ]


def _origin(specs: tuple[CriterionSpec, ...], workspace: Path) -> str:
    path = specs[0].path if specs else None
    return relative(path, workspace) if path else "configuration"


def relative(path: Path, workspace: Path) -> str:
    """A path as outputs show it: from the workspace where it is inside, with forward slashes."""
    return path.relative_to(workspace).as_posix() if path.is_relative_to(workspace) else path.as_posix()


_CONFIGS = ("agent-eval.yaml", "agent-eval.yml")
_CRITERIA = ("test_config.json", "eval_config.json")
_SKIPPED = frozenset({".git", ".venv", "venv", "node_modules", "__pycache__", ".agent-eval"})


def validate_paths(paths: Sequence[Path], workspace: Path) -> tuple[int, list[Problem]]:
    """How many files were looked at, and every problem and warning in them.

    In a folder these are found by name; a file named itself is checked whatever its name. Raises
    UsageError for a path that is not there.
    """
    problems: list[Problem] = []
    files = [file for path in paths for file in _files(path)]
    for file in files:
        problems += _check(file, workspace if real_path(file).is_relative_to(workspace) else file.parent)
    if not files:
        raise UsageError("there is no eval file or configuration in " + ", ".join(map(str, paths)))
    return len(files), problems


def _files(path: Path) -> Iterator[Path]:
    if not os.path.lexists(path):
        raise UsageError(f"there is no file or folder {path}")
    if not path.is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        for name in sorted(names):
            if name.endswith(EVAL_SUFFIXES) or name in {*_CONFIGS, *_CRITERIA}:
                yield Path(folder) / name


def _holds_criteria(file: Path, workspace: Path) -> bool:
    value = Source.read(file, workspace=workspace, error=EvalFileError).value
    return file.name in _CRITERIA or (isinstance(value, dict) and "criteria" in value and "eval_cases" not in value)


def _check(file: Path, workspace: Path) -> Sequence[Problem]:
    try:
        if file.suffix in {".yaml", ".yml"}:
            return resolve(flags={"config": str(file)}, environ={}, cwd=Path.cwd()).warnings
        if _holds_criteria(file, workspace):
            config = load_criteria_file(file, workspace=workspace)
            criteria.build(config.specs)
            return config.warnings
        return load_eval_file(file, workspace=workspace).warnings
    except AgentEvalError as error:
        return error.problems or (Problem(file, error.message, hint=error.hint),)
