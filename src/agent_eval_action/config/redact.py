"""Patterns of what must not be stored, in RE2's syntax: its time is linear, whatever the pattern and the text are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from agent_eval_action.config.values import TEXT, Flaw, Kind, Refused, Where, or_list

if TYPE_CHECKING:
    import re

REDACTED: Final = "[redacted]"
_LONGEST: Final = 2_000
_TOLD: Final = 100
_SYNTAX: Final = "patterns are RE2's, without look-around and back-references: github.com/google/re2/wiki/Syntax"


def _patterns(value: Any, where: Where) -> tuple[str, ...]:
    """One pattern, or a list; in text one a line, for commas and spaces may be meant."""
    given = value if isinstance(value, list | tuple) else [value]
    flaws: list[Flaw] = []
    found: list[str] = []
    for index, item in enumerate(given):
        lines = item.splitlines() if where.text and isinstance(item, str) else [item]
        at = (index,) if isinstance(value, list) else ()
        for line in lines:
            if where.text and not line.strip():
                continue
            flaw = _flaw(line)
            if flaw is None:
                found.append(line.strip() if where.text else line)
            else:
                flaws.append(Flaw(flaw.message, line, at, flaw.hint))
    if flaws or not found:
        raise Refused(*flaws or [Flaw("must not be empty", value)])
    return tuple(found)


REDACT: Final = Kind("pattern or list", or_list(TEXT.schema), _patterns)


def _flaw(pattern: Any) -> Flaw | None:
    import re2  # type: ignore[import-untyped] # noqa: PLC0415 - ships no types; most runs have no patterns

    if not isinstance(pattern, str) or not pattern.strip():
        return Flaw("must be a regular expression")
    if len(pattern) > _LONGEST:
        return Flaw(f"is longer than {_LONGEST} characters")
    try:
        compiled = _compiled(pattern)
    except re2.error as error:
        said = error.args[0] if error.args else ""
        why = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        return Flaw(f"is no regular expression: {why}", hint=_SYNTAX)
    except UnicodeEncodeError:
        return Flaw("is no text")
    if compiled.search("") is not None:
        return Flaw("fits the empty text, and so between any two characters", hint="use + in the place of *")
    return None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    import re2  # noqa: PLC0415 - most runs have no patterns

    options = re2.Options()
    options.log_errors = False  # it would write to stderr by itself
    compiled: re.Pattern[str] = re2.compile(pattern, options)
    return compiled


def rewriting(patterns: Sequence[str], met: Callable[[list[str]], None] = lambda _: None) -> Callable[[str], str]:
    """What takes all that fits one of the patterns out of a text. ``met`` is told what that was."""
    compiled = [_compiled(pattern) for pattern in patterns]

    def rewrite(text: str) -> str:
        for pattern in compiled:
            found: list[str] = []

            def replace(match: re.Match[str], found: list[str] = found) -> str:
                if len(found) < _TOLD:
                    found.append(match.group())
                return REDACTED

            try:
                text = pattern.sub(replace, text)
            except UnicodeEncodeError:  # a lone surrogate, which UTF-8 has no bytes for
                text = pattern.sub(replace, text.encode("utf-8", "replace").decode())
            met(found)
        return text

    return rewrite
