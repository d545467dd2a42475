"""Settings: defaults < agent-eval.yaml < INPUT_* < flags, merged once; the environment is a parameter."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from agent_eval_action.config.agents import AgentEntry, agent_values, resolve_agents
from agent_eval_action.config.models import AgentDefaults, AgentIdentity, Policy, Settings
from agent_eval_action.config.options import AGENT_OPTIONS, BY_NAME, NO_OPTIONS, OPTIONS, SECTION_FIELDS, Option
from agent_eval_action.config.types import Origin, SourcedValue
from agent_eval_action.diagnostics.reader import JsonPath, Source, did_you_mean, shorten
from agent_eval_action.diagnostics.validation import Issue, issues_of
from agent_eval_action.errors import ConfigError, Problem

CONFIG_NAMES: Final = ("agent-eval.yaml", "agent-eval.yml")
GITHUB_CONFIG: Final = Path(".github") / "agent-eval.yaml"
_UNUSABLE: Final = "the configuration cannot be used"


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings, notes and warnings for the user, and where each value came from.

    ``origins`` has an entry for every option that was given (its label is like ``INPUT_FAIL-ON``,
    ``agent-eval.yaml:4`` or ``--max-drop``); the rest are defaults.
    """

    settings: Settings
    notes: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict)

    def refuse_unknown_rules(self, known: Collection[str]) -> None:
        """Raise ConfigError when ``gate.criteria`` names a criterion that does not exist: its rules would be idle.

        ``known`` are the names of all criteria, which are a layer above.
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
    """Read the settings of a checkout as the command does in ``folder``. Raises ConfigError with every problem.

    ``options`` are the command's, by name with underscores (``repeats=3``); they go over the file and the environment.
    """
    return resolve(flags=options, environ=os.environ, cwd=Path(folder)).settings


def resolve(
    *, flags: Mapping[str, Any], environ: Mapping[str, str], cwd: Path, files: bool = True, may_lack: bool = False
) -> Resolved:
    """Merge the sources. ``flags`` is keyed by option name; None is a flag that was not given.

    ``files`` False: no agent-eval.yaml is looked for, because a stranger could have put one there. ``may_lack``:
    agents whose folder is missing are left out, for an earlier commit that does not have it yet.

    Raises ConfigError with every problem of the file, the inputs and the flags at once.
    """
    here = cwd.resolve()
    workspace = find_workspace(here, environ)
    typed = _flag_layer(flags, environ, here)
    inputs = _input_layer(environ, workspace)
    over = {**inputs.given, **typed.given}
    named = over.get("config")
    config = find_config(named, here, workspace) if files or named else None
    file = _file_layer(config, workspace, environ) if config else _ConfigSource()
    chosen = typed.agents if "agent" in typed.given else inputs.agents
    agents, wrong = resolve_agents(file.agents, chosen, file.given, over, workspace, may_lack=may_lack)
    problems = [*file.problems, *inputs.problems, *typed.problems, *wrong, *_outside(file, workspace)]
    if problems:
        raise ConfigError(_UNUSABLE, problems=tuple(problems))
    given = {**file.given, **over}
    if "strict" in given and given["strict"].value:
        origin = given["strict"].origin
        given = {o.name: SourcedValue(o.info.strict, origin) for o in OPTIONS if o.info.strict is not None} | given
    settings = Settings(
        workspace=workspace,
        start=config_base(config, workspace) if config else here,
        config=config,
        agents=agents,
        only_agents=tuple(agent.name for agent in agents) if "agent" in over else (),
        agent_defaults=AgentDefaults(**agent_values(given)),
    )
    settings = _with_values(settings, given)
    settings = settings.model_copy(update={"policy": _with_rules(settings.policy, (file, inputs, typed))})
    origins = {name: value.origin for name, value in given.items()}
    shown = config.relative_to(workspace) if config and config.is_relative_to(workspace) else config
    note = f"configuration: {shown}" if shown else "no configuration file: defaults"
    return Resolved(settings, (note,), (*file.warnings, *inputs.warnings), origins)


_PLACES: Final = ("baseline", "out", "cache_dir")


def _with_values(settings: Settings, given: Mapping[str, SourcedValue]) -> Settings:
    """The settings with every value that is not an agent's; paths of outputs are absolute."""
    values = {name: item.value for name, item in given.items() if name not in ("agent", "config")}
    values |= {name: _absolute(settings.workspace / values.get(name, BY_NAME[name].default)) for name in _PLACES}
    own: dict[str, Any] = {}
    for section in ("", *SECTION_FIELDS):
        fields = {o.field[-1]: values[o.name] for o in OPTIONS if o.section == section and o.name in values}
        if section:
            own[section] = getattr(settings, section).model_copy(update=fields)
        else:
            own |= fields
    return settings.model_copy(update=own)


def _with_rules(policy: Policy, layers: Sequence[_ConfigSource]) -> Policy:
    """Merge the rules of single criteria and the modes of sets key by key; criteria inherit the other rules."""
    rules: dict[str, dict[str, Any]] = {}
    modes: dict[str, Any] = {}
    for layer in layers:
        modes |= layer.value("gate_sets", {})
        for criterion, own in layer.value("gate_criteria", {}).items():
            rules.setdefault(criterion, {}).update(own.model_dump(exclude_unset=True))
    criteria = {name: policy.inherited(name).model_copy(update=rules[name]) for name in sorted(rules)}
    return policy.model_copy(update={"criteria": criteria, "sets": dict(sorted(modes.items()))})


def _absolute(path: Path) -> Path:
    """Remove ``..``, which would mean another place behind a link."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - resolve() follows links


def _outside(file: _ConfigSource, workspace: Path) -> Iterator[Problem]:
    """Paths of the file outside of the workspace: only flags and inputs may name those."""
    for name in _PLACES:
        given = file.given.get(name)
        if given is not None and not _absolute(given.value).is_relative_to(workspace):
            option = BY_NAME[name]
            message = f"{option.key} must stay inside the workspace {workspace}"
            hint = f"a place elsewhere is named by the flag {option.flag} or the input {option.input}"
            yield given.origin.problem(message, value=str(given.value), hint=hint)


def find_workspace(cwd: Path, environ: Mapping[str, str]) -> Path:
    """The folder that every stored path is relative to.

    GitHub's checkout when we are inside it; else the nearest folder upwards that is a git checkout or
    holds a configuration; else the current folder.
    """
    here = cwd.resolve()
    checkout = environ.get("GITHUB_WORKSPACE", "").strip()
    if checkout and here.is_relative_to(Path(checkout).resolve()):
        return Path(checkout).resolve()
    for folder in (here, *here.parents):
        # .git is a file in worktrees and submodules.
        if (folder / ".git").exists() or any((folder / name).is_file() for name in CONFIG_NAMES):
            return folder
    return here


def find_config(named: SourcedValue | None, cwd: Path, workspace: Path) -> Path | None:
    """The file named, else the nearest from the current folder up to the workspace, else .github's."""
    if named is not None:
        path: Path = named.value
        if path.is_file():
            return path
        siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        message = f"{named.origin.label}: there is no configuration file {path}"
        raise ConfigError(message, hint=did_you_mean(path.name, siblings))
    for folder in (cwd, *cwd.parents):
        if not folder.is_relative_to(workspace):
            break
        found = [folder / name for name in CONFIG_NAMES if (folder / name).is_file()]
        if len(found) > 1:
            raise ConfigError(f"there are two configuration files: {found[0]} and {found[1]}", hint="remove one")
        if found:
            return found[0]
    github = workspace / GITHUB_CONFIG
    return github if github.is_file() else None


def config_base(path: Path, workspace: Path) -> Path:
    """The folder that paths in a configuration file start from: its own, for .github's file the workspace."""
    return workspace if path == workspace / GITHUB_CONFIG else path.parent


@dataclass(slots=True)
class _ConfigSource:
    """The values of one source (file, inputs or flags) by option, its agents, and what is wrong with it."""

    given: dict[str, SourcedValue] = field(default_factory=dict)
    agents: tuple[AgentEntry, ...] = ()
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def value(self, name: str, default: Any) -> Any:
        """The value given for an option."""
        return self.given[name].value if name in self.given else default

    def take(self, option: Option, value: Any, origin: Origin, into: dict[str, SourcedValue] | None = None) -> None:
        """Read one option's value, or keep what is wrong with it."""
        try:
            read = option.adapter.validate_python(value, context=origin)
        except ValidationError as error:
            self.problems += [origin.issue(issue) for issue in issues_of(error, value, option.annotation)]
        else:
            (self.given if into is None else into)[option.name] = SourcedValue(read, origin)


def _flag_layer(flags: Mapping[str, Any], environ: Mapping[str, str], cwd: Path) -> _ConfigSource:
    """Read the flags. None and empty tuples are flags that were not given."""
    layer = _ConfigSource()
    for name, value in flags.items():
        option = BY_NAME[name]
        if value is None or value in ((), []):
            continue
        origin = Origin(cwd, Path(option.flag or name), text=True, search_path=environ.get("PATH"))
        _take_text(layer, option, str(value) if isinstance(value, Path) else value, origin)
    return layer


def _input_layer(environ: Mapping[str, str], workspace: Path) -> _ConfigSource:
    """Read the INPUT_* variables. The empty string is an input that was not given."""
    layer = _ConfigSource()
    known = {name for item in NO_OPTIONS for name in item.variables}
    for option in OPTIONS:
        known.update(option.variables)
        texts = {name: environ[name].strip() for name in option.variables if environ.get(name, "").strip()}
        if len(set(texts.values())) > 1:
            dashed, underscored = option.variables
            message = f"and {underscored} say different things: {texts[dashed]!r} and {texts[underscored]!r}"
            layer.problems.append(Problem(Path(dashed), message, hint="set one of them"))
        elif texts:
            name, text = next(iter(texts.items()))
            origin = Origin(workspace, Path(name), text=True, search_path=environ.get("PATH"))
            _take_text(layer, option, text, origin)
    for name in sorted(environ):
        # Other actions of a job leave INPUT_* of their own behind: only a near miss is worth a word.
        near = did_you_mean(name, sorted(known)) if name.startswith("INPUT_") and name not in known else None
        if near and environ[name].strip():
            layer.warnings.append(Problem(Path(name), "is no input", hint=near, severity="warning"))
    return layer


def _take_text(layer: _ConfigSource, option: Option, text: Any, origin: Origin) -> None:
    layer.take(option, text, origin)
    if option.name == "agent" and "agent" in layer.given:
        layer.agents = tuple(AgentEntry(origin, path=path) for path in layer.given["agent"].value)


FILE_OPTIONS: Final = {option.key: option for option in OPTIONS if option.key is not None}
SECTIONS: Final = tuple(dict.fromkeys(key.partition(".")[0] for key in FILE_OPTIONS if "." in key))
_OF_AN_AGENT: Final = {option.name: option for option in AGENT_OPTIONS}
AGENT_KEYS: Final = (*AgentIdentity.model_fields, *_OF_AN_AGENT)
_NULLABLE: Final = frozenset({"max_drop", "max_rise"})


def _file_layer(path: Path, workspace: Path, environ: Mapping[str, str]) -> _ConfigSource:
    """Read the configuration file. Raises ConfigError when it is not a YAML mapping at all."""
    source = Source.read(path, workspace=workspace, error=ConfigError)
    if not isinstance(source.value, Mapping):
        problem = source.problem((), "must be a mapping of keys to values", hint="begin with agent: FOLDER")
        raise ConfigError(_UNUSABLE, problems=(problem,))
    top = Origin(config_base(path, workspace), source.path, search_path=environ.get("PATH"), source=source)
    reader = _FileReader(top)
    reader.section(source.value)
    return reader.layer


@dataclass(slots=True)
class _FileReader:
    """Walks the mapping once and fills the layer. ``top`` is the origin of the whole file."""

    top: Origin
    layer: _ConfigSource = field(default_factory=_ConfigSource)

    def section(self, data: Mapping[Any, Any], section: str = "") -> None:
        """The top of the file, or a section like ``gate``."""
        prefix = f"{section}." if section else ""
        for key, value in data.items():
            at = (section, key) if section else (key,)
            name = f"{prefix}{key}"
            short = f"{name}.path"  # `baseline: FILE` is short for its path
            if name in ("agent", "agents"):
                self.agents(value, at)
            elif name in FILE_OPTIONS:
                self.option(FILE_OPTIONS[name], value, at)
            elif name in SECTIONS and isinstance(value, Mapping):
                self.section(value, name)
            elif name in SECTIONS and short in FILE_OPTIONS:
                self.option(FILE_OPTIONS[short], value, at)
            elif name in SECTIONS:
                self.problem("must be a mapping", at, value)
            else:
                self.unknown(key, at, prefix)

    def unknown(self, key: Any, at: JsonPath, prefix: str) -> None:
        """Report an unknown key, with the key of this section or of another one that is probably meant."""
        elsewhere = next((k for k in FILE_OPTIONS if k.rpartition(".")[2] == str(key).replace("-", "_")), None)
        here = {k.removeprefix(prefix).partition(".")[0] for k in FILE_OPTIONS if k.startswith(prefix)}
        hint = f"did you mean `{elsewhere}`?" if elsewhere else did_you_mean(str(key), sorted({*here, "agents"}))
        self.problem(f"unknown key `{str(key)[:80]}`", at, hint=hint)

    def option(self, option: Option, value: Any, at: JsonPath, into: dict[str, SourcedValue] | None = None) -> None:
        """One option's value."""
        if value is None and option.name not in _NULLABLE:
            self.problem("is empty", at, hint="give it a value or remove the key")
        else:
            self.layer.take(option, value, self.top.inside(*at), into)

    def agents(self, value: Any, at: JsonPath) -> None:
        """``agent`` and ``agents``: a folder, a mapping, or a list of them."""
        if self.layer.agents:
            self.problem("is given beside another list of agents", at, hint="keep either agent or agents")
            return
        entries = (
            [(item, (*at, index)) for index, item in enumerate(value)] if isinstance(value, list) else [(value, at)]
        )
        if not entries:
            self.problem("names no agent", at, hint="remove the key to have agents discovered")
        self.layer.agents = tuple(entry for item, here in entries for entry in self.agent(item, here))

    def agent(self, value: Any, at: JsonPath) -> Iterator[AgentEntry]:
        """One agent."""
        if isinstance(value, str):
            value = {"path": value}
        if not isinstance(value, Mapping):
            self.problem("must be an agent's folder, or a mapping with its path", at, value)
            return
        given: dict[str, SourcedValue] = {}
        words: dict[str, str] = {}
        for key, setting in value.items():
            place = (*at, key)
            if key in _OF_AN_AGENT:
                self.option(_OF_AN_AGENT[key], setting, place, given)
            elif key in AgentIdentity.model_fields:
                words |= self.word(key, setting, place)
            else:
                hint = did_you_mean(str(key), AGENT_KEYS)
                self.problem(f"unknown key `{str(key)[:80]}` of an agent", place, hint=hint)
        if not {"path", "recording"} & value.keys():
            self.problem("an agent needs a path", at, hint="path: FOLDER")
        yield AgentEntry(self.top.inside(*at), given=given, **words)

    def word(self, key: str, value: Any, at: JsonPath) -> dict[str, str]:
        """The path or the name of an agent; nothing where it cannot be used."""
        try:
            return AgentIdentity.model_validate({key: value}).model_dump(exclude_unset=True)
        except ValidationError as error:
            found = issues_of(error, value, AgentIdentity)
            self.layer.problems += [self.top.inside(*at).issue(issue) for issue in found]
            return {}

    def problem(self, message: str, at: JsonPath, value: Any = ..., hint: str | None = None) -> None:
        """Something wrong at a place of the file."""
        shown = None if value is ... else shorten(value)
        self.layer.problems.append(self.top.issue(Issue(message, at, shown, hint)))
