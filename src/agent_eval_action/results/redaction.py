"""Secrets, and what fits patterns of the user: what they are, and taking them out of text that is stored or shown."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, Literal, TypeVar, cast, get_origin

HIDDEN: Final = "***"
"""In place of a secret."""
REDACTED: Final = "[redacted]"
"""In place of what a pattern of the user matches."""
LEAST: Final = 6
"""Characters of the shortest value that is hidden: what is shorter stands in every second line by chance."""
_CUT: Final = "…"
_SENTENCE: Final = 20_000  # what was shortened is no longer than this
_LONGEST_CUT: Final = 300
_ALIKE: Final = 100
_MATCHES_KNOWN: Final = 100

# Names under which results are kept and found have to stay what they are; when, by what version and of what kind
# something was made is no text, but a user's pattern may fit it.
_KEPT: Final = frozenset(
    {"agent", "eval_set", "case", "criterion", "path", "commit", "id", "invocation_id", "rubric_id", "digest", "role"}
    | {"case_digest", "packages_digest", "scoring_version", "tool_version", "started_at", "created_at", "mime_type"}
    | {"fail_on", "threshold_on", "within"}
)

_Value = TypeVar("_Value")


def pieces(value: str) -> tuple[str, ...]:
    """What of a value is hidden: all of it, and each of its lines, for a log shows lines."""
    lines = [line.strip() for line in value.splitlines()]
    found = dict.fromkeys(piece for piece in (value.strip(), *lines) if len(piece) >= LEAST)
    return tuple(found)


class Redaction:
    """The values and patterns to hide in one process; it grows as they become known. An empty one changes nothing."""

    def __init__(self) -> None:
        self._hidden: set[str] = set()
        self._secrets: re.Pattern[str] | None = None
        self._patterns: list[re.Pattern[str]] = []
        self._beginnings: dict[str, list[str]] = {}

    def hide(self, values: Iterable[str]) -> tuple[str, ...]:
        """Hide these from now on. Returns the pieces that were not hidden before."""
        new = dict.fromkeys(piece for value in values for piece in pieces(value) if piece not in self._hidden)
        if new:
            self._hidden.update(new)
            longest_first = sorted(self._hidden, key=lambda piece: (-len(piece), piece))
            self._secrets = re.compile("|".join(map(re.escape, longest_first)))
            self._remember_beginnings(new)
        return tuple(new)

    def hide_matches(self, patterns: Iterable[str]) -> None:
        """Hide from now on what matches one of these patterns of a user."""
        self._patterns += (found for found in map(compile_pattern, patterns) if found not in self._patterns)

    def _remember_beginnings(self, found: Iterable[str]) -> None:
        """A sentence may quote only the beginning of a redacted text."""
        for piece in found:
            known = self._beginnings.setdefault(piece[:LEAST], [])
            if len(piece) > LEAST and piece[:_LONGEST_CUT] not in known and len(known) < _ALIKE:
                known.append(piece[:_LONGEST_CUT])

    def text(self, text: str) -> str:
        """``text`` without them."""
        if self._secrets is not None:
            text = self._secrets.sub(HIDDEN, text)
        for pattern in self._patterns:
            text = self._without_matches(pattern, text)
        return self._without_cuts(text) if _CUT in text and len(text) <= _SENTENCE else text

    def _without_matches(self, pattern: re.Pattern[str], text: str) -> str:
        found: list[str] = []

        def replace(match: re.Match[str]) -> str:
            if len(found) < _MATCHES_KNOWN:
                found.append(match.group())
            return REDACTED

        try:
            text = pattern.sub(replace, text)
        except UnicodeEncodeError:  # a lone surrogate, which UTF-8 has no bytes for
            text = pattern.sub(replace, text.encode("utf-8", "replace").decode())
        self._remember_beginnings(found)
        return text

    def _without_cuts(self, text: str) -> str:
        """``text`` without the beginnings that were left of values where it was shortened."""
        parts = text.split(_CUT)
        for number, part in enumerate(parts[:-1]):
            for start in range(max(len(part) - _LONGEST_CUT, 0), len(part) - LEAST + 1):
                left = part[start:]
                if any(piece.startswith(left) for piece in self._beginnings.get(left[:LEAST], ())):
                    parts[number] = part[:start] + HIDDEN
                    break
        return _CUT.join(parts)

    def data(self, data: bytes) -> bytes:
        """The same for bytes that may be no text."""
        return self.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def value(self, value: _Value) -> _Value:
        """A value of ours, or of JSON, with every text in it redacted; the very same object where none was found."""
        if self._secrets is None and not self._patterns:
            return value
        return cast("_Value", self._redacted(value))

    def _redacted(self, value: Any) -> Any:
        kind: Any = type(value)
        if kind is str:
            shown = self.text(value)
            return value if shown == value else shown
        # a model is known by its fields: importing pydantic would double the time of --help
        if hasattr(kind, "model_fields"):
            kept = _kept_fields(kind)
            fields = {name: getattr(value, name) for name in kind.model_fields if name not in kept}
            fields |= {name: item for name, item in (value.model_extra or {}).items() if name not in kept}
            new = {name: self._redacted(item) for name, item in fields.items()}
            changed = {name: item for name, item in new.items() if item is not fields[name]}
            return value.model_copy(update=changed) if changed else value
        if isinstance(value, dict):
            items = [(self._redacted(key), self._redacted(item)) for key, item in value.items()]
            same = all(a is b and x is y for (a, x), (b, y) in zip(items, value.items(), strict=True))
            return value if same else dict(items)
        if kind in (list, tuple):
            new_items = [self._redacted(item) for item in value]
            same = all(map(operator.is_, new_items, value))
            return value if same else kind(new_items)
        return value


@cache
def _kept_fields(model: type[Any]) -> frozenset[str]:
    """Fields that are not redacted: ``_KEPT``, and words from a fixed list, which would not be read back."""
    return _KEPT | {name for name, field in model.model_fields.items() if get_origin(field.annotation) is Literal}


_LONGEST_PATTERN: Final = 2_000
_SYNTAX: Final = "patterns are RE2's, without look-around and back-references: github.com/google/re2/wiki/Syntax"


def pattern_problem(pattern: Any) -> tuple[str, str | None] | None:
    """Why a pattern of the user cannot be used, and what to do; None where it can.

    The syntax is RE2's: its time is linear, whatever the pattern and the text are.
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
    """The pattern, searched in linear time. Raises re2.error or UnicodeEncodeError."""
    import re2  # noqa: PLC0415 - most runs have no patterns

    options = re2.Options()
    options.log_errors = False  # it would write to stderr by itself
    compiled: re.Pattern[str] = re2.compile(pattern, options)
    return compiled


_SECRET_NAME: Final = re.compile(
    r"(?:^|[^A-Z0-9])(?:APIKEY|AUTH|AUTHORIZATION|COOKIE|CREDENTIALS?|DSN|KEYS?|PASS|PASSPHRASE|PASSWD|PASSWORD|PAT"
    r"|PRIVATE|PWD|SECRETS?|SIGNATURE|TOKENS?|WEBHOOK)(?:$|[^A-Z0-9])"
)
_COUNT: Final = re.compile(r"[\d_.,]{1,12}")
_PERSONAL: Final = re.compile("PASS|PWD|SECRET")
_PATH_NAME: Final = re.compile("(?:CREDENTIALS|DIR|FILE|PATH|SOCK)$")  # else it may be base64 that begins with a slash
_LEAST_UNNAMED: Final = 8
_PLAIN: Final = re.compile(
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
_LISTS: Final = ("ENV", "INSTALL_ENV", "AGENT_ENV", "AGENT_INSTALL_ENV")


def is_secret(name: str, value: str) -> bool:
    """Whether the value of a variable of this name is to be in no log and no file."""
    value = value.strip()
    if len(value) < LEAST or name.upper() in _PUBLIC or value.lower() in {"default", "disabled", "enabled"}:
        return False
    if _names_a_secret(name):
        if _COUNT.fullmatch(value) and not _PERSONAL.search(name.upper()):
            return False  # tokens per minute, and how many keys
        return not (
            _PATH_NAME.search(name.upper()) and value.startswith(("/", "./", "../", "~/")) and "\n" not in value
        )
    return len(value) >= _LEAST_UNNAMED and not _PLAIN.fullmatch(value)


def secrets_in(variables: Mapping[str, str]) -> Iterator[str]:
    """The secrets among variables that were given on purpose: a `.env`, an agent's ``env``."""
    return (value for name, value in variables.items() if is_secret(name, value))


def secrets_around(environ: Mapping[str, str]) -> Iterator[str]:
    """The secrets of a whole environment, where only a name that says so counts, and of the inputs that are lists."""
    for name, value in environ.items():
        given = name.removeprefix("INPUT_").replace("-", "_") if name.startswith("INPUT_") else None
        if given in _LISTS:
            pairs = (line.split("=", 1) for line in value.splitlines() if "=" in line)
            yield from secrets_in({inner.strip(): inner_value for inner, inner_value in pairs})
        elif _names_a_secret(given or name) and is_secret(given or name, value):
            yield value


def _names_a_secret(name: str) -> bool:
    return bool(_SECRET_NAME.search(name.upper()))
