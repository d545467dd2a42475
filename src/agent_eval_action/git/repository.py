"""A repository on disk: one git process a question, its environment and limits, what it may read, and a commit's files.

Whatever a repository's configuration asks for, no program that it names is started.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_LOCAL_S: Final = 10.0
_NETWORK_S: Final = 90.0
_LIST_S: Final = 60.0
_LINK: Final = "120000"
_PROGRAM: Final = "100755"
_SUBMODULE: Final = "160000"
_AT_ONCE: Final = 32 << 20  # bytes of files in memory

# The workspace's .git/config is untrusted: it may name programs to run.
_SAFE_CONFIG: Final = (
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.alternateRefsCommand", ""),
    ("diff.external", ""),
    ("protocol.ext.allow", "never"),
    ("commit.gpgSign", "false"),
    ("push.gpgSign", "false"),
    ("log.showSignature", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("core.pager", "cat"),
    # in a container the repository belongs to another uid
    ("safe.directory", "*"),
)
_NO_PROTOCOL: Final = "none"  # a list of protocols with none in it: also no lazy fetch of a partial clone
_PROTOCOLS: Final = "file:git:http:https:ssh"
_NETWORK_ENVIRON: Final = (
    "HOME",
    "USER",
    "LOGNAME",
    "SSH_AUTH_SOCK",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_SSL_CAINFO",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
    "XDG_CONFIG_HOME",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    *(name for word in ("http_proxy", "https_proxy", "no_proxy", "all_proxy") for name in (word, word.upper())),
)


_OBJECT_COMMANDS: Final = frozenset({"cat-file", "ls-tree"})
"""What may be asked while agents run: objects by their own names, which were found out before."""

_agents = 0


@contextlib.contextmanager
def agents_running() -> Iterator[None]:
    """While agents run, questions about the checkout raise AssertionError: an agent could have changed it."""
    global _agents  # noqa: PLW0603 - the agents of one process
    _agents += 1
    try:
        yield
    finally:
        _agents -= 1


_SHA: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_MAX_COMMIT_BYTES: Final = 1 << 20
_COMMITTED_AT: Final = re.compile(r" (-?\d{1,12}) [+-]\d{4}$")


def is_sha(text: str | None) -> bool:
    """Whether ``text`` is a whole object name."""
    return bool(text and _SHA.fullmatch(text))


@dataclass(frozen=True, slots=True)
class GitResult:
    """What a git process left: its exit code, stdout as bytes, stderr as text."""

    code: int
    out: bytes = b""
    err: str = ""

    @property
    def ok(self) -> bool:
        """Whether it ended with 0."""
        return self.code == 0

    @property
    def text(self) -> str:
        """Stdout as one stripped text."""
        return self.out.decode("utf-8", "replace").strip()

    @property
    def names(self) -> tuple[str, ...]:
        """The names that stdout lists with a NUL after each."""
        return tuple(os.fsdecode(name) for name in self.out.split(b"\0") if name)

    @property
    def complaint(self) -> str:
        """The informative lines of git's error message, as one line."""
        lines = [line.strip() for line in f"{self.err}\n{'' if self.ok else self.text}".splitlines()]
        noise = ("To ", "Done", "hint:", "error: failed to push")
        return " ".join(" ".join(line for line in lines if line and not line.startswith(noise)).split())[:400]


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit as it is written down. ``at``: when it was committed, seconds since 1970."""

    sha: str
    parents: tuple[str, ...] = ()
    at: int | None = None

    @classmethod
    def parse(cls, sha: str, data: bytes) -> Commit:
        """Read the headers of a commit object."""
        parents: list[str] = []
        at: int | None = None
        for line in data[:_MAX_COMMIT_BYTES].decode("utf-8", "replace").partition("\n\n")[0].split("\n"):
            key, _, value = line.partition(" ")
            if key == "parent" and is_sha(value):
                parents.append(value)
            elif key == "committer" and (found := _COMMITTED_AT.search(value)):
                at = int(found.group(1))
        return cls(sha, tuple(parents), at)


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """An entry of a tree. ``size`` in bytes, None for what is no blob."""

    mode: str
    oid: str
    size: int | None
    name: str


@dataclass(frozen=True, slots=True)
class Repository:
    """The repository around ``folder``. Except for ``run`` nothing here writes, fetches or raises.

    ``network``: may speak with a remote; ``config``: more settings, given by the environment so that no
    token stands in an argument list, where every user of the machine can read it. ``secrets`` are replaced in errors.
    """

    folder: Path
    environ: Mapping[str, str]
    network: bool = False
    config: Sequence[tuple[str, str]] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def run(self, *args: str, stdin: bytes = b"", timeout: float | None = None) -> GitResult:
        """Run ``git ARGS``; what cannot be started or takes too long is a code of its own, never raised."""
        # a repository with a network is one of ours, and empty of anything an agent could have written
        if _agents and not self.network and args[0] not in _OBJECT_COMMANDS:
            raise AssertionError(f"git {args[0]} is asked of the checkout while agents run")
        program = shutil.which("git", path=self.environ.get("PATH", os.defpath))
        if program is None:
            return GitResult(127, err="git is not installed")
        try:
            process = subprocess.Popen(  # noqa: S603 - argv is ours, no shell
                [program, "-C", str(self.folder), *args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._process_environ(),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return GitResult(126, err=f"git cannot be started: {error}")
        with process:
            try:
                out, err = process.communicate(stdin, timeout or (_NETWORK_S if self.network else _LOCAL_S))
            except BaseException as error:
                # what git started for a remote holds our pipes, and would wait for the remote for ever
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                process.communicate()
                return GitResult(124, err=f"git {args[0]} took too long")
        text = err[-20_000:].decode("utf-8", "replace")
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return GitResult(process.returncode, out, text.strip())

    def _process_environ(self) -> dict[str, str]:
        own = {
            "PATH": self.environ.get("PATH", os.defpath),
            "LC_ALL": "C",
            "GIT_TERMINAL_PROMPT": "0",
            "GCM_INTERACTIVE": "never",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_ALLOW_PROTOCOL": _PROTOCOLS if self.network else _NO_PROTOCOL,
        }
        if self.network:
            own |= {name: self.environ[name] for name in _NETWORK_ENVIRON if name in self.environ}
            own.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes -o ConnectTimeout=20")
        settings = (*_SAFE_CONFIG, *self.config)
        own["GIT_CONFIG_COUNT"] = str(len(settings))
        for number, (key, value) in enumerate(settings):
            own |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return own

    def resolve(self, name: str) -> str | None:
        """The commit a name stands for."""
        out = self.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        sha = out.text.splitlines()[-1] if out.ok and out.out else ""
        return sha if is_sha(sha) else None

    def commit(self, sha: str) -> Commit | None:
        """A commit read from its object: at depth 1 this names the parents, which rev-list does not."""
        result = self.run("cat-file", "commit", sha)
        return Commit.parse(sha, result.out) if result.ok else None

    def head(self) -> Commit | None:
        """The commit that is checked out."""
        sha = self.resolve("HEAD")
        return self.commit(sha) if sha else None

    def first_parents(self, sha: str, bound: int) -> tuple[Commit, ...]:
        """``sha`` and its ancestors along first parents, nearest first. The last one of a shallow clone has none."""
        options = ("--first-parent", f"--max-count={bound}", "--timestamp", "--parents")
        result = self.run("rev-list", *options, "--end-of-options", sha)
        lines = [line.split() for line in result.text.splitlines()] if result.ok else []
        return tuple(Commit(own, tuple(parents), int(at)) for at, own, *parents in lines)

    def is_shallow(self) -> bool:
        """Whether the history ends where a clone cut it."""
        return self.run("rev-parse", "--is-shallow-repository").text == "true"

    def merge_base(self, first: str, *others: str) -> str | None:
        """The best common ancestor of ``first`` and a merge of the ``others``, None when none is here."""
        out = self.run("merge-base", first, *others).text
        return out if is_sha(out) else None

    def root(self) -> Path | None:
        """The folder the repository is checked out in, without links, as git names its files from."""
        result = self.run("rev-parse", "--show-toplevel")
        return Path(os.fsdecode(result.out).rstrip("\n")) if result.ok and result.out else None

    def prefix(self) -> str:
        """Where the folder lies in the repository: "" at the top, else like ``examples/dice``."""
        return self.run("rev-parse", "--show-prefix").text.rstrip("/")

    def changed(self, first: str, second: str) -> tuple[str, ...] | None:
        """Names of the files that differ between two commits, removed ones too; None when that is not known here."""
        if not is_sha(first) or not is_sha(second):
            return None
        options = ("-r", "-z", "--name-only", "--no-renames", "--no-ext-diff", "--no-textconv")
        result = self.run("diff-tree", *options, "--end-of-options", first, second)
        return result.names if result.ok else None

    def tracked(self, *names: str) -> frozenset[str] | None:
        """Files of these names that are in the index, relative to ``folder``; None where git cannot say."""
        patterns = [f":(glob)**/{name}" for name in names]
        result = self.run("ls-files", "-z", "--cached", "--recurse-submodules", "--", *patterns)
        return frozenset(result.names) if result.ok else None

    def indexed(self) -> frozenset[str] | None:
        """Files below ``folder``, relative to it, that are in the index; None where git cannot say."""
        result = self.run("ls-files", "-z", "--cached", "--", ".")
        return frozenset(result.names) if result.ok else None

    def listed(self) -> frozenset[str] | None:
        """Files below ``folder``, relative to it, that git does not ignore, and ``.env`` files; None without a git."""
        results = (
            self.run("ls-files", "-z", "--cached", "--recurse-submodules", "--", "."),
            self.run("ls-files", "-z", "--others", "--exclude-standard", "--", "."),
            self.run("ls-files", "-z", "--others", "--", ":(glob)**/.env"),
        )
        return frozenset(name for result in results for name in result.names) if all(r.ok for r in results) else None

    def last_change(self, path: str, lines: tuple[int, int | None] | None = None) -> tuple[str, str, str] | None:
        """Commit, date and subject of the last commit that changed a file, or ``lines`` of it, both ends included.

        None where git knows none. Lines count as the newest commit has them.
        """
        shown = ("-1", "--no-patch", "--format=%H%x00%cI%x00%s", "--no-ext-diff", "--no-textconv")
        found = GitResult(1)
        if lines is not None:
            found = self.run("log", *shown, f"-L{lines[0]},{lines[1] or ''}:{path}")
        if not found.ok or not found.out:
            found = self.run("log", *shown, "--", path)
        parts = found.text.split("\0") if found.ok else []
        return (parts[0], parts[1], parts[2]) if len(parts) == 3 else None  # noqa: PLR2004 - as many as the format has

    def has_files_in(self, folder: Path) -> bool:
        """Whether files in this folder are in the index, or whether git cannot say so."""
        result = self.run("ls-files", "-z", "--cached", "--", str(folder))
        return not result.ok or bool(result.out)

    def setting(self, *args: str) -> str:
        """One value of the repository's configuration, its includes read; "" where there is none. Only ever a text."""
        result = self.run("config", *args)
        return result.text if result.ok else ""

    def entries(self, tree: str, path: str = "") -> tuple[TreeEntry, ...]:
        """Entries of a tree, or the one at ``path``; () when there is none."""
        return _entries(self.run("ls-tree", "-z", "-l", "--full-tree", tree, *(("--", path) if path else ())))

    def all_files(self, commit: str) -> tuple[TreeEntry, ...]:
        """Every file and link of a commit, by its path in the repository. Raises OSError."""
        return tuple(entry for entry in self._whole_tree(commit) if entry.size is not None)

    def submodules(self, commit: str) -> dict[str, str]:
        """The commit of every submodule of a commit, by its path in the repository. Raises OSError."""
        return {entry.name: entry.oid for entry in self._whole_tree(commit) if entry.mode == _SUBMODULE}

    def _whole_tree(self, commit: str) -> tuple[TreeEntry, ...]:
        result = self.run("ls-tree", "-r", "-z", "-l", "--full-tree", commit, timeout=_LIST_S)
        if not result.ok:
            raise OSError(result.err or f"git cannot list the files of {commit[:10]}")
        return _entries(result)

    def blobs(self, oids: Iterable[str]) -> dict[str, bytes]:
        """Contents of blobs by object name, in one process; what is missing is left out."""
        result = self.run(
            "cat-file", "--batch", "--buffer", stdin="".join(f"{oid}\n" for oid in dict.fromkeys(oids)).encode()
        )
        found: dict[str, bytes] = {}
        data, at = result.out, 0
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


def _entries(result: GitResult) -> tuple[TreeEntry, ...]:
    lines = [line.split("\t", 1) for line in result.names] if result.ok else []
    fields = [(*about.split(), name) for about, name in lines]
    return tuple(
        TreeEntry(mode, oid, int(size) if size.isdigit() else None, name) for mode, _, oid, size, name in fields
    )


def export_tree(
    repository: Repository,
    commit: str,
    target: Path,
    cancelled: threading.Event | None = None,
    wanted: Callable[[str, int], bool] | None = None,
) -> None:
    """Write every file of a commit into the folder ``target``, byte for byte as committed.

    Neither index nor worktrees of the repository are touched, and no filter that its configuration names
    is run (files of Git LFS stay pointers); submodules are left out. ``cancelled`` ends it early. With ``wanted``
    (a path in the repository and its size) the files it does not want are left out, their folders made.
    Raises OSError or ValueError saying what could not be written.
    """
    # links last: no file is ever written through one
    files = sorted(repository.all_files(commit), key=lambda file: file.mode == _LINK)
    if wanted is not None:
        for file in files:
            _make_place(target, file.name)
        files = [file for file in files if file.mode == _LINK or wanted(file.name, file.size or 0)]
    for batch in _batches(files):
        contents = repository.blobs(file.oid for file in batch)
        for file in batch:
            if cancelled is not None and cancelled.is_set():
                return
            if file.oid not in contents:
                raise OSError(f"git has no content for {file.name}")
            path = _make_place(target, file.name)
            if file.mode == _LINK:
                path.symlink_to(os.fsdecode(contents[file.oid]))
                continue
            path.write_bytes(contents[file.oid])
            if file.mode == _PROGRAM:
                path.chmod(0o755)


def _batches(files: Sequence[TreeEntry]) -> Iterator[list[TreeEntry]]:
    batch: list[TreeEntry] = []
    size = 0
    for file in files:
        size += file.size or 0
        if batch and size > _AT_ONCE:
            yield batch
            batch, size = [], file.size or 0
        batch.append(file)
    if batch:
        yield batch


def _make_place(target: Path, name: str) -> Path:
    parts = name.split("/")
    if {"", ".", "..", ".git"} & {part.lower() for part in parts}:
        raise ValueError(f"the commit holds a file no checkout would have: {name!r}")
    path = target.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
