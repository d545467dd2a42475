"""Recognise secrets, and remove them and the matches of users' patterns from everything that is stored or shown."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, Literal, TypeVar, cast, get_origin

HIDDEN: Final = "***"
"""Replaces a secret."""
REDACTED: Final = "[redacted]"
"""Replaces a match of a user's pattern."""
MIN_LENGTH: Final = 6
"""The fewest characters of a secret. Shorter values occur in many lines by chance."""
_CUT_MARK: Final = "…"
_LONGEST_CUT_TEXT: Final = 20_000  # texts with an excerpt are no longer
_LONGEST_BEGINNING: Final = 300
_MAX_ALIKE: Final = 100
_MAX_MATCHES: Final = 100

# Not redacted: names, by which results are found, and values that are no text but that a pattern may match by chance,
# for example times and versions.
_KEPT_FIELDS: Final = frozenset(
    {"agent", "eval_set", "case", "criterion", "path", "commit", "id", "invocation_id", "rubric_id", "digest", "role"}
    | {"case_digest", "packages_digest", "scoring_version", "tool_version", "started_at", "created_at", "mime_type"}
    | {"fail_on", "threshold_on", "within"}
)

_Value = TypeVar("_Value")


def pieces(value: str) -> tuple[str, ...]:
    """Return the texts to hide for a value: the whole, and each of its lines, since logs show lines."""
    lines = [line.strip() for line in value.splitlines()]
    found = dict.fromkeys(piece for piece in (value.strip(), *lines) if len(piece) >= MIN_LENGTH)
    return tuple(found)


class Redaction:
    """The values and patterns to hide in this process. More are added when they become known."""

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self._secrets: re.Pattern[str] | None = None
        self._patterns: list[re.Pattern[str]] = []
        self._beginnings: dict[str, list[str]] = {}

    def hide(self, values: Iterable[str]) -> tuple[str, ...]:
        """Hide these values from now on; return the texts to hide that are new."""
        new = dict.fromkeys(piece for value in values for piece in pieces(value) if piece not in self._texts)
        if new:
            self._texts.update(new)
            longest_first = sorted(self._texts, key=lambda piece: (-len(piece), piece))
            self._secrets = re.compile("|".join(map(re.escape, longest_first)))
            self._remember_beginnings(new)
        return tuple(new)

    def hide_matches(self, patterns: Iterable[str]) -> None:
        """Hide the matches of these users' patterns from now on. Raises re2.error or UnicodeEncodeError."""
        self._patterns += (found for found in map(compile_pattern, patterns) if found not in self._patterns)

    def _remember_beginnings(self, found: Iterable[str]) -> None:
        """Remember the beginnings of hidden texts, since a sentence may quote an excerpt that ends inside one."""
        for piece in found:
            known = self._beginnings.setdefault(piece[:MIN_LENGTH], [])
            if len(piece) > MIN_LENGTH and piece[:_LONGEST_BEGINNING] not in known and len(known) < _MAX_ALIKE:
                known.append(piece[:_LONGEST_BEGINNING])

    def text(self, text: str) -> str:
        """Return ``text`` without what is to be hidden."""
        if self._secrets is not None:
            text = self._secrets.sub(HIDDEN, text)
        for pattern in self._patterns:
            text = self._without_matches(pattern, text)
        return self._without_cuts(text) if _CUT_MARK in text and len(text) <= _LONGEST_CUT_TEXT else text

    def _without_matches(self, pattern: re.Pattern[str], text: str) -> str:
        found: list[str] = []

        def replace(match: re.Match[str]) -> str:
            if len(found) < _MAX_MATCHES:
                found.append(match.group())
            return REDACTED

        try:
            text = pattern.sub(replace, text)
        except UnicodeEncodeError:  # a lone surrogate, which UTF-8 has no bytes for
            text = pattern.sub(replace, text.encode("utf-8", "replace").decode())
        self._remember_beginnings(found)
        return text

    def _without_cuts(self, text: str) -> str:
        """Return ``text`` without beginnings of hidden texts before the mark of a cut."""
        parts = text.split(_CUT_MARK)
        for number, part in enumerate(parts[:-1]):
            for start in range(max(len(part) - _LONGEST_BEGINNING, 0), len(part) - MIN_LENGTH + 1):
                left = part[start:]
                if any(piece.startswith(left) for piece in self._beginnings.get(left[:MIN_LENGTH], ())):
                    parts[number] = part[:start] + HIDDEN
                    break
        return _CUT_MARK.join(parts)

    def data(self, data: bytes) -> bytes:
        """Return ``data`` without what is to be hidden; it need not be valid UTF-8."""
        return self.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def value(self, value: _Value) -> _Value:
        """Return a model or a JSON value with every text in it redacted; the same object if nothing is hidden."""
        if self._secrets is None and not self._patterns:
            return value
        return cast("_Value", self._redact(value))

    def _redact(self, value: Any) -> Any:
        kind: Any = type(value)
        if kind is str:
            shown = self.text(value)
            return value if shown == value else shown
        # models are recognised by an attribute, since importing pydantic would double the time of --help
        if hasattr(kind, "model_fields"):
            kept = _kept_fields(kind)
            fields = {name: getattr(value, name) for name in kind.model_fields if name not in kept}
            fields |= {name: item for name, item in (value.model_extra or {}).items() if name not in kept}
            new = {name: self._redact(item) for name, item in fields.items()}
            changed = {name: item for name, item in new.items() if item is not fields[name]}
            return value.model_copy(update=changed) if changed else value
        if isinstance(value, dict):
            items = [(self._redact(key), self._redact(item)) for key, item in value.items()]
            same = all(a is b and x is y for (a, x), (b, y) in zip(items, value.items(), strict=True))
            return value if same else dict(items)
        if kind in (list, tuple):
            new_items = [self._redact(item) for item in value]
            same = all(map(operator.is_, new_items, value))
            return value if same else kind(new_items)
        return value


@cache
def _kept_fields(model: type[Any]) -> frozenset[str]:
    """Return the fields that are not redacted: ``_KEPT_FIELDS``, and literals, which could not be read again."""
    return _KEPT_FIELDS | {
        name for name, field in model.model_fields.items() if get_origin(field.annotation) is Literal
    }


_LONGEST_PATTERN: Final = 2_000
_SYNTAX: Final = "patterns are RE2's, without look-around and back-references: github.com/google/re2/wiki/Syntax"


def pattern_problem(pattern: Any) -> tuple[str, str | None] | None:
    """Return why a user's pattern cannot be used, with a hint or None; None if it can.

    The syntax is RE2's, which takes linear time for every pattern and text.
    """
    import re2  # type: ignore[import-untyped] # noqa: PLC0415 - ships no types; most runs have no patterns

    if not isinstance(pattern, str) or not pattern.strip():
        return "must be a regular expression", None
    if len(pattern) > _LONGEST_PATTERN:
        return f"is longer than {_LONGEST_PATTERN} characters", None
    try:
        compiled = compile_pattern(pattern)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        return f"is no regular expression: {text}", _SYNTAX
    except UnicodeEncodeError:
        return "is no text", None
    if compiled.search("") is not None:
        return "fits the empty text, and so between any two characters", "use + in the place of *"
    return None


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern for searching in linear time. Raises re2.error or UnicodeEncodeError."""
    import re2  # noqa: PLC0415 - most runs have no patterns

    options = re2.Options()
    options.log_errors = False  # RE2 itself would write to stderr
    compiled: re.Pattern[str] = re2.compile(pattern, options)
    return compiled


_SECRET_NAME: Final = re.compile(
    r"(?:^|[^A-Z0-9])(?:APIKEY|AUTH|AUTHORIZATION|COOKIE|CREDENTIALS?|DSN|KEYS?|PASS|PASSPHRASE|PASSWD|PASSWORD|PAT"
    r"|PRIVATE|PWD|SECRETS?|SIGNATURE|TOKENS?|WEBHOOK)(?:$|[^A-Z0-9])"
)
_NUMBER: Final = re.compile(r"[\d_.,]{1,12}")
_PASSWORD_NAME: Final = re.compile("PASS|PWD|SECRET")
_PATH_NAME: Final = re.compile("(?:CREDENTIALS|DIR|FILE|PATH|SOCK)$")  # else it may be base64 that begins with a slash
_MIN_LENGTH_UNNAMED: Final = 8
_NO_SECRET: Final = re.compile(
    r"[+-]?[\d.,:_]+(?:ms|s|m|h|d)?"  # numbers, times, versions
    r"|[A-Za-z]+(?:[-_. /][A-Za-z]+)*"  # words: production, us-central, my agent
    r"|(?:gemini|gpt|claude|models|openai|anthropic|vertex_ai)[-/A-Za-z0-9._@:]*"  # models
    r"|[a-z]+(?:-[a-z]+)+\d"  # regions: us-central1
    r"|(?:\.{0,2}/|~/)[\w@./+ -]*"  # paths
    r"|[a-z][a-z0-9+.-]*://[^/@\s?#]+(?:/[^@?#\s]*)?",  # addresses that hold no name and no query
)
_PUBLIC: Final = frozenset(
    {"GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_QUOTA_PROJECT", "PWD", "OLDPWD"}
    | {"COMMENT_KEY"}  # the name of a section of the comment
)
_LIST_INPUTS: Final = ("ENV", "INSTALL_ENV", "AGENT_ENV", "AGENT_INSTALL_ENV")


def is_secret(name: str, value: str) -> bool:
    """Whether the value of a variable with this name must not appear in logs and files."""
    value = value.strip()
    if len(value) < MIN_LENGTH or name.upper() in _PUBLIC or value.lower() in {"default", "disabled", "enabled"}:
        return False
    if _names_a_secret(name):
        if _NUMBER.fullmatch(value) and not _PASSWORD_NAME.search(name.upper()):
            return False  # for example tokens per minute, or the number of keys
        return not (
            _PATH_NAME.search(name.upper()) and value.startswith(("/", "./", "../", "~/")) and "\n" not in value
        )
    return len(value) >= _MIN_LENGTH_UNNAMED and not _NO_SECRET.fullmatch(value)


def secrets_in(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the secrets among variables that were set for an agent: in a `.env` or its ``env``."""
    return (value for name, value in variables.items() if is_secret(name, value))


def secrets_around(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the secrets of a whole environment: of variables named like a secret, and of inputs that list variables."""
    for name, value in environ.items():
        given = name.removeprefix("INPUT_").replace("-", "_") if name.startswith("INPUT_") else None
        if given in _LIST_INPUTS:
            pairs = (line.split("=", 1) for line in value.splitlines() if "=" in line)
            yield from secrets_in({inner.strip(): inner_value for inner, inner_value in pairs})
        elif _names_a_secret(given or name) and is_secret(given or name, value):
            yield value


def _names_a_secret(name: str) -> bool:
    return bool(_SECRET_NAME.search(name.upper()))
