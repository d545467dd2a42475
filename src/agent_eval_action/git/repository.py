"""Read a repository with one git process per question, in a restricted environment, and export a commit's files.

No program that the repository's configuration names is ever started.
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

# The workspace's .git/config is untrusted because it can name programs to run.
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
_NO_PROTOCOL: Final = "none"  # no protocol has this name; also prevents lazy fetches in partial clones
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
"""Commands allowed while agents run: they read objects by names that were resolved before."""

_agents = 0


@contextlib.contextmanager
def agents_running() -> Iterator[None]:
    """Make git queries on the checkout raise AssertionError while agents run, since these could have modified it."""
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
    """Whether ``text`` is a full object name."""
    return bool(text and _SHA.fullmatch(text))


@dataclass(frozen=True, slots=True)
class GitResult:
    """The exit code, stdout and stderr of a git process."""

    code: int
    out: bytes = b""
    err: str = ""

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def text(self) -> str:
        """Stdout as stripped text."""
        return self.out.decode("utf-8", "replace").strip()

    @property
    def names(self) -> tuple[str, ...]:
        """The NUL-terminated names in stdout."""
        return tuple(os.fsdecode(name) for name in self.out.split(b"\0") if name)

    @property
    def complaint(self) -> str:
        """The informative lines of git's error message, as one line."""
        lines = [line.strip() for line in f"{self.err}\n{'' if self.ok else self.text}".splitlines()]
        noise = ("To ", "Done", "hint:", "error: failed to push")
        return " ".join(" ".join(line for line in lines if line and not line.startswith(noise)).split())[:400]


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit object. ``at``: the commit time in seconds since 1970."""

    sha: str
    parents: tuple[str, ...] = ()
    at: int | None = None

    @classmethod
    def parse(cls, sha: str, data: bytes) -> Commit:
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
    """An entry of a tree. ``size``: bytes of a blob, None for other objects."""

    mode: str
    oid: str
    size: int | None
    name: str


@dataclass(frozen=True, slots=True)
class Repository:
    """The repository that contains ``folder``. Methods other than ``run`` only read, and raise only if they say so.

    ``network``: may contact a remote. ``config``: further settings, passed in the environment so that no token appears
    in an argument list, which all users of the machine can read. ``secrets`` are replaced in errors.
    """

    folder: Path
    environ: Mapping[str, str]
    network: bool = False
    config: Sequence[tuple[str, str]] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def run(self, *args: str, stdin: bytes = b"", timeout: float | None = None) -> GitResult:
        """Run ``git ARGS``. Failure to start (126, 127) and timeout (124) are exit codes, not exceptions."""
        # a repository with network access is a private one, which agents cannot have modified
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
                # git's remote helpers hold our pipes and could wait for the remote for ever
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
        """The commit that a name refers to, or None."""
        out = self.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        sha = out.text.splitlines()[-1] if out.ok and out.out else ""
        return sha if is_sha(sha) else None

    def commit(self, sha: str) -> Commit | None:
        """Read a commit from its object, which names the parents even at depth 1, unlike rev-list."""
        result = self.run("cat-file", "commit", sha)
        return Commit.parse(sha, result.out) if result.ok else None

    def head(self) -> Commit | None:
        sha = self.resolve("HEAD")
        return self.commit(sha) if sha else None

    def first_parents(self, sha: str, bound: int) -> tuple[Commit, ...]:
        """``sha`` and its first-parent ancestors, nearest first. In a shallow clone the last one has no parents."""
        options = ("--first-parent", f"--max-count={bound}", "--timestamp", "--parents")
        result = self.run("rev-list", *options, "--end-of-options", sha)
        lines = [line.split() for line in result.text.splitlines()] if result.ok else []
        return tuple(Commit(own, tuple(parents), int(at)) for at, own, *parents in lines)

    def is_shallow(self) -> bool:
        return self.run("rev-parse", "--is-shallow-repository").text == "true"

    def merge_base(self, first: str, *others: str) -> str | None:
        """The best common ancestor of ``first`` and a merge of the ``others``; None if this clone has none."""
        out = self.run("merge-base", first, *others).text
        return out if is_sha(out) else None

    def root(self) -> Path | None:
        """The top folder of the checkout with links resolved; git's file names are relative to it."""
        result = self.run("rev-parse", "--show-toplevel")
        return Path(os.fsdecode(result.out).rstrip("\n")) if result.ok and result.out else None

    def prefix(self) -> str:
        """The folder's path in the repository: "" at the top, else like ``examples/dice``."""
        return self.run("rev-parse", "--show-prefix").text.rstrip("/")

    def changed(self, first: str, second: str) -> tuple[str, ...] | None:
        """Files that differ between two commits, including removed ones; None if this clone cannot tell."""
        if not is_sha(first) or not is_sha(second):
            return None
        options = ("-r", "-z", "--name-only", "--no-renames", "--no-ext-diff", "--no-textconv")
        result = self.run("diff-tree", *options, "--end-of-options", first, second)
        return result.names if result.ok else None

    def tracked(self, *names: str) -> frozenset[str] | None:
        """Files with these names in the index, relative to ``folder``; None if git fails."""
        return self._files("--cached", "--recurse-submodules", "--", *(f":(glob)**/{name}" for name in names))

    def indexed(self) -> frozenset[str] | None:
        """Files of the index below ``folder``, relative to it; None if git fails."""
        return self._files("--cached", "--", ".")

    def listed(self) -> frozenset[str] | None:
        """Files below ``folder``, relative to it, that git does not ignore, and ``.env`` files; None if git fails."""
        cached = self._files("--cached", "--recurse-submodules", "--", ".")
        others = self._files("--others", "--exclude-standard", "--", ".")
        variables = self._files("--others", "--", ":(glob)**/.env")
        return None if cached is None or others is None or variables is None else cached | others | variables

    def _files(self, *options: str) -> frozenset[str] | None:
        result = self.run("ls-files", "-z", *options)
        return frozenset(result.names) if result.ok else None

    def last_change(self, path: str, lines: tuple[int, int | None] | None = None) -> tuple[str, str, str] | None:
        """Commit, date and subject of the last commit that changed a file or ``lines`` of it; None if unknown.

        ``lines`` are the first and the last line (included), numbered as in the newest commit.
        """
        shown = ("-1", "--no-patch", "--format=%H%x00%cI%x00%s", "--no-ext-diff", "--no-textconv")
        found = GitResult(1)
        if lines is not None:
            found = self.run("log", *shown, f"-L{lines[0]},{lines[1] or ''}:{path}")
        if not found.ok or not found.out:
            found = self.run("log", *shown, "--", path)
        parts = found.text.split("\0") if found.ok else []
        return (parts[0], parts[1], parts[2]) if len(parts) == 3 else None  # noqa: PLR2004 - the number of fields in the format

    def has_files_in(self, folder: Path) -> bool:
        """Whether the index has files in this folder; also true if git fails."""
        files = self._files("--cached", "--", str(folder))
        return files is None or bool(files)

    def setting(self, *args: str) -> str:
        """A value of the repository's configuration, includes followed, as plain text; "" if there is none."""
        result = self.run("config", *args)
        return result.text if result.ok else ""

    def entries(self, tree: str, path: str = "") -> tuple[TreeEntry, ...]:
        """Entries of a tree, or the one at ``path``; () if there are none."""
        return _entries(self.run("ls-tree", "-z", "-l", "--full-tree", tree, *(("--", path) if path else ())))

    def all_files(self, commit: str) -> tuple[TreeEntry, ...]:
        """All files and links of a commit, with their paths in the repository. Raises OSError."""
        return tuple(entry for entry in self._whole_tree(commit) if entry.size is not None)

    def submodules(self, commit: str) -> dict[str, str]:
        """The commits of a commit's submodules, by path in the repository. Raises OSError."""
        return {entry.name: entry.oid for entry in self._whole_tree(commit) if entry.mode == _SUBMODULE}

    def _whole_tree(self, commit: str) -> tuple[TreeEntry, ...]:
        result = self.run("ls-tree", "-r", "-z", "-l", "--full-tree", commit, timeout=_LIST_S)
        if not result.ok:
            raise OSError(result.err or f"git cannot list the files of {commit[:10]}")
        return _entries(result)

    def blobs(self, oids: Iterable[str]) -> dict[str, bytes]:
        """Contents of blobs by object name, read in one process; missing blobs are left out."""
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
    """Write all files of a commit into the folder ``target``, byte for byte as committed.

    Neither index nor worktrees are touched, and no filters from the configuration run, so Git LFS files stay pointers;
    submodules are left out. ``cancelled`` ends it early. ``wanted`` (called with path and size) can skip files, but
    their folders are made. Raises OSError or ValueError saying what could not be written.
    """
    # links last, so that no file is written through one
    files = sorted(repository.all_files(commit), key=lambda file: file.mode == _LINK)
    if wanted is not None:
        for file in files:
            _make_place(target, file.name)
        files = [file for file in files if file.mode == _LINK or wanted(file.name, file.size or 0)]
    for batch in batches(files):
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


def batches(files: Iterable[TreeEntry], most: int = 100_000) -> Iterator[list[TreeEntry]]:
    """At most this many files at a time, which fit into memory together."""
    batch: list[TreeEntry] = []
    size = 0
    for file in files:
        size += file.size or 0
        if batch and (size > _AT_ONCE or len(batch) == most):
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
