"""Which of the values around a run are secrets, told by their names and by what they look like.

What is hidden for nothing makes a log unreadable, what is not hidden is published: a value whose name says that it is a
secret is hidden from six characters on, any other of a `.env` or of an agent's variables when it looks like one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from agent_eval_action.model.redaction import LEAST

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
