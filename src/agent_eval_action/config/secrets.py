"""Patterns of what must not be stored, in RE2's syntax: its time is linear, whatever the pattern and the text are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from agent_eval_action.config.types import TEXT, Flaw, Kind, Refused, Where, or_list
from agent_eval_action.results.redaction import LEAST

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


_SAY_SO: Final = re.compile(
    r"(?:^|[^A-Z0-9])(?:APIKEY|AUTH|AUTHORIZATION|COOKIE|CREDENTIALS?|DSN|KEYS?|PASS|PASSPHRASE|PASSWD|PASSWORD|PAT"
    r"|PRIVATE|PWD|SECRETS?|SIGNATURE|TOKENS?|WEBHOOK)(?:$|[^A-Z0-9])"
)
_COUNT: Final = re.compile(r"[\d_.,]{1,12}")
_OF_A_PERSON: Final = re.compile("PASS|PWD|SECRET")
_A_PLACE: Final = re.compile("(?:CREDENTIALS|DIR|FILE|PATH|SOCK)$")  # else it may be base64 that begins with a slash
_LOOKS_FROM: Final = 8
_PLAIN: Final = re.compile(
    r"[+-]?[\d.,:_]+(?:ms|s|m|h|d)?"  # numbers, times, versions
    r"|[A-Za-z]+(?:[-_. /][A-Za-z]+)*"  # words: production, us-central, my agent
    r"|(?:gemini|gpt|claude|models|openai|anthropic|vertex_ai)[-/A-Za-z0-9._@:]*"  # models
    r"|[a-z]+(?:-[a-z]+)+\d"  # regions: us-central1
    r"|(?:\.{0,2}/|~/)[\w@./+ -]*"  # paths
    r"|[a-z][a-z0-9+.-]*://[^/@\s?#]+(?:/[^@?#\s]*)?",  # addresses that hold no name and no query
)
_NO_SECRET: Final = frozenset(
    {"GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_QUOTA_PROJECT", "PWD", "OLDPWD"}
    | {"COMMENT_KEY"}  # the name of a section of the comment
)
_LISTS: Final = ("ENV", "INSTALL_ENV", "AGENT_ENV", "AGENT_INSTALL_ENV")


def is_secret(name: str, value: str) -> bool:
    """Whether the value of a variable of this name is to be in no log and no file."""
    value = value.strip()
    if len(value) < LEAST or name.upper() in _NO_SECRET or value.lower() in {"default", "disabled", "enabled"}:
        return False
    if _says_so(name):
        if _COUNT.fullmatch(value) and not _OF_A_PERSON.search(name.upper()):
            return False  # tokens per minute, and how many keys
        return not (_A_PLACE.search(name.upper()) and value.startswith(("/", "./", "../", "~/")) and "\n" not in value)
    return len(value) >= _LOOKS_FROM and not _PLAIN.fullmatch(value)


def secrets_in(variables: Mapping[str, str]) -> Iterator[str]:
    """The secrets among variables that were given on purpose: a `.env`, an agent's ``env``."""
    return (value for name, value in variables.items() if is_secret(name, value))


def secrets_around(environ: Mapping[str, str]) -> Iterator[str]:
    """The secrets of a whole environment, where only a name that says so counts, and of the inputs that are lists."""
    for name, value in environ.items():
        given = name.removeprefix("INPUT_").replace("-", "_") if name.startswith("INPUT_") else None
        if given in _LISTS:
            yield from secrets_in(dict(_pairs(value.splitlines())))
        elif _says_so(given or name) and is_secret(given or name, value):
            yield value


def _pairs(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, given, value = line.partition("=")
        if given:
            yield name.strip(), value


def _says_so(name: str) -> bool:
    return bool(_SAY_SO.search(name.upper()))
