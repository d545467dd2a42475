"""A sentence in which names are marked, so that each format shows and escapes them in its own way."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_eval_action.reports.formatting import clean
from agent_eval_action.results.findings import excerpt


class Name(str):
    """A name of a case, a criterion, a file or an option: shown in code type."""

    __slots__ = ()

    @classmethod
    def shortened(cls, text: str, limit: int) -> Name:
        """``text`` on one line of at most ``limit`` characters."""
        return cls(excerpt(text, limit))


@dataclass(frozen=True, slots=True)
class Prose:
    """Parts of a sentence in order; a ``Name`` among them is shown in code type."""

    parts: tuple[str, ...] = ()

    @classmethod
    def join(cls, *parts: str) -> Prose:
        return cls(tuple(part for part in parts if part))

    @classmethod
    def marked(cls, text: str) -> Prose:
        """``text`` in which backticks mark names."""
        return cls.join(*(Name(part) if number % 2 else part for number, part in enumerate(text.split("`"))))

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __str__(self) -> str:
        """As text in which backticks mark names."""
        return self.render(str, lambda name: f"`{name}`")

    def cleaned(self, limit: int) -> Prose:
        """On one line, without control characters, of at most ``limit`` characters."""
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
        """As text without marks."""
        return self.render(str, str)

    @property
    def sentence(self) -> Prose:
        """With a capital letter and a full stop; a name at the beginning stays as it is."""
        if not self.parts:
            return self
        first, last = self.parts[0], self.parts[-1]
        parts = [first if isinstance(first, Name) else first[:1].upper() + first[1:], *self.parts[1:]]
        return joined(
            parts if last.rstrip().endswith((".", "!", "?")) and not isinstance(last, Name) else [*parts, "."], ""
        )

    def render(self, text: Callable[[str], str], name: Callable[[str], str]) -> str:
        """As one string: names through ``name``, the words between them through ``text``."""
        return "".join(name(str(part)) if isinstance(part, Name) else text(part) for part in self.parts)


def joined(parts: Iterable[Prose | str], separator: str) -> Prose:
    """One sentence of several parts; empty ones are left out."""
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
    """A sentence with ``{value}`` fields, each text, a name or a sentence of its own."""
    found: list[Prose | str] = []
    for text, field, _, _ in string.Formatter().parse(template):
        found.append(text)
        if field is not None:
            value = values[field]
            found.append(Prose.join(value) if isinstance(value, Name) else value)
    return joined(found, "")


def listed(items: Sequence[Prose | str], total: int | None = None) -> Prose:
    """``a, b, c`` and how many more, where there are ``total``."""
    more = (total or 0) - len(items)
    return joined([joined(items, ", "), f" and {more:,} more" if more > 0 else ""], "")


def names(found: Iterable[str], total: int | None = None, limit: int = 80) -> Prose:
    """Names in code type, and how many more there are."""
    return listed([Prose.join(Name.shortened(name, limit)) for name in found], total)


def pairs(
    references: Iterable[Mapping[str, Any]], total: int, tail: Callable[[Mapping[str, Any]], str] = lambda _: ""
) -> Prose:
    """``case › criterion`` with what ``tail`` says of each."""
    found = [joined([Prose.join(_pair_name(one["case"], one["criterion"])), tail(one)], "") for one in references]
    return listed(found, total)


def _pair_name(case: str, criterion: str | None, limit: int = 60) -> Name:
    return Name(" › ".join(Name.shortened(part, limit) for part in (case, criterion) if part))


def verb(many: int, one_form: str, form: str) -> str:
    """The form of a verb for so many."""
    return one_form if many == 1 else form
