"""A private, bare, temporary repository: what is fetched and what is to be pushed never touches the user's own."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from agent_eval_action.git.remote import Remote
from agent_eval_action.git.repository import GitResult, Repository, is_sha

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
    """The outcome of a push: ``moved`` (another push was first), ``refused`` and ``unreachable`` with git's message."""

    outcome: Literal["done", "moved", "refused", "unreachable"]
    error: str = ""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The commit that was fetched; None when there is none, with git's message after an error."""

    sha: str | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Scratch:
    """The repository and its one remote."""

    repository: Repository

    @classmethod
    @contextmanager
    def open(cls, remote: Remote, environ: Mapping[str, str]) -> Iterator[Scratch]:
        """A new one, removed at the end. Raises OSError when there is no room for it."""
        with tempfile.TemporaryDirectory(prefix="agent-eval-git-", ignore_cleanup_errors=True) as folder:
            config = (*_WHO, *remote.config(_REMOTE))
            repository = Repository(Path(folder), environ, network=True, config=config, secrets=remote.secrets)
            made = repository.run("init", "--quiet", "--bare", "--template=", ".")
            if not made.ok:
                raise OSError(made.err or "git init failed")
            yield cls(repository)

    def fetch(self, ref: str, *, depth: int, commits_only: bool = False) -> Fetched:
        """Fetch ``ref`` (a full ref name, or a commit) so deep."""
        options = ["--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", f"--depth={depth}"]
        if commits_only:
            options.append("--filter=tree:0")
        result = self.repository.run("fetch", *options, _REMOTE, f"+{ref}:{_HERE}")
        if not result.ok:
            return Fetched(None, "" if _ABSENT.search(result.err) else result.complaint)
        return Fetched(self.repository.resolve(_HERE))

    def write_blob(self, data: bytes) -> str:
        """Store bytes; returns their object name."""
        return _object_name(self.repository.run("hash-object", "-w", "--stdin", "--no-filters", stdin=data))

    def write_tree(self, lines: Iterable[tuple[str, str, str, str]]) -> str:
        """Store a tree of (mode, type, object, name)."""
        text = "".join(f"{mode} {kind} {oid}\t{name}\0" for mode, kind, oid, name in lines)
        return _object_name(self.repository.run("mktree", "-z", "--missing", stdin=text.encode()))

    def write_commit(self, tree: str, parent: str | None, message: str) -> str:
        """Store a commit; without a parent it is the root of an orphan branch."""
        args = ("--no-gpg-sign", tree, *(("-p", parent) if parent else ()))
        return _object_name(self.repository.run("commit-tree", *args, stdin=message.encode()))

    def push(self, sha: str, ref: str, expected: str | None) -> Pushed:
        """Move ``ref`` of the remote to ``sha`` if it still is ``expected`` (None: if it does not exist)."""
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
