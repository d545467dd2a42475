"""Where a repository is pushed to, and with what right; taken from its configuration as texts, never executed."""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from agent_eval_action.folders import real_path
from agent_eval_action.git.repository import Repository

_SCP: Final = re.compile(r"[A-Za-z0-9_.@-]+:(?!//)[^\s]+")
_SCHEMES: Final = frozenset({"https", "http", "ssh", "file", "git"})
ORIGIN: Final = "origin"

_JOB_TOKENS: Final = (
    ("GITHUB_SERVER_URL", "https://github.com", "GITHUB_TOKEN", "x-access-token"),
    ("CI_SERVER_URL", "", "CI_JOB_TOKEN", "gitlab-ci-token"),
)
"""Per CI: the variable with its server, the server without it, the variable with the job's token, and its user."""

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*")


@dataclass(frozen=True, slots=True)
class Remote:
    """An address without credentials in it; ``header`` is sent to its host alone."""

    url: str
    header: str = field(default="", repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def config(self, name: str) -> tuple[tuple[str, str], ...]:
        """What tells git of this remote, under ``name``."""
        settings = [(f"remote.{name}.url", self.url)]
        if self.header:
            # no helper must be asked (and no second header sent) where there is a token
            settings += [("credential.helper", ""), (f"http.{_origin(self.url)}/.extraheader", self.header)]
        return tuple(settings)


def remote_of(repository: Repository, name: str, environ: Mapping[str, str]) -> Remote | None:
    """The remote ``name`` of a repository; None when it has none that can be used.

    The credential is the checkout's own (actions/checkout leaves a header in the configuration), else the
    address's, else the CI job's token, which goes to the CI's own server only.
    """
    if not _NAME.fullmatch(name):
        return None
    url, embedded = _without_credentials(_absolute(repository, repository.setting("--get", f"remote.{name}.url")))
    if not url:
        return None
    if not url.startswith(("https://", "http://")):
        return Remote(url)
    header = repository.setting("--get-urlmatch", "http.extraheader", url)
    if not header.lower().startswith("authorization:"):
        credentials = embedded or _job_credentials(url, environ)
        header = f"AUTHORIZATION: basic {base64.b64encode(credentials.encode()).decode()}" if credentials else ""
    return Remote(url, header, _secrets(header, embedded))


def _absolute(repository: Repository, raw: str) -> str:
    """An address git can be given from another folder; "" when it is none we use."""
    if not raw or raw.startswith("-") or any(ord(char) < ord(" ") for char in raw):
        return ""
    if "://" in raw:
        return raw if urlsplit(raw).scheme.lower() in _SCHEMES else ""
    if "::" in raw.split("/", 1)[0]:  # ext::, fd::, and whatever remote helper is on the PATH
        return ""
    if _SCP.fullmatch(raw) and not (repository.folder / raw).exists():
        return raw
    return str(real_path(repository.folder / raw))


def _without_credentials(url: str) -> tuple[str, str]:
    """The address and ``user:password``: an address stands in git's own argument lists."""
    if not url.startswith(("https://", "http://")):
        return url, ""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url, ""
    who, _, host = parts.netloc.rpartition("@")
    user, _, password = who.partition(":")
    credentials = f"{unquote(user)}:{unquote(password)}" if user or password else ""
    return parts._replace(netloc=host, fragment="").geturl(), credentials


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _job_credentials(url: str, environ: Mapping[str, str]) -> str:
    for server_variable, default_server, token_variable, user in _JOB_TOKENS:
        server = environ.get(server_variable, "").strip() or default_server
        token = environ.get(token_variable, "").strip()
        if server and token and _origin(url) == _origin(server):
            return f"{user}:{token}"
    return ""


def _secrets(header: str, embedded: str) -> tuple[str, ...]:
    words = [header.rpartition(" ")[2], embedded, embedded.partition(":")[2]]
    if "basic " in header.lower():
        with contextlib.suppress(ValueError):
            words.append(base64.b64decode(words[0], validate=True).decode().partition(":")[2])
    return tuple(word for word in words if word)
