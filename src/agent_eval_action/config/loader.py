"""Where the workspace begins, and which configuration file is meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent_eval_action.config.action_inputs import NO_OPTIONS
from agent_eval_action.config.criteria import parse_criteria
from agent_eval_action.config.options import AGENT_OPTIONS, BY_NAME, OPTIONS, Option
from agent_eval_action.config.types import NAME, TEXT, EvalPattern, Flaw, Refused, Where
from agent_eval_action.diagnostics.reader import JsonPath, Source, did_you_mean
from agent_eval_action.errors import ConfigError, Problem

CONFIG_NAMES: Final = ("agent-eval.yaml", "agent-eval.yml")
GITHUB_CONFIG: Final = Path(".github") / "agent-eval.yaml"


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


def find_config(named: Path | None, label: str, cwd: Path, workspace: Path) -> Path | None:
    """The file named, else the nearest from the current folder up to the workspace, else .github's."""
    if named is not None:
        if named.is_file():
            return named
        there = [path.name for path in named.parent.iterdir()] if named.parent.is_dir() else []
        raise ConfigError(f"{label}: there is no configuration file {named}", hint=did_you_mean(named.name, there))
    here = cwd.resolve()
    for folder in (here, *here.parents):
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


@dataclass(frozen=True, slots=True)
class Given:
    """A value somebody gave, and where."""

    value: Any
    where: Where


@dataclass(frozen=True, slots=True)
class AgentEntry:
    """One entry of ``agents``: its folder or name as written, and what it says about itself."""

    where: Where
    path: str | None = None
    name: str | None = None
    given: Mapping[str, Given] = field(default_factory=dict)


@dataclass(slots=True)
class Layer:
    """What one source says, option by option; ``agents`` is kept apart because its entries have insides."""

    given: dict[str, Given] = field(default_factory=dict)
    agents: tuple[AgentEntry, ...] = ()
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)


def flag_layer(flags: Mapping[str, Any], environ: Mapping[str, str], cwd: Path) -> Layer:
    """What the command line says. None and empty tuples are flags nobody typed."""
    layer = Layer()
    for name, value in flags.items():
        option = BY_NAME[name]
        if value is None or value in ((), []):
            continue
        where = Where(cwd, Path(option.flag or name), text=True, search_path=environ.get("PATH"))
        _take_text(layer, option, str(value) if isinstance(value, Path) else value, where)
    return layer


def input_layer(environ: Mapping[str, str], workspace: Path) -> Layer:
    """What INPUT_* variables say. The empty string is an input nobody gave."""
    layer = Layer()
    known = {name for one in NO_OPTIONS for name in one.variables}
    for option in OPTIONS:
        known.update(option.variables)
        texts = {name: environ[name].strip() for name in option.variables if environ.get(name, "").strip()}
        if len(set(texts.values())) > 1:
            dashed, underscored = option.variables
            message = f"and {underscored} say different things: {texts[dashed]!r} and {texts[underscored]!r}"
            layer.problems.append(Problem(Path(dashed), message, hint="set one of them"))
        elif texts:
            name, text = next(iter(texts.items()))
            where = Where(workspace, Path(name), text=True, search_path=environ.get("PATH"))
            _take_text(layer, option, text, where)
    for name in sorted(environ):
        # Other actions of a job leave INPUT_* of their own behind: only a near miss is worth a word.
        near = did_you_mean(name, sorted(known)) if name.startswith("INPUT_") and name not in known else None
        if near and environ[name].strip():
            layer.warnings.append(Problem(Path(name), "is no input", hint=near, severity="warning"))
    return layer


def _take_text(layer: Layer, option: Option, text: Any, where: Where) -> None:
    try:
        value = option.kind.read(text, where)
    except Refused as refused:
        for flaw in refused.flaws:
            layer.problems.append(where.problem(flaw.message, value=flaw.shown, hint=flaw.hint))
        return
    layer.given[option.name] = Given(value, where)
    if option.name == "agent":
        layer.agents = tuple(AgentEntry(where, path=text) for text in value)


FILE_OPTIONS: Final = tuple(option for option in OPTIONS if option.key is not None)
_KEYS: Final[Mapping[str, Option]] = {option.key: option for option in FILE_OPTIONS if option.key is not None}
SECTIONS: Final = tuple(dict.fromkeys(key.partition(".")[0] for key in _KEYS if "." in key))
_AGENT_KEYS: Final[Mapping[str, Option]] = {option.name: option for option in AGENT_OPTIONS}


def file_layer(path: Path, workspace: Path, environ: Mapping[str, str]) -> Layer:
    """What the configuration file says. Raises ConfigError when it is no YAML mapping at all."""
    source = Source.read(path, workspace=workspace, error=ConfigError)
    if not isinstance(source.value, Mapping):
        problem = source.problem((), "must be a mapping of keys to values", hint="begin with agent: FOLDER")
        raise ConfigError("the configuration cannot be used", problems=(problem,))
    reader = _Reader(source, config_base(path, workspace), environ.get("PATH"))
    reader.section(source.value, ())
    return reader.layer


@dataclass(slots=True)
class _Reader:
    """Walks the mapping once and fills the layer."""

    source: Source
    base: Path
    search_path: str | None
    layer: Layer = field(default_factory=Layer)

    def section(self, data: Mapping[Any, Any], at: JsonPath) -> None:
        """The top of the file, or a nested section like ``gate``."""
        prefix = "".join(f"{step}." for step in at)
        for key, value in data.items():
            here = (*at, key)
            if f"{prefix}{key}" in _KEYS:
                option = _KEYS[f"{prefix}{key}"]
                if option.name == "agent":
                    self.agents(value, here)
                else:
                    self.option(option, value, here, self.layer.given)
            elif not at and key == "agents":
                self.agents(value, here)
            elif not at and key in SECTIONS:
                if isinstance(value, Mapping):
                    self.section(value, here)
                elif f"{key}.path" in _KEYS:  # `baseline: FILE` is short for its path
                    self.option(_KEYS[f"{key}.path"], value, here, self.layer.given)
                else:
                    self.flaw(Flaw("must be a mapping", value), here)
            else:
                self.flaw(self.unknown(key, [*_keys_in(prefix), *([] if at else ["agents"])]), here)

    def unknown(self, key: Any, allowed: Iterable[str]) -> Flaw:
        """An unknown key: near to one that is allowed here, or at home somewhere else."""
        elsewhere = next((k for k in _KEYS if k.rpartition(".")[2] == str(key).replace("-", "_")), None)
        hint = f"did you mean `{elsewhere}`?" if elsewhere else did_you_mean(str(key), sorted(allowed))
        return Flaw(f"unknown key {str(key)[:80]!r}", hint=hint)

    def option(self, option: Option, value: Any, at: JsonPath, into: dict[str, Given]) -> None:
        """One option's value, read by its kind."""
        where = self.where(at)
        if value is None and option.name not in ("max_drop", "max_rise"):
            self.flaw(Flaw("is empty", hint="give it a value or remove the key"), at)
            return
        try:
            read = option.kind.read(value, where)
        except Refused as refused:
            for flaw in refused.flaws:
                self.flaw(flaw, at)
            return
        if option.name == "evals" and isinstance(value, list):
            read = tuple(EvalPattern(item.pattern, self.where((*at, index))) for index, item in enumerate(read))
        if option.name == "criteria" and isinstance(read, Mapping):
            read, problems = parse_criteria(read, source=self.source, at=at)
            self.layer.problems += problems
        into[option.name] = Given(read, where)

    def agents(self, value: Any, at: JsonPath) -> None:
        """``agent`` and ``agents``: a folder, a mapping, or a list of them."""
        if self.layer.agents:
            self.flaw(Flaw("is given beside another list of agents", hint="keep either agent or agents"), at)
            return
        many = isinstance(value, list)
        entries = [(item, (*at, index)) for index, item in enumerate(value)] if many else [(value, at)]
        if not entries:
            self.flaw(Flaw("names no agent", hint="remove the key to have agents discovered"), at)
        self.layer.agents = tuple(entry for item, here in entries for entry in self.agent(item, here))

    def agent(self, value: Any, at: JsonPath) -> Iterator[AgentEntry]:
        """One agent."""
        where = self.where(at)
        if isinstance(value, str):
            value = {"path": value}
        if not isinstance(value, Mapping):
            self.flaw(Flaw("must be an agent's folder, or a mapping with its path", value), at)
            return
        given: dict[str, Given] = {}
        words: dict[str, str] = {}
        for key, setting in value.items():
            if key in _AGENT_KEYS:
                self.option(_AGENT_KEYS[key], setting, (*at, key), given)
            elif key in ("path", "name"):
                try:
                    words[key] = (NAME if key == "name" else TEXT).read(setting, where)
                except Refused as refused:
                    for flaw in refused.flaws:
                        self.flaw(flaw, (*at, key))
            else:
                flaw = Flaw(f"unknown key {str(key)[:80]!r} of an agent", hint=did_you_mean(str(key), AGENT_KEYS))
                self.flaw(flaw, (*at, key))
        if not {"path", "recording"} & value.keys():
            self.flaw(Flaw("an agent needs a path", hint="path: FOLDER"), at)
        yield AgentEntry(where, path=words.get("path"), name=words.get("name"), given=given)

    def where(self, at: JsonPath) -> Where:
        return Where(self.base, self.source.path, self.source.line(at), search_path=self.search_path)

    def flaw(self, flaw: Flaw, at: JsonPath) -> None:
        problem = self.source.problem((*at, *flaw.at), flaw.message, value=flaw.shown, hint=flaw.hint)
        self.layer.problems.append(problem)


AGENT_KEYS: Final = ("path", "name", *_AGENT_KEYS)


def _keys_in(prefix: str) -> list[str]:
    """The keys, sections included, that may stand in the section with this prefix."""
    inside = [key.removeprefix(prefix).partition(".")[0] for key in _KEYS if key.startswith(prefix)]
    return list(dict.fromkeys(inside))
