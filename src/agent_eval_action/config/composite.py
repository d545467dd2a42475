"""Kinds of value with an inside: eval file patterns, criteria, environment names, rules per criterion."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent_eval_action.config.job_variables import JOB_VARIABLE_PATTERN, is_job_variable
from agent_eval_action.config.values import (
    TEXT,
    Flaw,
    Kind,
    Refused,
    Where,
    amount,
    choice,
    items_of,
    or_list,
)
from agent_eval_action.source import did_you_mean


@dataclass(frozen=True, slots=True)
class EvalPattern:
    """Eval files as named by a person: a path, folder or glob, and where it was written."""

    pattern: str
    where: Where


def _evals(value: Any, where: Where) -> tuple[EvalPattern, ...]:
    found: list[EvalPattern] = []
    flaws: list[Flaw] = []
    for index, item in enumerate(items_of(value, where)):
        try:
            found.append(EvalPattern(TEXT.read(item, where), where))
        except Refused as refused:
            flaws += _inside(refused, index if isinstance(value, list) else None)
    if not flaws and not found:
        flaws.append(Flaw("names no eval file", value))
    if flaws:
        raise Refused(*flaws)
    return tuple(found)


EVALS: Final = Kind("path or glob, or a list", or_list(TEXT.schema), _evals)


def _paths(value: Any, where: Where) -> tuple[EvalPattern, ...]:
    """The same, where none is an answer too: nothing beside what always counts."""
    return () if isinstance(value, list) and not value else _evals(value, where)


PATHS: Final = Kind(
    "path or glob, or a list", {"anyOf": [dict(TEXT.schema), {"type": "array", "items": dict(TEXT.schema)}]}, _paths
)


def _inside(refused: Refused, *at: str | int | None) -> list[Flaw]:
    """The flaws of an inner value, seen from the outer one."""
    outer = tuple(step for step in at if step is not None)
    return [Flaw(flaw.message, flaw.value, (*outer, *flaw.at), flaw.hint) for flaw in refused.flaws]


def _criteria(value: Any, where: Where) -> Path | Mapping[str, Any]:
    """A file is placed and must exist; a mapping is left for ``specs`` to read."""
    if isinstance(value, Mapping):
        if not value:
            raise Refused(Flaw("names no criterion", hint="remove the key to have ADK's defaults"))
        return value
    if not isinstance(value, str):
        raise Refused(Flaw("must be a file or a mapping of criteria", value))
    path = where.base / str(TEXT.read(value, where))
    if not path.is_file():
        siblings = [p.name for p in path.parent.glob("*.json")] if path.parent.is_dir() else []
        raise Refused(Flaw("names a criteria file that does not exist", value, hint=did_you_mean(path.name, siblings)))
    return path


CRITERIA: Final = Kind(
    "file or mapping",
    {
        "anyOf": [
            {"type": "string", "minLength": 1},
            {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": {"type": ["number", "object", "null"]},
            },
        ]
    },
    _criteria,
)


def _python(value: Any, where: Where) -> Path:
    """An interpreter, a virtual environment's folder, or a bare name like python3.12 looked up on PATH.

    Links are not followed: a virtual environment's python is one, and where it lies is what makes it that.
    """
    text = str(TEXT.read(value, where))
    path = where.base / text
    if path.is_dir():
        return path / "bin" / "python"
    if "/" not in text and not path.exists() and (found := shutil.which(text, path=where.search_path or "")):
        return Path(found)
    return path


PYTHON: Final = Kind("interpreter or folder", TEXT.schema, _python)

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


_RENAME: Final = "put a secret of your own into a variable with another name, and read that one"


def _env(value: Any, where: Where) -> dict[str, str | None]:
    """Variable names to let through (value None), or to set. Values are never shown: they may be secret."""
    pairs: dict[str, str | None] = {}
    flaws: list[Flaw] = []
    entries: list[tuple[Any, Any, str | int]]
    if isinstance(value, Mapping):
        entries = [(name, setting, name) for name, setting in value.items()]
    else:
        entries = [(*_name_and_value(item), index) for index, item in enumerate(_env_items(value, where))]
    for name, setting, at in entries:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            flaws.append(Flaw("is not the name of an environment variable", name, (at,)))
        elif is_job_variable(name):
            flaws.append(
                Flaw("is a variable of the CI job, which no agent and no install step gets", name, (at,), _RENAME)
            )
        elif setting is not None and (not isinstance(setting, str) or "\0" in setting):
            flaws.append(Flaw(f"{name} must be text", at=(at,), hint="put the value in quotes"))
        else:
            pairs[name] = setting
    if flaws:
        raise Refused(*flaws)
    return pairs


def _env_items(value: Any, where: Where) -> list[Any]:
    """Names and assignments; a comma may be part of a value, so an assignment in text has its line to itself."""
    if not where.text:
        return items_of(value, where)
    lines = [
        line for text in (value if isinstance(value, tuple | list) else [value]) for line in str(text).splitlines()
    ]
    return [item for line in lines for item in ([line.strip()] if "=" in line else items_of(line, where)) if item]


def _name_and_value(item: Any) -> tuple[Any, str | None]:
    if isinstance(item, str) and "=" in item:
        name, _, value = item.partition("=")
        return name.strip(), value
    return item, None


_NO_JOB_VARIABLE: Final = {"not": {"pattern": JOB_VARIABLE_PATTERN}}
_ENV_NAME: Final = {"type": "string", "pattern": f"^{_NAME.pattern}(=.*)?$", **_NO_JOB_VARIABLE}
ENV: Final = Kind(
    "names, or NAME: value",
    {
        "anyOf": [
            _ENV_NAME,
            {"type": "array", "items": _ENV_NAME},
            {
                "type": "object",
                "propertyNames": {"pattern": f"^{_NAME.pattern}$", **_NO_JOB_VARIABLE},
                "additionalProperties": {"type": ["string", "null"]},
            },
        ]
    },
    _env,
)

THRESHOLD_ON: Final = choice("regression", "case", "suite", "off")
MODE: Final = choice("blocking", "advisory", "off")
MAX_DROP: Final = amount(percent=False)
MAX_RISE: Final = amount(percent=True)

RULE_KINDS: Final[Mapping[str, Kind]] = {
    "mode": MODE,
    "threshold_on": THRESHOLD_ON,
    "max_drop": MAX_DROP,
    "max_rise": MAX_RISE,
}


def _sets(value: Any, where: Where) -> dict[str, str]:
    """Modes of eval sets: ``smoke: advisory``, or ``smoke=advisory`` per line as flags and inputs write it."""
    entries: Any = value
    if where.text:
        items = [part for one in items_of(value, where) for part in items_of(one, where)]
        split = [str(item).rpartition("=") for item in items]
        if bad := next((item for item, (name, _, _) in zip(items, split, strict=True) if not name), None):
            raise Refused(Flaw("must be like smoke=advisory", bad))
        entries = {name.strip(): mode.strip() for name, _, mode in split}
    if not isinstance(entries, Mapping):
        raise Refused(Flaw("must map eval sets to a mode", value))
    modes: dict[str, str] = {}
    flaws: list[Flaw] = []
    for name, mode in entries.items():
        try:
            modes[str(name)] = MODE.read(mode, where)
        except Refused as refused:
            flaws += _inside(refused, str(name))
    if flaws:
        raise Refused(*flaws)
    return modes


SETS: Final = Kind("mapping", {"type": "object", "additionalProperties": dict(MODE.schema)}, _sets)


def _rules(value: Any, where: Where) -> dict[str, dict[str, Any]]:
    """Rules per criterion, as given: what is not given stays out and is inherited later."""
    entries = _rules_of_text(value, where) if where.text else value
    if not isinstance(entries, Mapping):
        raise Refused(Flaw("must map criteria to their rules", value))
    rules: dict[str, dict[str, Any]] = {}
    flaws: list[Flaw] = []
    for criterion, given in entries.items():
        if not isinstance(criterion, str) or not isinstance(given, Mapping) or not given:
            flaws.append(Flaw(f"must have rules: {', '.join(RULE_KINDS)}", given, (criterion,)))
            continue
        rules[criterion] = {}
        for key, setting in given.items():
            if key not in RULE_KINDS:
                hint = did_you_mean(str(key), RULE_KINDS)
                flaws.append(Flaw(f"unknown rule {key!r}", at=(criterion, key), hint=hint))
                continue
            try:
                rules[criterion][key] = RULE_KINDS[key].read(setting, where)
            except Refused as refused:
                flaws += _inside(refused, criterion, key)
    if flaws:
        raise Refused(*flaws)
    return rules


def _rules_of_text(value: Any, where: Where) -> dict[str, dict[str, str]]:
    """``tokens.max_rise=10%`` per line, as flags and inputs write it."""
    rules: dict[str, dict[str, str]] = {}
    for item in [part for one in items_of(value, where) for part in items_of(one, where)]:
        left, equals, setting = str(item).partition("=")
        criterion, dot, key = left.strip().rpartition(".")
        if not (equals and dot and criterion):
            raise Refused(Flaw("must be like token_usage_v1.max_rise=10%", item))
        rules.setdefault(criterion, {})[key] = setting.strip()
    return rules


RULES: Final = Kind(
    "mapping",
    {
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": False,
            "properties": {name: dict(kind.schema) for name, kind in RULE_KINDS.items()},
        },
    },
    _rules,
)
