"""The kinds of value an option can have: read from YAML or text, and said as JSON Schema.

A reader gets what YAML or a person wrote and returns the value or raises ``Refused``; it never
guesses: ``repeats: "3"`` in YAML is refused, while the text ``3`` of a flag or input is a number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent_eval_action.errors import Problem
from agent_eval_action.source import did_you_mean, shorten

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
