"""A repository on disk, read without changing a byte of it: commits, ancestors, trees, files of a commit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent_eval_action.git.command import Done, Git

_SHA: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_MAX_COMMIT_BYTES: Final = 1 << 20
_WHO: Final = re.compile(r" (-?\d{1,12}) [+-]\d{4}$")


def is_sha(text: str | None) -> bool:
    """Whether ``text`` is a whole object name."""
    return bool(text and _SHA.fullmatch(text))


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit as it is written down. ``at``: when it was committed, seconds since 1970."""

    sha: str
    parents: tuple[str, ...] = ()
    at: int | None = None


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """An entry of a tree. ``size`` in bytes, None for what is no blob."""

    mode: str
    oid: str
    size: int | None
    name: str


@dataclass(frozen=True, slots=True)
class Repository:
    """Reads of the repository around ``folder``. Nothing here writes, fetches or raises: what is not there is None."""

    folder: Path
    environ: Mapping[str, str]

    @property
    def git(self) -> Git:
        """The command, without a network."""
        return Git(self.folder, self.environ)

    def resolve(self, name: str) -> str | None:
        """The commit a name stands for."""
        out = self.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        sha = out.text.splitlines()[-1] if out.ok and out.out else ""
        return sha if is_sha(sha) else None

    def commit(self, sha: str) -> Commit | None:
        """A commit read from its object: at depth 1 this names the parents, which rev-list does not."""
        done = self.git("cat-file", "commit", sha)
        return parse_commit(sha, done) if done.ok else None

    def head(self) -> Commit | None:
        """The commit that is checked out."""
        sha = self.resolve("HEAD")
        return self.commit(sha) if sha else None

    def first_parents(self, sha: str, bound: int) -> tuple[Commit, ...]:
        """``sha`` and its ancestors along first parents, nearest first, as far as they are here."""
        return ancestors(self.git, sha, bound)

    def is_shallow(self) -> bool:
        """Whether the history ends where a clone cut it."""
        return self.git("rev-parse", "--is-shallow-repository").text == "true"

    def merge_base(self, first: str, second: str) -> str | None:
        """The best common ancestor, None when none is here."""
        return merge_base(self.git, first, second)

    def root(self) -> Path | None:
        """The folder the repository is checked out in, without links, as git names its files from."""
        done = self.git("rev-parse", "--show-toplevel")
        return Path(done.out.decode("utf-8", "surrogateescape").rstrip("\n")) if done.ok and done.out else None

    def changed(self, first: str, second: str) -> tuple[str, ...] | None:
        """Names of the files that differ between two commits, removed ones too; None when that is not known here."""
        if not is_sha(first) or not is_sha(second):
            return None
        options = ("-r", "-z", "--name-only", "--no-renames", "--no-ext-diff", "--no-textconv")
        done = self.git("diff-tree", *options, "--end-of-options", first, second)
        return (
            tuple(name.decode("utf-8", "surrogateescape") for name in done.out.split(b"\0") if name)
            if done.ok
            else None
        )

    def tracked(self, *names: str) -> frozenset[str] | None:
        """Files of these names that are in the index, relative to ``folder``; None where git cannot say."""
        patterns = [f":(glob)**/{name}" for name in names]
        done = self.git("ls-files", "-z", "--cached", "--recurse-submodules", "--", *patterns)
        found = (name.decode("utf-8", "surrogateescape") for name in done.out.split(b"\0") if name)
        return frozenset(found) if done.ok else None

    def listed(self) -> frozenset[str] | None:
        """Files below ``folder``, relative to it, that git does not ignore, and ``.env`` files; None without a git."""
        tracked = self.git("ls-files", "-z", "--cached", "--recurse-submodules", "--", ".")
        others = self.git("ls-files", "-z", "--others", "--exclude-standard", "--", ".")
        env = self.git("ls-files", "-z", "--others", "--", ":(glob)**/.env")
        if not (tracked.ok and others.ok and env.ok):
            return None
        names = (tracked.out + others.out + env.out).split(b"\0")
        return frozenset(name.decode("utf-8", "surrogateescape") for name in names if name)

    def has_files_in(self, folder: Path) -> bool:
        """Whether files in this folder are in the index, or whether git cannot say so."""
        done = self.git("ls-files", "-z", "--cached", "--", str(folder))
        return not done.ok or bool(done.out)

    def config(self, *args: str) -> str | None:
        """One value of the repository's configuration, its includes read; only ever taken as a text."""
        done = self.git("config", *args)
        return done.out.decode("utf-8", "replace").rstrip("\n") if done.ok else None

    def file(self, commit: str, path: str, limit: int) -> bytes | None:
        """A regular file of a commit, at most ``limit`` bytes."""
        found = entries(self.git, commit, path)
        if len(found) != 1 or found[0].mode not in {"100644", "100755"} or (found[0].size or 0) > limit:
            return None
        done = self.git("cat-file", "blob", found[0].oid)
        return done.out if done.ok else None


def parse_commit(sha: str, done: Done) -> Commit | None:
    """The headers of a commit object."""
    parents: list[str] = []
    at: int | None = None
    for line in done.out[:_MAX_COMMIT_BYTES].decode("utf-8", "replace").split("\n"):
        if not line:
            break
        word, _, rest = line.partition(" ")
        if word == "parent" and is_sha(rest):
            parents.append(rest)
        elif word == "committer" and (who := _WHO.search(rest)):
            at = int(who.group(1))
    return Commit(sha, tuple(parents), at)


def ancestors(git: Git, sha: str, bound: int) -> tuple[Commit, ...]:
    """Along first parents, nearest first; where a shallow clone was cut the last one has no parents."""
    options = ("--first-parent", f"--max-count={bound}", "--timestamp", "--parents")
    done = git("rev-list", *options, "--end-of-options", sha)
    found: list[Commit] = []
    for line in done.text.splitlines() if done.ok else ():
        at, own, *parents = line.split()
        found.append(Commit(own, tuple(parents), int(at)))
    return tuple(found)


def merge_base(git: Git, one: str, *others: str) -> str | None:
    """The best common ancestor of ``one`` and a merge of the ``others``, None when none is here."""
    out = git("merge-base", one, *others).text
    return out if is_sha(out) else None


def entries(git: Git, tree: str, path: str = "") -> tuple[TreeEntry, ...]:
    """Entries of a tree, or the one at ``path``; () when there is none. Names that are no UTF-8 are left out."""
    where = ("--", path) if path else ()
    done = git("ls-tree", "-z", "-l", "--full-tree", tree, *where)
    found: list[TreeEntry] = []
    for raw in done.out.split(b"\0") if done.ok else ():
        head, tab, name = raw.partition(b"\t")
        fields: Sequence[bytes] = head.split()
        if not tab or len(fields) != 4:  # noqa: PLR2004 - mode, type, object, size
            continue
        try:
            text = name.decode("utf-8")
        except UnicodeDecodeError:
            continue
        size = int(fields[3]) if fields[3].isdigit() else None
        found.append(TreeEntry(fields[0].decode(), fields[2].decode(), size, text))
    return tuple(found)
