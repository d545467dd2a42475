"""The layers settings come from: the file, INPUT_* variables, flags. Each is read whole, with all its problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_eval_action.config.action_inputs import NO_OPTIONS
from agent_eval_action.config.option import Option
from agent_eval_action.config.options import BY_NAME, OPTIONS
from agent_eval_action.config.values import Refused, Where
from agent_eval_action.errors import Problem
from agent_eval_action.source import did_you_mean


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
