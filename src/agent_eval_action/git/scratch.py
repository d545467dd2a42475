"""A private, bare, temporary repository: what is fetched and what is to be pushed never touches the user's own."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from agent_eval_action.git.command import Done, Git
from agent_eval_action.git.remote import Remote
from agent_eval_action.git.repository import Commit, TreeEntry, ancestors, entries, is_sha, merge_base

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
    """What became of a push: ``moved`` (somebody was first), ``refused`` and ``unreachable`` with git's words."""

    outcome: Literal["done", "moved", "refused", "unreachable"]
    error: str = ""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The commit that was fetched; None when there is none, with git's words when that is because of an error."""

    sha: str | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Scratch:
    """The repository and its one remote."""

    git: Git

    @classmethod
    @contextmanager
    def open(cls, remote: Remote, environ: Mapping[str, str]) -> Iterator[Scratch]:
        """A new one, removed at the end. Raises OSError when there is no room for it."""
        with tempfile.TemporaryDirectory(prefix="agent-eval-git-", ignore_cleanup_errors=True) as folder:
            config = (*_WHO, *remote.config(_REMOTE))
            git = Git(Path(folder), environ, network=True, config=config, secrets=remote.secrets)
            made = git("init", "--quiet", "--bare", "--template=", ".")
            if not made.ok:
                raise OSError(made.err or "git init failed")
            yield cls(git)

    def fetch(self, ref: str, *, depth: int, commits_only: bool = False) -> Fetched:
        """Fetch ``ref`` (a full ref name, or a commit) so deep."""
        options = ["--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", f"--depth={depth}"]
        if commits_only:
            options.append("--filter=tree:0")
        done = self.git("fetch", *options, _REMOTE, f"+{ref}:{_HERE}")
        if not done.ok:
            return Fetched(None, "" if _ABSENT.search(done.err) else complaint(done))
        sha = self.git("rev-parse", "--verify", "--quiet", f"{_HERE}^{{commit}}").text
        return Fetched(sha if is_sha(sha) else None)

    def first_parents(self, sha: str, bound: int) -> tuple[Commit, ...]:
        """As ``Repository.first_parents``, of what was fetched."""
        return ancestors(self.git, sha, bound)

    def merge_base(self, one: str, *others: str) -> str | None:
        """The best common ancestor of ``one`` and a merge of the ``others`` in what was fetched."""
        return merge_base(self.git, one, *others)

    def entries(self, tree: str, path: str = "") -> tuple[TreeEntry, ...]:
        """Entries of a tree."""
        return entries(self.git, tree, path)

    def blobs(self, oids: Iterable[str]) -> dict[str, bytes]:
        """Contents by object name."""
        return blobs(self.git, oids)

    def write_blob(self, data: bytes) -> str:
        """Store bytes; returns their object name."""
        return self._made(self.git("hash-object", "-w", "--stdin", "--no-filters", stdin=data))

    def write_tree(self, lines: Iterable[tuple[str, str, str, str]]) -> str:
        """Store a tree of (mode, type, object, name)."""
        text = "".join(f"{mode} {kind} {oid}\t{name}\0" for mode, kind, oid, name in lines)
        return self._made(self.git("mktree", "-z", "--missing", stdin=text.encode()))

    def write_commit(self, tree: str, parent: str | None, message: str) -> str:
        """Store a commit; without a parent it is the root of an orphan branch."""
        above = ("-p", parent) if parent else ()
        return self._made(self.git("commit-tree", "--no-gpg-sign", tree, *above, stdin=message.encode()))

    def push(self, sha: str, ref: str, expected: str | None) -> Pushed:
        """Move ``ref`` of the remote to ``sha`` if it still is ``expected`` (None: if it does not exist)."""
        lease = f"--force-with-lease={ref}:{expected or ''}"
        done = self.git("push", "--porcelain", "--no-verify", "--no-signed", lease, _REMOTE, f"{sha}:{ref}")
        if done.ok:
            return Pushed("done")
        words = f"{done.text}\n{done.err}"
        if _MOVED.search(words):
            return Pushed("moved", complaint(done))
        return Pushed("refused" if _REFUSED.search(words) else "unreachable", complaint(done))

    @staticmethod
    def _made(done: Done) -> str:
        if not done.ok or not is_sha(done.text):
            raise OSError(complaint(done) or "git wrote nothing")
        return done.text


def blobs(git: Git, oids: Iterable[str]) -> dict[str, bytes]:
    """Contents of blobs by object name, in one process; what is missing is left out."""
    wanted = list(dict.fromkeys(oids))
    done = git("cat-file", "--batch", "--buffer", stdin="".join(f"{oid}\n" for oid in wanted).encode())
    found: dict[str, bytes] = {}
    data, at = done.out, 0
    while (end := data.find(b"\n", at)) >= 0:
        fields = data[at:end].split()
        at = end + 1
        if len(fields) != 3 or not fields[2].isdigit():  # noqa: PLR2004 - object, type, size; or "missing"
            continue
        size = int(fields[2])
        if fields[1] == b"blob":
            found[fields[0].decode()] = data[at : at + size]
        at += size + 1
    return found


def complaint(done: Done) -> str:
    """The lines of git's complaint that say something, as one line."""
    lines = [line.strip() for line in f"{done.err}\n{done.text if not done.ok else ''}".splitlines()]
    kept = [line for line in lines if line and not line.startswith(("To ", "Done", "hint:", "error: failed to push"))]
    return " ".join(" ".join(kept).split())[:400]
