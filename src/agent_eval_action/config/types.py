"""Variables of the CI job itself. They carry its tokens and decide what its later steps do, so no agent gets them."""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent_eval_action.diagnostics.reader import did_you_mean, shorten
from agent_eval_action.errors import Problem

_PREFIXES: Final = ("ACTIONS", "AGENT_EVAL", "GITHUB", "INPUT", "RUNNER")
_NAMES: Final = (
    "GH_ENTERPRISE_TOKEN",  # what GitHub's own command line reads
    "GH_TOKEN",
    "BITBUCKET_STEP_OIDC_TOKEN",
    "BUILDKITE_AGENT_ACCESS_TOKEN",
    "CIRCLE_OIDC_TOKEN",
    "CIRCLE_OIDC_TOKEN_V2",
    "CI_DEPENDENCY_PROXY_PASSWORD",  # GitLab's
    "CI_DEPLOY_PASSWORD",
    "CI_JOB_JWT",
    "CI_JOB_JWT_V2",
    "CI_JOB_TOKEN",
    "CI_REGISTRY_PASSWORD",
    "SYSTEM_ACCESSTOKEN",  # Azure Pipelines'
)
JOB_VARIABLE_PATTERN: Final = f"^((?:{'|'.join(_PREFIXES)})_|(?:{'|'.join(_NAMES)})(?:=|$))"
"""A regular expression that JSON Schema understands too. It matches a name, or ``NAME=value``."""

# On Windows the names of variables have no case.
_MATCHES: Final = re.compile(JOB_VARIABLE_PATTERN, re.IGNORECASE if os.name == "nt" else 0)


def is_job_variable(name: str) -> bool:
    """Whether the variable belongs to the CI job, so that nothing a change brings along may see it."""
    return bool(_MATCHES.match(name))


_UNSAID: Final = object()


@dataclass(frozen=True, slots=True)
class Where:
    """Where a value was written: ``base`` is the folder its relative paths start from.

    ``path`` is how a person finds it: the file, ``INPUT_FAIL-ON`` or ``--fail-on``. ``text`` says that
    it is text from a flag or variable and not a YAML value; ``search_path`` is the PATH to look on.
    """

    base: Path
    path: Path
    line: int | None = None
    text: bool = False
    search_path: str | None = None

    @property
    def label(self) -> str:
        """``path:line`` where there is a line."""
        return str(self.path) if self.line is None else f"{self.path}:{self.line}"

    def problem(self, message: str, **fields: Any) -> Problem:
        """A problem with what was written here."""
        return Problem(self.path, message, self.line, **fields)


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing wrong inside a value; ``at`` leads from the value to the place."""

    message: str
    value: Any = _UNSAID
    at: tuple[str | int, ...] = ()
    hint: str | None = None

    @property
    def shown(self) -> str | None:
        """The offending value, short enough for one line; None where there is nothing to show."""
        if self.value is _UNSAID:
            return None
        return shorten(self.value)


class Refused(Exception):  # noqa: N818 - it carries flaws, it is not one error
    """A value that cannot be used, with every reason."""

    def __init__(self, *flaws: Flaw) -> None:
        super().__init__("; ".join(flaw.message for flaw in flaws))
        self.flaws = flaws


Reader = Callable[[Any, Where], Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """What a value may be: ``label`` for people, ``schema`` for editors, ``read`` for us."""

    label: str
    schema: Mapping[str, Any]
    read: Reader
    choices: tuple[str, ...] = field(default=())


def _text(value: Any, _: Where) -> str:
    if not isinstance(value, str):
        hint = "put it in quotes" if isinstance(value, bool | int | float) else None
        raise Refused(Flaw("must be text", value, hint=hint))
    if "\0" in value:
        raise Refused(Flaw("must not hold a NUL character", value))
    if not value.strip():
        raise Refused(Flaw("must not be empty", value))
    return value


TEXT: Final = Kind("text", {"type": "string", "minLength": 1}, _text)


_NAME: Final = r"(?!\.{1,2}$)[^/\\\x00-\x1f\x7f]{1,200}"


def _name(value: Any, where: Where) -> str:
    name = _text(value, where)
    if not re.fullmatch(_NAME, name) or not name.isprintable():
        raise Refused(Flaw("must be a name: at most 200 printable characters, no / or \\", value))
    return name


NAME: Final = Kind("name", {"type": "string", "minLength": 1, "pattern": f"^{_NAME}$"}, _name)


def _path(value: Any, where: Where) -> Path:
    return where.base / _text(value, where)


PATH: Final = Kind("path", {"type": "string", "minLength": 1}, _path)


_BRANCH: Final = r"(?!.*(\.\.|//|@\{|\.lock(/|$)|/\.))[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}(?<![./])"


def _branch(value: Any, where: Where) -> str:
    name = _text(value, where)
    if not re.fullmatch(_BRANCH, name, re.ASCII):
        raise Refused(Flaw("must be a name git takes: letters, digits, - _ . /", value))
    return name


BRANCH: Final = Kind("name", {"type": "string", "pattern": f"^{_BRANCH}$"}, _branch)


def _boolean(value: Any, where: Where) -> bool:
    if where.text and isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if not isinstance(value, bool):
        raise Refused(Flaw("must be true or false", value))
    return value


BOOLEAN: Final = Kind("true or false", {"type": "boolean"}, _boolean)


def choice(*choices: str) -> Kind:
    """One of a few words."""

    def read(value: Any, where: Where) -> str:
        word = value.strip().lower() if where.text and isinstance(value, str) else value
        if isinstance(word, str) and word in choices:
            return word
        hint = did_you_mean(word, choices) if isinstance(word, str) else None
        raise Refused(Flaw(f"must be one of {', '.join(choices)}", value, hint=hint))

    return Kind(" or ".join(f"`{word}`" for word in choices), {"enum": list(choices)}, read, choices)


def integer(minimum: int, maximum: int) -> Kind:
    """A whole number; the maximum is there to catch slips of the finger, not to ration."""

    def read(value: Any, where: Where) -> int:
        number = _number_of_text(value) if where.text else value
        whole = isinstance(number, int) or (isinstance(number, float) and number.is_integer())
        if not whole or isinstance(number, bool) or not minimum <= number <= maximum:
            raise Refused(Flaw(f"must be a whole number from {minimum} to {maximum}", value))
        return int(number)

    return Kind("whole number", {"type": "integer", "minimum": minimum, "maximum": maximum}, read)


def _number_of_text(text: Any) -> Any:
    """The number a text is, else the text without blanks around it."""
    plain = str(text).strip().lower()
    for number in (int, float):
        try:
            return number(plain)
        except ValueError:
            continue
    return plain


_DURATION: Final = re.compile(
    r"(?=.*[1-9])(?:(\d{1,6}(?:\.\d{1,6})?)h)?(?:(\d{1,6}(?:\.\d{1,6})?)m)?(?:(\d{1,6}(?:\.\d{1,6})?)s)?", re.ASCII
)
_LONGEST: Final = 35 * 24 * 3600  # a self-hosted job may run 35 days


def _duration(value: Any, where: Where) -> float:
    number = _number_of_text(value) if where.text else value
    if isinstance(number, str) and (match := _DURATION.fullmatch(number)):
        hours, minutes, seconds = (float(part or 0) for part in match.groups())
        number = hours * 3600 + minutes * 60 + seconds
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number <= _LONGEST:
        raise Refused(Flaw("must be a time like 45m, 90s, 1h30m or a number of seconds", value))
    return float(number)


DURATION: Final = Kind(
    "duration",
    {
        "anyOf": [
            {"type": "number", "exclusiveMinimum": 0, "maximum": _LONGEST},
            {"type": "string", "pattern": f"^{_DURATION.pattern}$"},
        ]
    },
    _duration,
)


def amount(*, percent: bool) -> Kind:
    """How much something may change: a number from 0, or none for no limit; ``percent`` also allows 10%."""
    example = "like 0.1 or 10%, or none" if percent else "like 0.05, or none"
    pattern = r"^(none|\d{1,6}(\.\d{1,6})?%)$" if percent else "^none$"

    def read(value: Any, where: Where) -> float | None:
        number = _number_of_text(value) if where.text else value
        if number is None or number == "none":
            return None
        if percent and isinstance(number, str) and re.fullmatch(pattern, number, re.ASCII):
            return float(number.removesuffix("%")) / 100
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < math.inf:
            raise Refused(Flaw(f"must be a number from 0 {example}", value))
        return float(number)

    schema = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": pattern}, {"type": "null"}]}
    return Kind("number" + (" or percent" if percent else ""), schema, read)


def fraction(least: float, most: float) -> Kind:
    """A number between two others, ends included."""

    def read(value: Any, where: Where) -> float:
        number = _number_of_text(value) if where.text else value
        if isinstance(number, bool) or not isinstance(number, int | float) or not least <= number <= most:
            raise Refused(Flaw(f"must be a number from {least:g} to {most:g}", value))
        return float(number)

    return Kind("number", {"type": "number", "minimum": least, "maximum": most}, read)


def items_of(value: Any, where: Where) -> list[Any]:
    """The entries of a list: YAML's, one alone, or text with one per line or separated by commas."""
    if where.text and isinstance(value, str):
        parts = value.splitlines() if "\n" in value.strip() else value.split(",")
        return [part.strip() for part in parts if part.strip()]
    return list(value) if isinstance(value, list | tuple) else [value]


def _texts(value: Any, where: Where) -> tuple[str, ...]:
    items = [part for item in items_of(value, where) for part in items_of(item, where)]
    flaws: list[Flaw] = []
    for index, item in enumerate(items):
        try:
            _text(item, where)
        except Refused as refused:
            at = (index,) if isinstance(value, list) else ()
            flaws += [Flaw(flaw.message, flaw.value, at, flaw.hint) for flaw in refused.flaws]
    if flaws:
        raise Refused(*flaws)
    return tuple(items)


def or_list(schema: Mapping[str, Any]) -> dict[str, Any]:
    """JSON Schema of one thing or a list of them."""
    return {"anyOf": [dict(schema), {"type": "array", "items": dict(schema), "minItems": 1}]}


TEXTS: Final = Kind("text or list", or_list(TEXT.schema), _texts)


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

_NAME_COMPOSITE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


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
        if not isinstance(name, str) or not _NAME_COMPOSITE.fullmatch(name):
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
_ENV_NAME: Final = {"type": "string", "pattern": f"^{_NAME_COMPOSITE.pattern}(=.*)?$", **_NO_JOB_VARIABLE}
ENV: Final = Kind(
    "names, or NAME: value",
    {
        "anyOf": [
            _ENV_NAME,
            {"type": "array", "items": _ENV_NAME},
            {
                "type": "object",
                "propertyNames": {"pattern": f"^{_NAME_COMPOSITE.pattern}$", **_NO_JOB_VARIABLE},
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


_MODEL = "gemini-2.5-flash"
EVERY_MODEL: Final = "*"
"""The key of a bound that holds for every model without one of its own."""

PRICE_KEYS: Final = ("input", "output", "cached_input")


def _dollars(value: Any, where: Where) -> float:
    try:
        number = float(value) if where.text else value
    except ValueError:
        number = None
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < math.inf:
        raise Refused(Flaw("must be an amount of USD like 2.50", value))
    return float(number)


USD: Final = Kind("number", {"type": "number", "exclusiveMinimum": 0}, _dollars)

_PER_MINUTE: Final = integer(1, 1_000_000_000)


def _rates(value: Any, where: Where) -> dict[str, int]:
    """One bound for every model, or a bound per model: a mapping, or ``MODEL=N`` as flags and inputs write it."""
    if where.text:
        items = items_of(value, where)
        value = items[0] if len(items) == 1 and "=" not in str(items[0]) else _of_text(items, where, f"{_MODEL}=600")
    if not isinstance(value, Mapping):
        return {EVERY_MODEL: _PER_MINUTE.read(value, where)}
    return _each(value, lambda bound: _PER_MINUTE.read(bound, where))


RATES: Final = Kind(
    "whole number, or one per model",
    {
        "anyOf": [
            dict(_PER_MINUTE.schema),
            {"type": "object", "additionalProperties": dict(_PER_MINUTE.schema)},
        ]
    },
    _rates,
)


def _prices(value: Any, where: Where) -> dict[str, dict[str, float]]:
    """USD per million tokens by model; in text ``MODEL=INPUT/OUTPUT`` or ``MODEL=INPUT/CACHED_INPUT/OUTPUT``."""
    if where.text:
        value = {model: _price_of_text(text) for model, text in _of_text(value, where, f"{_MODEL}=0.30/2.50").items()}
    if not isinstance(value, Mapping):
        raise Refused(Flaw("must map models to their price", value, hint=f"{_MODEL}: {{input: 0.30, output: 2.50}}"))
    return _each(value, _price)


_AMOUNT: Final = {"type": "number", "minimum": 0}
PRICES: Final = Kind(
    "mapping",
    {
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "additionalProperties": False,
            "required": ["input", "output"],
            "properties": dict.fromkeys(PRICE_KEYS, _AMOUNT),
        },
    },
    _prices,
)


def _price(value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise Refused(Flaw("must be a price like {input: 0.30, output: 2.50}", value))
    flaws: list[Flaw] = [
        Flaw(f"unknown key {key!r}", at=(key,), hint=did_you_mean(str(key), PRICE_KEYS))
        for key in value
        if key not in PRICE_KEYS
    ]
    flaws += [Flaw(f"lacks `{key}`, in USD per million tokens") for key in PRICE_KEYS[:2] if key not in value]
    for key in PRICE_KEYS:
        amount = value.get(key, 0.0)
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount < math.inf:
            flaws.append(Flaw("must be USD per million tokens", amount, (key,)))
    if flaws:
        raise Refused(*flaws)
    return {key: float(value[key]) for key in PRICE_KEYS if key in value}


def _price_of_text(text: str) -> dict[str, Any]:
    parts: list[Any] = []
    for part in text.split("/"):
        try:
            parts.append(float(part))
        except ValueError:
            parts.append(part)
    names = {2: ("input", "output"), 3: ("input", "cached_input", "output")}.get(len(parts))
    if names is None:
        raise Refused(Flaw("must be like 0.30/2.50 (input/output)", text))
    return dict(zip(names, parts, strict=True))


def _of_text(value: Any, where: Where, example: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in [part for one in items_of(value, where) for part in items_of(one, where)]:
        model, equals, said = str(item).rpartition("=")
        if not equals or not model.strip():
            raise Refused(Flaw(f"must be like {example}", item))
        found[model.strip()] = said.strip()
    return found


def _each(value: Mapping[Any, Any], read: Callable[[Any], Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    flaws: list[Flaw] = []
    for model, said in value.items():
        if not isinstance(model, str) or not model.strip():
            flaws.append(Flaw("is no name of a model", model))
            continue
        try:
            made[model] = read(said)
        except Refused as refused:
            flaws += [Flaw(flaw.message, flaw.value, (model, *flaw.at), flaw.hint) for flaw in refused.flaws]
    if flaws:
        raise Refused(*flaws)
    return made
