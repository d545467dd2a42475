"""From discovered files to a plan: read eval sets, select cases, build criteria, report all problems together."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent_eval_action import criteria
from agent_eval_action.agents.simulator import reason_not_playable
from agent_eval_action.baseline.accepted import KnownNames
from agent_eval_action.config.criteria import DEFAULT_CRITERIA, REPLAY_CRITERIA, CriterionSpec, UserSimulatorConfig
from agent_eval_action.config.criteria_files import METRICS_SUFFIX, load_criteria_file
from agent_eval_action.config.discovery import (
    CRITERIA_FILE,
    EVAL_CONFIGS,
    REPLAYING,
    DiscoveredSet,
    Discovery,
    column_mappings,
    discover,
)
from agent_eval_action.config.loader import CONFIG_NAMES, resolve
from agent_eval_action.config.models import Settings
from agent_eval_action.config.walk import is_eval_file
from agent_eval_action.criteria.base import Criterion
from agent_eval_action.diagnostics.reader import JsonPath, Source, did_you_mean
from agent_eval_action.diagnostics.suggestions import plural, shortlist
from agent_eval_action.diagnostics.tables import is_table
from agent_eval_action.errors import AgentEvalError, ConfigError, EvalFileError, Problem, UsageError
from agent_eval_action.folders import real_path, relative
from agent_eval_action.formats import load_eval_file, match_cases, parse_selector, select_cases
from agent_eval_action.results.evalset import ColumnMapping, EvalCase, EvalSet, ReplayCase, is_replayed
from agent_eval_action.results.run_result import CriterionInfo
from agent_eval_action.run.plan import Plan, PlannedCase, PlannedSet, applies, planned_digest

_NAMES_SHOWN: Final = 3
_MANY: Final = 5_000


@dataclass(frozen=True, slots=True)
class _BuiltCriteria:
    """The criteria configured in one place, and the simulated user configured there."""

    criteria: tuple[Criterion, ...]
    infos: tuple[CriterionInfo, ...]
    simulator: UserSimulatorConfig | None = None


@dataclass
class Loader:
    """Reads a run's inputs, collecting problems, warnings and notes. Every file is read before anything is raised."""

    workspace: Path
    patterns: Sequence[str] = ()
    eval_problems: list[Problem] = field(default_factory=list)
    config_problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _unmatched: set[str] = field(default_factory=set)
    _built: dict[tuple[Path | tuple[tuple[Path | None, JsonPath], ...] | None, bool], _BuiltCriteria | None] = field(
        default_factory=dict
    )

    def plan(self, found: Discovery, repeats: int) -> Plan:
        """Return the plan of every discovered set. Raises with all problems of all files."""
        sets = [planned for item in found.sets if (planned := self.planned_set(item)) is not None]
        if self.config_problems:
            raise ConfigError("the criteria cannot be used", problems=(*self.config_problems, *self.eval_problems))
        if self.eval_problems:
            raise EvalFileError("the eval files cannot be used", problems=self.eval_problems)
        if not self.patterns and not any(item.case_ids for item in found.sets):
            self._check_options(sets)
        with_cases = [planned for planned in sets if planned.cases]
        self.notes += self._check_applicable(with_cases)
        if not with_cases and self.patterns:
            hints = (did_you_mean(part, self._unmatched) for text in self.patterns for part in text.split(","))
            hint = next(filter(None, hints), "--case takes shell-style patterns")
            raise UsageError(f"no case matches {', '.join(self.patterns)}", hint=hint)
        if not with_cases:
            raise EvalFileError("there is nothing to measure: no eval file holds a case")
        plan = Plan(tuple(with_cases), repeats)
        if plan.cases > _MANY:
            _return_memory()
        return plan

    def _check_options(self, sets: Sequence[PlannedSet]) -> None:
        """Raise ConfigError for options that fit no case of the sets that share them."""
        shared: dict[int, tuple[Criterion, CriterionInfo, list[EvalCase]]] = {}
        for planned in sets:
            for criterion, info in zip(planned.criteria, planned.infos, strict=True):
                cases = shared.setdefault(id(criterion), (criterion, info, []))[2]
                cases += (item.case for item in planned.cases)
        problems = [
            Problem(Path(info.source or "criteria"), f"{criterion.name}: {why}")
            for criterion, info, cases in shared.values()
            if (why := criterion.check_cases(cases))
        ]
        if problems:
            raise ConfigError("the criteria cannot be used", problems=problems)

    def _check_applicable(self, sets: Sequence[PlannedSet]) -> Iterator[str]:
        """Yield a sentence per criterion that leaves cases out, and one for cases that no criterion scores.

        Raises EvalFileError with each set whose cases none of its criteria can score.
        """
        left_out: Counter[str] = Counter()
        unscored: list[str] = []
        problems: list[Problem] = []
        for planned in sets:
            unscored_before = len(unscored)
            for item in planned.cases:
                inapplicable = [criterion.name for criterion in planned.criteria if not applies(criterion, item.case)]
                left_out.update(inapplicable)
                if len(inapplicable) == len(planned.criteria):
                    unscored.append(f"{planned.key}:{item.case.eval_id}")
            if len(unscored) - unscored_before == len(planned.cases):
                problems.append(self._unscorable_set(planned))
        if problems:
            raise EvalFileError("there is nothing to measure", problems=problems)
        for name, count in left_out.items():
            yield f"{name} is not applicable to {plural(count, 'case')}, and skipped there"
        if unscored:
            yield f"run, and scored by no criterion: {shortlist(unscored, _NAMES_SHOWN)}"

    def _unscorable_set(self, planned: PlannedSet) -> Problem:
        names = ", ".join(info.name for info in planned.infos)
        why, hint = "its cases have a fixed conversation", "add a criterion that scores the agent's answers"
        if all(item.case.conversation is None for item in planned.cases):
            why = "the users of its cases are simulated"
            hint = (
                "criteria without a reference apply, for example rubric_based_final_response_quality_v1, "
                "hallucinations_v1, per_turn_user_simulator_quality_v1"
            )
        message = f"none of its criteria ({names}) can score any of its cases: {why}"
        return Problem(self.workspace / planned.path, message, hint=hint)

    def planned_set(self, found: DiscoveredSet, *, without_cases: bool = False) -> PlannedSet | None:
        """Return one set; None if its files cannot be used, with the problems added to the loader's.

        ``without_cases``: load only the criteria, whatever is wrong with the eval file.
        """
        eval_set = EvalSet(eval_set_id="", eval_cases=()) if without_cases else self._eval_set(found)
        cases_replay = eval_set is not None and any(isinstance(case, ReplayCase) for case in eval_set.eval_cases)
        replays = cases_replay or (without_cases and is_replayed(found.path))
        if cases_replay and found.agent.driver not in REPLAYING:
            why = f"it replays answers of models, which the driver {found.agent.driver} of {found.agent.name} cannot"
            self.eval_problems.append(Problem(found.path, why, hint="name the files that it is to run under evals"))
        built = self._criteria(found, replays=replays)
        if eval_set is None or built is None:
            return None
        simulator = found.agent.user_simulator or built.simulator or UserSimulatorConfig()
        self.config_problems += _unplayable_users(eval_set, simulator, found.path)
        self.eval_problems += unscorable_cases(eval_set.eval_cases, built.criteria, found.path)
        if self.config_problems or self.eval_problems:
            return None
        cases = tuple(PlannedCase(case, planned_digest(case, simulator)) for case in eval_set.eval_cases)
        path = relative(found.path, self.workspace)
        return PlannedSet(found.agent.name, found.key, path, cases, built.criteria, built.infos, simulator)

    def _eval_set(self, found: DiscoveredSet) -> EvalSet | None:
        try:
            loaded = load_eval_file(
                found.path, workspace=self.workspace, session_file=found.session_file, columns=found.columns
            )
            self.warnings.extend(loaded.warnings)
            eval_set = loaded.eval_set
            if found.case_ids:
                eval_set = select_cases(eval_set, found.case_ids, found.path)
            if self.patterns:
                matched = {case.eval_id for text in self.patterns for case in match_cases(eval_set, text).eval_cases}
                cases = tuple(case for case in eval_set.eval_cases if case.eval_id in matched)
                if not cases:
                    self._unmatched |= {case.eval_id for case in eval_set.eval_cases}
                eval_set = eval_set.model_copy(update={"eval_cases": cases})
        except EvalFileError as error:
            self.eval_problems.extend(error.problems or (Problem(found.path, error.message, hint=error.hint),))
            return None
        return eval_set

    def _criteria(self, found: DiscoveredSet, *, replays: bool) -> _BuiltCriteria | None:
        """Return the criteria of a set, built once per file or inline mapping.

        The agent's criteria score what its models say; a recording is scored by its events, and by the file beside it.
        """
        source = found.agent.criteria if isinstance(found.agent.criteria, tuple) else found.criteria_file
        if replays:
            beside = found.path.with_name(CRITERIA_FILE)
            source = beside if beside.is_file() else None
        # entries in agent-eval.yaml hold dicts, which are not hashable, so their place in the file is the key
        place = tuple((spec.path, spec.at) for spec in source) if isinstance(source, tuple) else source
        key = place, replays
        if key not in self._built:
            try:
                self._built[key] = self._build(source, REPLAY_CRITERIA if replays else ())
            except ConfigError as error:
                problems = error.problems or (Problem(self.workspace, error.message, hint=error.hint),)
                self.config_problems.extend(problems)
                self._built[key] = None
        return self._built[key]

    def _build(
        self, source: Path | tuple[CriterionSpec, ...] | None, always: tuple[CriterionSpec, ...]
    ) -> _BuiltCriteria:
        """``always``: criteria to add unless the source has one of the same name."""
        specs: tuple[CriterionSpec, ...] = () if always else DEFAULT_CRITERIA
        where, simulator = "recording" if always else "default", None
        if isinstance(source, tuple):
            path = source[0].path if source else None
            specs, where = source, relative(path, self.workspace) if path else "configuration"
        elif source is not None:
            config = load_criteria_file(source, workspace=self.workspace)
            self.warnings.extend(config.warnings)
            specs, where = config.specs, relative(source, self.workspace)
            simulator = config.user_simulator_config
        specs += tuple(spec for spec in always if spec.name not in {given.name for given in specs})
        built = criteria.build(specs)
        lines = {spec.name: spec.line for spec in specs}
        infos = (criteria.criterion_info(criterion, where, lines.get(criterion.name)) for criterion in built)
        return _BuiltCriteria(built, tuple(infos), simulator)


def _return_memory() -> None:
    """Return memory that parsers of large files have freed: a fifth of all memory for 50,000 cases with a baseline.

    glibc would keep it, and Python allocates its objects elsewhere. Other C libraries lack this function.
    """
    import ctypes  # noqa: PLC0415 - few suites are large

    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _unplayable_users(eval_set: EvalSet, simulator: UserSimulatorConfig, path: Path) -> Iterator[Problem]:
    """Yield each problem of the simulated user once, with the first case that has it."""
    first_cases = {
        why: case
        for case in reversed(eval_set.eval_cases)
        if case.conversation_scenario is not None
        and (why := reason_not_playable(case.conversation_scenario, simulator))
    }
    for why, case in first_cases.items():
        yield Problem(path, f"case {case.eval_id}: {why}", case.line)


def unscorable_cases(cases: Iterable[EvalCase], criteria: Sequence[Criterion], path: Path) -> list[Problem]:
    """Return the cases that a criterion can never score, before the agent is run."""
    return [
        Problem(path, f"{case.eval_id}: {criterion.name}: {why}", line=case.line)
        for case in cases
        for criterion in criteria
        if (why := criterion.check(case))
    ]


_SKIPPED_FOLDERS: Final = frozenset({".git", ".venv", "venv", "node_modules", "__pycache__", ".agent-eval"})


def validate_paths(
    paths: Sequence[Path], workspace: Path, columns: Mapping[Path, ColumnMapping]
) -> tuple[int, list[Problem]]:
    """Check files and folders; return the number of files checked, and every problem and warning in them.

    Folders are searched by file name; a file given explicitly is checked whatever its name. ``columns``: the columns of
    tables. Raises UsageError for a path that does not exist.
    """
    problems: list[Problem] = []
    files = [file for path in paths for file in _files(path)]
    for file in files:
        around = workspace if real_path(file).is_relative_to(workspace) else file.parent
        problems += _check(file, around, columns.get(Path(os.path.abspath(file))))  # noqa: PTH100 - keeps links
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
        folders[:] = sorted(name for name in folders if name not in _SKIPPED_FOLDERS)
        for name in sorted(names):
            if name in CONFIG_NAMES or _holds_criteria(name) or is_eval_file(Path(folder) / name):
                yield Path(folder) / name


def _holds_criteria(name: str) -> bool:
    return name in (CRITERIA_FILE, *EVAL_CONFIGS) or name.endswith(METRICS_SUFFIX)


def _check(file: Path, workspace: Path, columns: ColumnMapping | None) -> Sequence[Problem]:
    try:
        if file.suffix in {".yaml", ".yml"} and not _holds_criteria(file.name) and not is_eval_file(file):
            return resolve(flags={"config": str(file)}, environ={}, cwd=Path.cwd()).warnings
        if is_table(file):
            return load_eval_file(file, workspace=workspace, columns=columns).warnings
        value = Source.read(file, workspace=workspace, error=EvalFileError).value
        has_criteria = isinstance(value, dict) and "criteria" in value and "eval_cases" not in value
        if _holds_criteria(file.name) or has_criteria:
            config = load_criteria_file(file, workspace=workspace)
            criteria.build(config.specs)
            return config.warnings
        return load_eval_file(file, workspace=workspace).warnings
    except AgentEvalError as error:
        return error.problems or (Problem(file, error.message, hint=error.hint),)


def discover_eval_files(settings: Settings, selectors: Sequence[str] = (), *, may_lack: bool = False) -> Discovery:
    """Match eval files with agents. ``may_lack``: skip named files that do not exist."""
    patterns = (*settings.evals, *(pattern for agent in settings.agents for pattern in agent.evals))
    columns = column_mappings(patterns)

    def app_names(path: Path) -> frozenset[str]:
        if is_table(path) or path in columns:  # these name no agent, and can be long
            return frozenset()
        eval_set = load_eval_file(path, workspace=settings.workspace).eval_set
        return frozenset(case.session_input.app_name for case in eval_set.eval_cases if case.session_input)

    return discover(settings, list(map(parse_selector, selectors)), app_names, may_lack=may_lack)


def names_of(plan: Plan) -> KnownNames:
    """Return the names that entries of accept.yaml may use."""
    return KnownNames(
        case={item.case.eval_id for planned in plan.sets for item in planned.cases},
        criterion={info.name for planned in plan.sets for info in planned.infos},
        agent={planned.agent for planned in plan.sets},
        eval_set={planned.key for planned in plan.sets},
    )
