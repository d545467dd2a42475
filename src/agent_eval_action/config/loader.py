"""Merge settings once, in ascending priority: defaults, agent-eval.yaml, INPUT_*, flags."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from agent_eval_action.config.models import DRIVER_OPTIONS, AgentDefaults, AgentSettings, Policy, Settings
from agent_eval_action.config.options import AGENT_ENTRY, AGENT_OPTIONS, BY_NAME, NO_OPTIONS, OPTIONS, Option
from agent_eval_action.config.types import Origin, SourcedValue
from agent_eval_action.diagnostics.reader import JsonPath, Source, did_you_mean, shorten
from agent_eval_action.diagnostics.validation import Issue, issues_of
from agent_eval_action.errors import ConfigError, Problem
from agent_eval_action.folders import folders_upwards, real_path, relative

CONFIG_NAMES: Final = ("agent-eval.yaml", "agent-eval.yml")
GITHUB_CONFIG: Final = Path(".github") / "agent-eval.yaml"
_UNUSABLE: Final = "the configuration cannot be used"


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings, notes and warnings for the user, and the origin of each value.

    ``origins`` has an entry for every option that was given, with a label like ``INPUT_FAIL-ON``,
    ``agent-eval.yaml:4`` or ``--max-drop``.
    """

    settings: Settings
    notes: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict)

    def refuse_unknown_rules(self, known: Collection[str]) -> None:
        """Raise ConfigError if ``gate.criteria`` names an unknown criterion, whose rules would have no effect.

        ``known``: the names of all criteria, which this layer cannot import.
        """
        origin = self.origins.get("gate_criteria")
        problems = [
            origin.problem(f"gate.criteria: there is no criterion {name}", hint=did_you_mean(name, known))
            for name in self.settings.policy.criteria
            if origin and name not in known
        ]
        if problems:
            raise ConfigError(_UNUSABLE, problems=tuple(problems))


def load_settings(folder: Path | str = ".", **options: Any) -> Settings:
    """Read the settings of a checkout as the command does in ``folder``. Raises ConfigError with all problems.

    ``options`` are the command's, named with underscores (``repeats=3``); they override file and environment.
    """
    return resolve(flags=options, environ=os.environ, cwd=Path(folder)).settings


def resolve(
    *, flags: Mapping[str, Any], environ: Mapping[str, str], cwd: Path, files: bool = True, may_lack: bool = False
) -> Resolved:
    """Merge the sources. ``flags`` is keyed by option name; None means not given.

    ``files`` False: do not search for an agent-eval.yaml, because somebody else could have put one there.
    ``may_lack``: skip agents whose folder is missing, for an earlier commit that does not have it yet.

    Raises ConfigError with all problems of the file, the inputs and the flags.
    """
    here = cwd.resolve()
    workspace = _find_workspace(here, environ)
    typed = _flag_values(flags, environ, here)
    inputs = _input_values(environ, workspace)
    over = {**inputs.given, **typed.given}
    named = over.get("config")
    config = _find_config(named, here, workspace) if files or named else None
    file = _file_values(config, workspace, environ) if config else _ConfigSource()
    agents, wrong = _resolve_agents(file, over, workspace, may_lack=may_lack)
    problems = [*file.problems, *inputs.problems, *typed.problems, *wrong, *_paths_outside(file, workspace)]
    if problems:
        raise ConfigError(_UNUSABLE, problems=tuple(problems))
    given = {**file.given, **over}
    if "strict" in given and given["strict"].value:
        origin = given["strict"].origin
        given = {o.name: SourcedValue(o.info.strict, origin) for o in OPTIONS if o.info.strict is not None} | given
    settings = Settings(
        workspace=workspace,
        start=_config_base(config, workspace) if config else here,
        config=config,
        agents=agents,
        only_agents=tuple(agent.name for agent in agents) if "agent" in over else (),
        agent_defaults=AgentDefaults(**_agent_values(given)),
    )
    settings = _with_values(settings, given)
    settings = settings.model_copy(update={"policy": _with_rules(settings.policy, (file, inputs, typed))})
    origins = {name: value.origin for name, value in given.items()}
    note = f"configuration: {relative(config, workspace)}" if config else "no configuration file: defaults"
    return Resolved(settings, (note,), (*file.warnings, *inputs.warnings), origins)


_PLACES: Final = ("baseline", "out", "cache_dir")


def _with_values(settings: Settings, given: Mapping[str, SourcedValue]) -> Settings:
    """Apply all values except those of agents; output paths become absolute."""
    values = {name: item.value for name, item in given.items() if name not in ("agent", "config")}
    values |= {name: _absolute(settings.workspace / values.get(name, BY_NAME[name].default)) for name in _PLACES}
    update: dict[str, Any] = {}
    sections: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for option in OPTIONS:
        *section, last = option.field
        if option.name in values and section != ["agent_defaults"]:
            (sections[section[0]] if section else update)[last] = values[option.name]
    update |= {name: getattr(settings, name).model_copy(update=fields) for name, fields in sections.items()}
    return settings.model_copy(update=update)


def _with_rules(policy: Policy, sources: Sequence[_ConfigSource]) -> Policy:
    """Merge the rules of criteria and the modes of sets key by key; criteria inherit rules they do not set."""
    rules: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    modes: dict[str, Any] = {}
    for given in (source.given for source in sources):
        modes |= given["gate_sets"].value if "gate_sets" in given else {}
        for criterion, own in given["gate_criteria"].value.items() if "gate_criteria" in given else ():
            rules[criterion] |= own.model_dump(exclude_unset=True)
    criteria = {name: policy.inherited(name).model_copy(update=rules[name]) for name in sorted(rules)}
    return policy.model_copy(update={"criteria": criteria, "sets": dict(sorted(modes.items()))})


def _absolute(path: Path) -> Path:
    """Resolve ``..`` as text: after following links it would lead elsewhere."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - resolve() follows links


def _paths_outside(file: _ConfigSource, workspace: Path) -> Iterator[Problem]:
    """Problems with the file's paths outside the workspace, which only flags and inputs may name."""
    for name in _PLACES:
        given = file.given.get(name)
        if given is not None and not _absolute(given.value).is_relative_to(workspace):
            option = BY_NAME[name]
            message = f"{option.key} must stay inside the workspace {workspace}"
            hint = f"a place elsewhere is named by the flag {option.flag} or the input {option.input}"
            yield given.origin.problem(message, value=str(given.value), hint=hint)


def _find_workspace(here: Path, environ: Mapping[str, str]) -> Path:
    """The folder that all stored paths are relative to.

    GitHub's checkout if ``here`` is inside it, else the nearest folder upwards that is a git checkout or has a
    configuration file, else ``here``.
    """
    checkout = environ.get("GITHUB_WORKSPACE", "").strip()
    if checkout and here.is_relative_to(Path(checkout).resolve()):
        return Path(checkout).resolve()
    marks = (".git", *CONFIG_NAMES)  # in worktrees and submodules .git is a file
    return next((folder for folder in (here, *here.parents) if any((folder / mark).exists() for mark in marks)), here)


def _find_config(named: SourcedValue | None, here: Path, workspace: Path) -> Path | None:
    """The named file, else the nearest one between ``here`` and the workspace, else that in .github, else None."""
    if named is not None:
        path: Path = named.value
        if path.is_file():
            return path
        siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        message = f"{named.origin.label}: there is no configuration file {path}"
        raise ConfigError(message, hint=did_you_mean(path.name, siblings))
    for folder in folders_upwards(here, workspace):
        found = [folder / name for name in CONFIG_NAMES if (folder / name).is_file()]
        if len(found) > 1:
            raise ConfigError(f"there are two configuration files: {found[0]} and {found[1]}", hint="remove one")
        if found:
            return found[0]
    github = workspace / GITHUB_CONFIG
    return github if github.is_file() else None


def _config_base(path: Path, workspace: Path) -> Path:
    """The folder that a configuration file's paths are relative to: its own, or the workspace for .github's."""
    return workspace if path == workspace / GITHUB_CONFIG else path.parent


FILE_OPTIONS: Final = {option.key: option for option in OPTIONS if option.key is not None}
SECTIONS: Final = tuple(dict.fromkeys(key.partition(".")[0] for key in FILE_OPTIONS if "." in key))
_NULLABLE: Final = frozenset({"max_drop", "max_rise"})


@dataclass(slots=True)
class _ConfigSource:
    """The values of a source (file, inputs or flags) by option, its agents and its problems.

    ``file`` is the origin of the whole configuration file. Each agent's value has those of its options, name and path.
    """

    file: Origin = field(default_factory=Origin)
    given: dict[str, SourcedValue] = field(default_factory=dict)
    agents: list[SourcedValue] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def take(self, option: Option, value: Any, origin: Origin, into: dict[str, SourcedValue] | None = None) -> None:
        """Read an option's value, or record what is wrong with it."""
        if value is None and option.name not in _NULLABLE:
            self.problems.append(origin.issue(Issue("is empty", hint="give it a value or remove the key")))
            return
        try:
            read = option.adapter.validate_python(value, context=origin)
        except ValidationError as error:
            self.problems += [origin.issue(issue) for issue in issues_of(error, value, option.annotation)]
        else:
            (self.given if into is None else into)[option.name] = SourcedValue(read, origin)

    def take_text(self, option: Option, text: Any, name: str, base: Path, environ: Mapping[str, str]) -> None:
        """Read the text of the flag or input called ``name``."""
        self.take(option, text, Origin(base, Path(name), text=True, search_path=environ.get("PATH")))

    def problem(self, message: str, at: JsonPath, value: Any = ..., hint: str | None = None) -> None:
        shown = None if value is ... else shorten(value)
        self.problems.append(self.file.issue(Issue(message, at, shown, hint)))

    def section(self, data: Mapping[Any, Any], section: str = "") -> None:
        """Read the top level of the file, or a section like ``gate``."""
        prefix = f"{section}." if section else ""
        for key, value in data.items():
            at = (section, key) if section else (key,)
            name = f"{prefix}{key}"
            short = FILE_OPTIONS.get(f"{name}.path")  # `baseline: FILE` is short for its path
            if name in ("agent", "agents"):
                self.read_agents(value, at)
            elif name in SECTIONS and isinstance(value, Mapping):
                self.section(value, name)
            elif option := FILE_OPTIONS.get(name) or short:
                self.take(option, value, self.file.inside(*at))
            elif name in SECTIONS:
                self.problem("must be a mapping", at, value)
            else:
                elsewhere = next((k for k in FILE_OPTIONS if k.rpartition(".")[2] == str(key).replace("-", "_")), None)
                here = {k.removeprefix(prefix).partition(".")[0] for k in FILE_OPTIONS if k.startswith(prefix)}
                near = did_you_mean(str(key), sorted({*here, "agents"}))
                hint = f"did you mean `{elsewhere}`?" if elsewhere else near
                self.problem(f"unknown key `{str(key)[:80]}`", at, hint=hint)

    def read_agents(self, value: Any, at: JsonPath) -> None:
        """Read ``agent`` or ``agents``: a folder, a mapping, or a list of them."""
        if self.agents:
            self.problem("is given beside another list of agents", at, hint="keep either agent or agents")
            return
        entries = [((*at, n), item) for n, item in enumerate(value)] if isinstance(value, list) else [(at, value)]
        if not entries:
            self.problem("names no agent", at, hint="remove the key to have agents discovered")
        for here, entry in entries:
            mapping = {"path": entry} if isinstance(entry, str) else entry
            if isinstance(mapping, Mapping):
                self.agents.append(self.read_agent(mapping, here))
            else:
                self.problem("must be an agent's folder, or a mapping with its path", here, entry)

    def read_agent(self, mapping: Mapping[Any, Any], at: JsonPath) -> SourcedValue:
        given: dict[str, SourcedValue] = {}
        for key, value in mapping.items():
            if key in AGENT_ENTRY:
                self.take(AGENT_ENTRY[key], value, self.file.inside(*at, key), given)
            else:
                hint = did_you_mean(str(key), AGENT_ENTRY)
                self.problem(f"unknown key `{str(key)[:80]}` of an agent", (*at, key), hint=hint)
        if not {"path", "driver", "recording"} & mapping.keys():
            self.problem("an agent needs a path", at, hint="path: FOLDER")
        return SourcedValue(given, self.file.inside(*at))


def _flag_values(flags: Mapping[str, Any], environ: Mapping[str, str], cwd: Path) -> _ConfigSource:
    source = _ConfigSource()
    for name, value in flags.items():
        if value is not None and value not in ((), []):  # the flag was given
            text = str(value) if isinstance(value, Path) else value
            source.take_text(BY_NAME[name], text, BY_NAME[name].flag or name, cwd, environ)
    return source


def _input_values(environ: Mapping[str, str], workspace: Path) -> _ConfigSource:
    """Read the INPUT_* variables. An empty string means not given."""
    source = _ConfigSource()
    for option in OPTIONS:
        texts = {name: text for name in option.variables if (text := environ.get(name, "").strip())}
        if len(set(texts.values())) > 1:
            (one, said), (other, contradiction) = texts.items()
            message = f"and {other} say different things: {said!r} and {contradiction!r}"
            source.problems.append(Problem(Path(one), message, hint="set one of them"))
        elif texts:
            name, text = next(iter(texts.items()))
            source.take_text(option, text, name, workspace, environ)
    known = {*chain.from_iterable(option.variables for option in OPTIONS)}
    known.update(*(item.variables for item in NO_OPTIONS))
    for name in sorted(environ):
        # other actions of a job leave their INPUT_* variables behind, so warn only about likely misspellings
        near = did_you_mean(name, sorted(known)) if name.startswith("INPUT_") and name not in known else None
        if near and environ[name].strip():
            source.warnings.append(Problem(Path(name), "is no input", hint=near, severity="warning"))
    return source


def _file_values(path: Path, workspace: Path, environ: Mapping[str, str]) -> _ConfigSource:
    """Read the configuration file. Raises ConfigError if it is not a YAML mapping."""
    source = Source.read(path, workspace=workspace, error=ConfigError)
    if not isinstance(source.value, Mapping):
        problem = source.problem((), "must be a mapping of keys to values", hint="begin with agent: FOLDER")
        raise ConfigError(_UNUSABLE, problems=(problem,))
    origin = Origin(_config_base(path, workspace), source.path, search_path=environ.get("PATH"), source=source)
    values = _ConfigSource(origin)
    values.section(source.value)
    return values


# --- agents ----------------------------------------------------------------------------------------


_Draft = tuple[SourcedValue, AgentSettings]
"""An entry of ``agents`` and the agent that it describes, whose name is "" unless the entry sets one."""


def _resolve_agents(
    file: _ConfigSource, over: Mapping[str, SourcedValue], workspace: Path, *, may_lack: bool
) -> tuple[tuple[AgentSettings, ...], list[Problem]]:
    """The agents to run: those chosen by flag or input, else those of the file, else none (discovery).

    Flags and inputs (``over``) win over the agent's entry, which wins over the top level of the file.
    """

    def draft(entry: SourcedValue) -> _Draft:
        own = {name: item.value for name, item in entry.value.items()}
        values = _agent_values({**file.given, **entry.value, **over})
        folder = entry.origin.base / own["path"] if own.get("path") else values.get("recording", entry.origin.base)
        evals = own.get("evals", ()) if "evals" not in over else ()
        path = Path(os.path.normpath(folder))
        return entry, AgentSettings(path=path, name=own.get("name", ""), evals=evals, **values)

    def chosen(name: str, origin: Origin) -> _Draft:
        """The configured agent with this folder, else with this name, else the agent in this folder."""
        folder = real_path(origin.base / name)
        by_folder = (found for found in drafts if real_path(found[1].path) == folder)
        by_name = (found for found in drafts if name in (found[1].name, found[1].path.name))
        return next(chain(by_folder, by_name), None) or draft(
            SourcedValue({"path": SourcedValue(name, origin)}, origin)
        )

    drafts = [draft(entry) for entry in file.agents]
    if named := over.get("agent"):
        drafts = [chosen(name, named.origin) for name in named.value]
    if may_lack:
        drafts = [(entry, agent) for entry, agent in drafts if agent.path.is_dir()]
    problems = [problem for entry, agent in drafts for problem in _folder_problems(entry, agent, workspace)]
    unnamed = iter(unique_names([agent.path for _, agent in drafts if not agent.name], workspace))
    agents: list[AgentSettings] = []
    for entry, agent in drafts:
        name = agent.name or next(unnamed)
        if name in [other.name for other in agents]:
            hint = "give one of them another name"
            problems.append(entry.origin.problem("two agents have this name", value=shorten(name), hint=hint))
        if not name.isprintable():
            problems.append(entry.origin.problem("a name must be printable text", value=shorten(name)))
        agents.append(agent.model_copy(update={"name": name}))
    return tuple(agents), problems


def _agent_values(given: Mapping[str, SourcedValue]) -> dict[str, Any]:
    values = {option.name: given[option.name].value for option in AGENT_OPTIONS if option.name in given}
    values.pop("evals", None)
    return {"driver": "recorded", **values} if values.get("recording") else values


def _folder_problems(entry: SourcedValue, agent: AgentSettings, workspace: Path) -> Iterator[Problem]:
    written = entry.value.get("path")
    problem = partial(entry.origin.problem, value=shorten(written.value) if written else None)
    path = agent.path
    if not real_path(path).is_relative_to(workspace):
        hint = f"start from a folder that holds the agent; the workspace is {workspace}"
        yield problem("the agent's folder is outside the workspace", hint=hint)
    elif path.is_file():
        yield problem("an agent is a folder, this is a file", hint=f"path: {path.parent.name}")
    elif not path.is_dir():
        siblings = [other.name for other in path.parent.iterdir() if other.is_dir()] if path.parent.is_dir() else []
        yield problem("there is no such agent folder", hint=did_you_mean(path.name, siblings))
    elif agent.driver == "adk" and not may_hold_agent(path):
        hint = "name the folder that holds agent.py or root_agent.yaml"
        yield problem("no agent in this folder: neither agent.py nor root_agent.yaml", hint=hint)
    if agent.driver in DRIVER_OPTIONS:  # those from packages take any options
        yield from (entry.origin.problem(message, hint=hint) for message, hint in _option_problems(agent))


def _option_problems(agent: AgentSettings) -> Iterator[tuple[str, str]]:
    """Options of the driver that are missing or do not apply, with hints."""
    needed, hint, others = DRIVER_OPTIONS[agent.driver]
    given = [name for name in needed if getattr(agent, name)]
    if needed and not given:
        yield f"the driver {agent.driver} needs a {' or a '.join(needed)}", hint
    if len(given) > 1:
        yield f"{' and '.join(given)} are given, and one of them answers", "keep one of them"
    known = {name for needs, _, more in DRIVER_OPTIONS.values() for name in (*needs, *more)}
    for name in sorted(name for name in known - {*needed, *others} if getattr(agent, name)):
        yield f"a {name} is given, and driver: {agent.driver}", "keep one of them"


def may_hold_agent(folder: Path) -> bool:
    """Whether ADK could find an agent in the folder, judged by file names alone."""
    return any((folder / name).exists() for name in ("agent.py", "agent", "__init__.py", "root_agent.yaml"))


def unique_names(folders: Sequence[Path], workspace: Path) -> list[str]:
    """The folders' names, or their paths from the workspace if two names are equal.

    The workspace's own name differs between machines, so it is called ``agent``.
    """
    short = ["agent" if folder == workspace else folder.name for folder in folders]
    return [
        name if short.count(name) == 1 or not folder.is_relative_to(workspace) else relative_name(folder, workspace)
        for folder, name in zip(folders, short, strict=True)
    ]


def relative_name(path: Path, workspace: Path) -> str:
    """A path relative to the workspace, with forward slashes."""
    return Path(os.path.relpath(path, workspace)).as_posix()
