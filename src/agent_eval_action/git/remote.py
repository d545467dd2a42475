"""A repository's remote, read from its configuration as text, and a private repository to fetch and push with.

Fetches and pushes never touch the user's repository.
"""

from __future__ import annotations

import base64
import contextlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

from agent_eval_action.folders import real_path
from agent_eval_action.git.repository import GitResult, Repository, is_sha

_SCP: Final = re.compile(r"[A-Za-z0-9_.@-]+:(?!//)[^\s]+")
_SCHEMES: Final = frozenset({"https", "http", "ssh", "file", "git"})
ORIGIN: Final = "origin"

_JOB_TOKENS: Final = (
    ("GITHUB_SERVER_URL", "https://github.com", "GITHUB_TOKEN", "x-access-token"),
    ("CI_SERVER_URL", "", "CI_JOB_TOKEN", "gitlab-ci-token"),
)
"""Per CI: the server's variable, the default server, the variable of the job's token, and the token's user."""

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*")


@dataclass(frozen=True, slots=True)
class Remote:
    """A remote's address without credentials; ``header`` is sent only to its host."""

    url: str
    header: str = field(default="", repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def config(self, name: str) -> tuple[tuple[str, str], ...]:
        """Git's configuration for this remote as ``name``."""
        settings = [(f"remote.{name}.url", self.url)]
        if self.header:
            # with a token, no credential helper must add another header
            settings += [("credential.helper", ""), (f"http.{_origin(self.url)}/.extraheader", self.header)]
        return tuple(settings)


def remote_of(repository: Repository, name: str, environ: Mapping[str, str]) -> Remote | None:
    """The remote ``name`` of a repository, or None if there is no usable one.

    Uses the checkout's credential (actions/checkout leaves a header in the configuration), else the one in the
    address, else the CI job's token, which is only sent to the CI's own server.
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
    """The address in a form that works from other folders; "" if it is of a kind that we do not use."""
    if not raw or raw.startswith("-") or any(ord(char) < ord(" ") for char in raw):
        return ""
    if "://" in raw:
        return raw if urlsplit(raw).scheme.lower() in _SCHEMES else ""
    if "::" in raw.split("/", 1)[0]:  # ext::, fd:: and any other remote helper on the PATH
        return ""
    if _SCP.fullmatch(raw) and not (repository.folder / raw).exists():
        return raw
    return str(real_path(repository.folder / raw))


def _without_credentials(url: str) -> tuple[str, str]:
    """Split an address into address and ``user:password``, because git's argument lists show addresses."""
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


_REMOTE: Final = "store"
_HERE: Final = "refs/agent-eval/fetched"
_WHO: Final = (("user.name", "agent-eval"), ("user.email", "agent-eval@users.noreply.github.com"))
_ABSENT: Final = re.compile(r"couldn't find remote ref|Remote branch .* not found")
_MOVED: Final = re.compile(
    r"\(fetch first\)|\(non-fast-forward\)|\(stale info\)|cannot lock ref|failed to update ref|incorrect old value"
    r"|reference already exists|\(failed to lock\)|remote ref (?:does not exist|changed)"
)
_REFUSED: Final = re.compile(r"\[remote rejected\]|\[rejected\]|denied|protected branch|\b40[13]\b|not permitted")


@dataclass(frozen=True, slots=True)
class Pushed:
    """The outcome of a push; all but ``done`` have git's message. ``moved``: another push was faster."""

    outcome: Literal["done", "moved", "refused", "unreachable"]
    error: str = ""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The fetched commit, or None if the ref does not exist or, with git's message, after an error."""

    sha: str | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Scratch:
    """A private temporary repository with one remote."""

    repository: Repository

    @classmethod
    @contextlib.contextmanager
    def open(cls, remote: Remote, environ: Mapping[str, str]) -> Iterator[Scratch]:
        """Create a repository, and remove it at the end. Raises OSError if it cannot be created."""
        with tempfile.TemporaryDirectory(prefix="agent-eval-git-", ignore_cleanup_errors=True) as folder:
            config = (*_WHO, *remote.config(_REMOTE))
            repository = Repository(Path(folder), environ, network=True, config=config, secrets=remote.secrets)
            made = repository.run("init", "--quiet", "--bare", "--template=", ".")
            if not made.ok:
                raise OSError(made.err or "git init failed")
            yield cls(repository)

    def fetch(self, ref: str, *, depth: int, commits_only: bool = False) -> Fetched:
        """Fetch ``depth`` commits of ``ref`` (a full ref name, or a commit)."""
        options = ["--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", f"--depth={depth}"]
        if commits_only:
            options.append("--filter=tree:0")
        result = self.repository.run("fetch", *options, _REMOTE, f"+{ref}:{_HERE}")
        if not result.ok:
            return Fetched(None, "" if _ABSENT.search(result.err) else result.complaint)
        return Fetched(self.repository.resolve(_HERE))

    def write_blob(self, data: bytes) -> str:
        """Store bytes; returns the object name."""
        return _object_name(self.repository.run("hash-object", "-w", "--stdin", "--no-filters", stdin=data))

    def write_tree(self, lines: Iterable[tuple[str, str, str, str]]) -> str:
        """Store a tree with entries of (mode, type, object, name)."""
        text = "".join(f"{mode} {kind} {oid}\t{name}\0" for mode, kind, oid, name in lines)
        return _object_name(self.repository.run("mktree", "-z", "--missing", stdin=text.encode()))

    def write_commit(self, tree: str, parent: str | None, message: str) -> str:
        """Store a commit; without a parent it is the root of an orphan branch."""
        args = ("--no-gpg-sign", tree, *(("-p", parent) if parent else ()))
        return _object_name(self.repository.run("commit-tree", *args, stdin=message.encode()))

    def push(self, sha: str, ref: str, expected: str | None) -> Pushed:
        """Move the remote's ``ref`` to ``sha`` if it still is ``expected`` (None: does not exist)."""
        lease = f"--force-with-lease={ref}:{expected or ''}"
        options = ("--porcelain", "--no-verify", "--no-signed", lease)
        result = self.repository.run("push", *options, _REMOTE, f"{sha}:{ref}")
        if result.ok:
            return Pushed("done")
        output = f"{result.text}\n{result.err}"
        if _MOVED.search(output):
            return Pushed("moved", result.complaint)
        return Pushed("refused" if _REFUSED.search(output) else "unreachable", result.complaint)


def _object_name(result: GitResult) -> str:
    if not result.ok or not is_sha(result.text):
        raise OSError(result.complaint or "git wrote nothing")
    return result.text
