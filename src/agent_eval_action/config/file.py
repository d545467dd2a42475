"""Reads agent-eval.yaml into a layer: every unknown key and wrong value at once, each with its line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent_eval_action.config.composite import EvalPattern
from agent_eval_action.config.layers import AgentEntry, Given, Layer
from agent_eval_action.config.option import Option
from agent_eval_action.config.options import AGENT_OPTIONS, OPTIONS
from agent_eval_action.config.specs import parse_criteria
from agent_eval_action.config.values import NAME, TEXT, Flaw, Refused, Where
from agent_eval_action.config.workspace import config_base
from agent_eval_action.errors import ConfigError
from agent_eval_action.source import JsonPath, Source, did_you_mean

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
