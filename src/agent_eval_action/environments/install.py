"""What the install step sees and nothing after it, what of it is hidden, and which package it failed on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote

from agent_eval_action.config.types import is_job_variable
from agent_eval_action.results.redaction import HIDDEN, Redaction, secrets_in

PASSED = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LANG",
        "TMPDIR",
        "NETRC",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "CC",
        "CXX",
    }
)
PASSED_PREFIXES = ("UV_", "LC_", "SSL_CERT_")
PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"})
FROM_PIP = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
    "PIP_CERT": "SSL_CERT_FILE",
}
"""uv reads none of pip's variables; where uv's own is absent, pip's stands for it."""

_LOGIN: Final = re.compile(r"(?<=://)([^/\s@]+)@")


def install_environ(environ: Mapping[str, str], install_env: Mapping[str, str]) -> dict[str, str]:
    """What the install step sees: ``install_environ``, and over it what was given for it alone."""
    given = {name: value for name, value in install_env.items() if not is_job_variable(name)}
    return {**inherited_install_environ(environ), **given}


def selected_install_env(named: Mapping[str, str | None], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of ``install_env``: those with a value, and those of the environment that are named."""
    given = {name: environ.get(name) if value is None else value for name, value in named.items()}
    return {name: value for name, value in given.items() if value is not None}


def inherited_install_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """What the install step sees: index settings, proxies, certificates; none of CI's own tokens."""
    passed = {
        name: value
        for name, value in environ.items()
        if name in PASSED or name.startswith(PASSED_PREFIXES) or name.upper() in PROXIES
    }
    for theirs, ours in FROM_PIP.items():
        if environ.get(theirs) and not passed.get(ours):
            passed[ours] = environ[theirs]
    return passed


def install_secrets(seen: Mapping[str, str]) -> Iterator[str]:
    """What must be in no message: secrets, and names and passwords inside addresses, as written and as sent."""
    yield from secrets_in(seen)
    for value in seen.values():
        for login in _LOGIN.findall(value):
            user, given, password = login.partition(":")
            yield from dict.fromkeys((login, *((password, unquote(password)) if given else (user, unquote(user)))))


def without_secrets(text: str, seen: Mapping[str, str]) -> str:
    """A message of the install step to be shown to anybody."""
    redaction = Redaction()
    redaction.hide(install_secrets(seen))
    # logins first: what is left of an address says where it failed
    return redaction.text(_LOGIN.sub(f"{HIDDEN}@", text))


_NOT_REACHED = re.compile(
    r"error sending request|dns error|failed to lookup address|connection (?:refused|reset)|timed out|took longer than|"
    r"HTTP status (?:server error|client error \((?:401|403|407|408|429))",
    re.IGNORECASE,
)


def is_index_unreachable(text: str) -> bool:
    """Whether uv says that an index did not answer, or let nobody in: no lock can be blamed for that."""
    return _NOT_REACHED.search(text) is not None


def failing_package(text: str) -> str | None:
    """The package uv's message is about, where it names one."""
    patterns = (
        r"Failed to (?:build|download|fetch|prepare|unpack|install)[^`\n]*`([^`]+)`",
        r"Because (\S+) was not found",
        r"Because there (?:is|are) no versions? of (\S+)",
        r"no version of (\S+)",
        r"Because only (?:the following versions of )?([A-Za-z0-9._-]+)",
        r"No solution found when resolving dependencies[^`]*`([^`]+)`",
    )
    for pattern in patterns:
        found = re.search(pattern, text)
        if found:
            return found.group(1)
    return None
