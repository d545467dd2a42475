"""Numbers, labels and sentences as every output shows them: the comment, the JUnit file, the terminal."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from agent_eval_action.diagnostics import suggestions
from agent_eval_action.results.decision import CriterionChange, PairChange, Unit
from agent_eval_action.results.findings import excerpt
from agent_eval_action.results.run_result import CriterionInfo, Goal, Totals

MINUS: Final = "\N{MINUS SIGN}"
NONE: Final = "–"
plural = suggestions.plural
_HUGE, _LARGE, _TENS = 10**15, 1e7, 10
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


@lru_cache(maxsize=4_096)
def number(value: float | None, unit: Unit = "score") -> str:
    """Format a value: ``0.83``, ``1,234`` tokens, ``1.25 s``, ``$0.0123``; a small score is not rounded to 0."""
    if value is None:
        return NONE
    text = _magnitude(abs(value), unit)
    if unit == "score" and value and not _is_visible(text):
        text = f"{abs(value):.3g}"
    return f"{MINUS}{text}" if value < 0 and _is_visible(text) else text


def numbers(one: float, other: float, unit: Unit = "score") -> tuple[str, str]:
    """Format two values; scores get as many digits as it takes to tell them apart."""
    short = number(one, unit), number(other, unit)
    if unit != "score" or short[0] != short[1] or one == other:
        return short
    for digits in (3, 4, 6, 9, 12, 17):
        long = f"{one:.{digits}g}", f"{other:.{digits}g}"
        if long[0] != long[1]:
            return long
    return repr(one), repr(other)


def signed(value: float | None, unit: Unit = "score") -> str:
    """Format a change with its sign; without one if it rounds to zero."""
    if value is None:
        return NONE
    text = _magnitude(abs(value), unit)
    return f"{MINUS if value < 0 else '+'}{text}" if _is_visible(text) else text


def interval(row: CriterionChange | PairChange) -> str:
    """Format the interval of a change: ``+0.05…+0.19``; "" if there is none or its ends look the same."""
    if row.interval is None or row.change is None:
        return ""
    low, high = (signed(end, row.unit) for end in row.interval)
    return f"{low}…{high}" if low != high else ""


def detectable(row: CriterionChange) -> str:
    """Say which drop this run would have noticed: ``notices a drop of 0.06``, or none."""
    if row.detectable is None:
        return ""
    if row.baseline is not None and row.detectable > row.baseline:
        return "has too few runs to notice a drop"
    return f"notices a drop of {number(row.detectable, row.unit)}"


def count(value: int | None) -> str:
    """Format a whole number with thousands separators."""
    if value is None:
        return NONE
    return f"{value:,}".replace("-", MINUS) if abs(value) < _HUGE else f"over {_HUGE:,}"


def attempts(totals: Totals) -> str:
    """Count attempts by purpose: ``62 attempts: 50 + 12 re-runs, 6 control``."""
    text = plural(totals.attempts, "attempt")
    if totals.extra:
        text += f": {count(totals.attempts - totals.extra)} + {plural(totals.extra, 're-run')}"
    return f"{text}, {count(totals.control)} control" if totals.control else text


def duration(seconds: float) -> str:
    """Format seconds: ``0.8 s``, ``34 s``, ``2 min 5 s``, ``1 h 3 min``, ``3 days``."""
    seconds = max(0.0, seconds)
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{seconds:.1f} s" if whole < _TENS else f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min" if whole < 2 * _DAY else age(whole)


def age(seconds: float) -> str:
    """Format an age coarsely: ``under a minute``, ``20 min``, ``5 h``, ``3 days``."""
    whole = int(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE} min" if whole >= _MINUTE else "under a minute"
    return f"{whole // _HOUR} h" if whole < 2 * _DAY else f"{count(whole // _DAY)} days"


def limits(row: CriterionChange | PairChange | CriterionInfo) -> str:
    """Format the limits of a criterion or a pair: ``≥ 0.8, max drop 0.05``."""
    most = ""
    if isinstance(row, CriterionChange) and row.max_drop is not None:
        most = f"max drop {row.max_drop:g}"
    elif isinstance(row, CriterionChange) and row.max_rise is not None:
        most = f"max rise {row.max_rise * 100:g} %"
    return ", ".join(filter(None, (threshold(row.threshold, row.goal, row.unit), most))) or NONE


def threshold(value: float | None, goal: Goal, unit: Unit = "score") -> str:
    """Format a threshold: ``≥ 0.8``; "" without one."""
    if value is None:
        return ""
    return f"{'≤' if goal == 'minimize' else '≥'} {f'{value:g}' if unit == 'score' else number(value, unit)}"


def criterion_place(source: str, line: int | None) -> str:
    """Return where a criterion is configured."""
    return "ADK's default" if source == "default" else place(source, line)


def place(path: str, line: int | None) -> str:
    """Return ``path:line``, or the path alone."""
    return f"{path}:{line}" if line else path


def is_worse(row: CriterionChange | PairChange) -> bool:
    """Return whether it changed in the wrong direction."""
    return row.change is not None and (row.change > 0 if row.goal == "minimize" else row.change < 0)


def is_better(row: CriterionChange | PairChange) -> bool:
    """Return whether it changed in the right direction."""
    return bool(row.change) and not is_worse(row)


def pair_text(pair: PairChange) -> str:
    """Format a pair's means: ``0.90 → 0.40``, or the one that is known."""
    if pair.baseline is not None and pair.current is not None:
        return " → ".join(numbers(pair.baseline.mean, pair.current.mean, pair.unit))
    side = pair.baseline or pair.current
    return number(side.mean if side else None, pair.unit)


_UNITS: Final = {"tokens": "{:,.0f}", "calls": "{:,.1f}", "seconds": "{:,.2f} s", "usd": "${:,.4f}"}


def _magnitude(value: float, unit: Unit) -> str:
    if value >= _HUGE:
        return f"{value:.3g}"
    if unit in _UNITS:
        return _UNITS[unit].format(value)
    if value >= _LARGE:
        return f"{value:.4g}"
    text = f"{value:,.2f}"
    return text.removesuffix(".00") if value >= _TENS else text


def _is_visible(text: str) -> bool:
    return any(digit in "123456789" for digit in text)


_ANSI = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC, DCS and their like: titles, hyperlinks
    r"|\x1b[ -/]*[0-~]"
)
# Characters outside printable ASCII and the common scripts; each is checked by its category.
_SUSPECT = re.compile(r"[^\n\x20-\x7e\u00a1-\u00ac\u00ae-\u02ff\u0370-\u058f\u3040-\ud7ff\uf900-\ufaff]")
_JOINERS = "\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"  # emoji and Indic scripts need them
_NONCHARACTER = 0xFFFE  # the last two code points of every plane
_ARABIC_NONCHARACTERS = frozenset(map(chr, range(0xFDD0, 0xFDF0)))
_CUT = "…"


def clean(text: str, limit: int | None = None, *, lines: bool = False) -> str:
    r"""Remove escape sequences and control characters; join lines unless ``lines``.

    Bidirectional marks, other invisible format characters and private-use ones are shown like ``\u202e``; lone
    surrogates and noncharacters become U+FFFD. Text over ``limit`` characters is cut, with an ellipsis.
    """
    if limit is not None and len(text) > 4 * limit:
        text = text[: 4 * limit]
        text += _CUT
    if not (text.isascii() and text.isprintable()):  # a fast path for most texts: every report cleans all of its texts
        text = _ANSI.sub("", text)
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        text = _SUSPECT.sub(lambda found: _visible(found.group()), text)
    text = text if lines else " ".join(text.split())
    return text if limit is None or len(text) <= limit else text[: limit - 1].rstrip() + _CUT


def _visible(char: str) -> str:
    category = unicodedata.category(char)
    if char == "\t":
        return "    "
    if category in {"Zl", "Zp"} or char == "\x85":
        return "\n"
    if category == "Cc":
        return ""
    if category == "Cs" or ord(char) & _NONCHARACTER == _NONCHARACTER or char in _ARABIC_NONCHARACTERS:
        return "\N{REPLACEMENT CHARACTER}"
    if (category == "Cf" and char not in _JOINERS) or category == "Co":
        return f"\\u{ord(char):04x}"
    return char


# --- sentences with marked names, which each format shows in its own way ---------------------------


class Name(str):
    """The name of a case, a criterion, a file or an option, shown in code type."""

    __slots__ = ()

    @classmethod
    def shortened(cls, text: str, limit: int) -> Name:
        """Shorten ``text`` to one line of at most ``limit`` characters."""
        return cls(excerpt(text, limit))


@dataclass(frozen=True, slots=True)
class Prose:
    """The parts of a sentence; those of type ``Name`` are shown in code type."""

    parts: tuple[str, ...] = ()

    @classmethod
    def join(cls, *parts: str) -> Prose:
        return cls(tuple(part for part in parts if part))

    @classmethod
    def marked(cls, text: str) -> Prose:
        """Parse ``text`` in which backticks mark names."""
        return cls.join(*(Name(part) if number % 2 else part for number, part in enumerate(text.split("`"))))

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __str__(self) -> str:
        """Return text in which backticks mark names."""
        return self.render(str, lambda name: f"`{name}`")

    def cleaned(self, limit: int) -> Prose:
        """Return it on one line of at most ``limit`` characters, without control characters."""
        found: list[str] = []
        for part in self.parts:
            kind = Name if isinstance(part, Name) else str
            text = clean(part, limit)
            if kind is str and text:
                text = f"{' ' * part[:1].isspace()}{text}{' ' * part[-1:].isspace()}"
            elif kind is str and part.isspace():
                text = " "
            if len(text) > limit:
                return Prose((*found, kind(f"{text[: max(0, limit - 1)]}…")))
            limit -= len(text)
            found.append(kind(text))
        return Prose(tuple(found))

    @property
    def plain(self) -> str:
        """The text without marks."""
        return self.render(str, str)

    @property
    def sentence(self) -> Prose:
        """Add a capital letter and a full stop; a name at the beginning is not capitalised."""
        if not self.parts:
            return self
        first, last = self.parts[0], self.parts[-1]
        parts = [first if isinstance(first, Name) else first[:1].upper() + first[1:], *self.parts[1:]]
        return joined(
            parts if last.rstrip().endswith((".", "!", "?")) and not isinstance(last, Name) else [*parts, "."], ""
        )

    def render(self, text: Callable[[str], str], name: Callable[[str], str]) -> str:
        """Return one string: names converted by ``name``, other words by ``text``."""
        return "".join(name(str(part)) if isinstance(part, Name) else text(part) for part in self.parts)


def joined(parts: Iterable[Prose | str], separator: str) -> Prose:
    """Join parts into one sentence; leave out empty ones."""
    found: list[str] = []
    for part in parts:
        if not part:
            continue
        if found and separator:
            found.append(separator)
        found.extend(part.parts if isinstance(part, Prose) else (part,))
    merged: list[str] = []
    for text in found:
        if merged and not isinstance(text, Name) and not isinstance(merged[-1], Name):
            merged[-1] += text
        else:
            merged.append(text)
    return Prose(tuple(merged))


def compose(template: str, **values: Prose | str) -> Prose:
    """Fill the ``{value}`` fields of a template with texts, names or sentences."""
    return filled(template, lambda field, _: values[field])


def filled(template: str, value: Callable[[str, str], Prose | str]) -> Prose:
    """Fill a template whose fields are formatted by ``value`` (name and format of the field)."""
    found: list[Prose | str] = []
    for text, field, form, _ in string.Formatter().parse(template):
        found += [text] if field is None else [text, value(field, form or "")]
    return joined(found, "")


def listed(items: Sequence[Prose | str], total: int | None = None) -> Prose:
    """List items: ``a, b, c``, and how many more of ``total`` there are."""
    more = (total or 0) - len(items)
    return joined([joined(items, ", "), f" and {more:,} more" if more > 0 else ""], "")


def names(found: Iterable[str], total: int | None = None, limit: int = 80) -> Prose:
    """List names in code type, and how many more of ``total`` there are."""
    return listed([Name.shortened(name, limit) for name in found], total)


def pairs(
    references: Iterable[Mapping[str, Any]], total: int, tail: Callable[[Mapping[str, Any]], str] = lambda _: ""
) -> Prose:
    """List pairs as ``case › criterion``, each followed by its ``tail``."""
    found = []
    for pair in references:
        parts = [Name.shortened(part, 60) for part in (pair["case"], pair["criterion"]) if part]
        found.append(joined([Name(" › ".join(parts)), tail(pair)], ""))
    return listed(found, total)


def verb(many: int, one_form: str, form: str) -> str:
    """Return the form of a verb for this number of things."""
    return one_form if many == 1 else form
