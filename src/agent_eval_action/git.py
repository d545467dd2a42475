"""Every git call: read-only plumbing with the repository's own hooks, monitors and filters switched off."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_TIMEOUT_S = 10
_EXPORT_S = 120
_LINK, _PROGRAM = "120000", "100755"
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# The workspace's .git/config is untrusted: it may name programs to run.
_OFF = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "diff.external=",
    "protocol.ext.allow=never",
)


def head_commit(workspace: Path) -> str | None:
    """The commit that is checked out, 40 hex digits; None outside a repository or without git."""
    out = _git(workspace, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    return out if out and len(out) in {40, 64} else None


def _git(workspace: Path, *args: str) -> str | None:
    done = _run(workspace, *args)
    try:
        return done.stdout.decode().strip() if done is not None and done.returncode == 0 else None
    except UnicodeDecodeError:
        return None


def _run(workspace: Path, *args: str, timeout: float = _TIMEOUT_S) -> subprocess.CompletedProcess[bytes] | None:
    try:
        return subprocess.run(  # noqa: S603 - argv is ours, no shell
            _argv(workspace, *args),
            capture_output=True,
            check=False,
            timeout=timeout,
            env=_environ(),
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def _argv(workspace: Path, *args: str) -> list[str]:
    program = shutil.which("git")
    if program is None:
        raise FileNotFoundError("git is not installed")
    options = [part for setting in _OFF for part in ("-c", setting)]
    return [program, *options, "-C", str(workspace), *args]


def _environ() -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        # objects a partial clone left out are not worth a network and its credentials
        "GIT_NO_LAZY_FETCH": "1",
        # in a container the repository belongs to another uid
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }


def base_commit(workspace: Path, known: str | None = None, target: str | None = None) -> str | None:
    """The commit this change is merged onto; None where git does not say. It need not be in the clone.

    Parent 1 of a merge commit; else where the checkout left the target branch (``target``, or the
    remote's default); on that branch itself ``known``, the commit a baseline was made of, if it is behind.
    """
    head = head_commit(workspace)
    if head is None:
        return None
    parents = _parents(workspace, head)
    if len(parents) > 1:
        return parents[0]
    names = (target,) if target else ("HEAD", "main", "master")
    places = [f"refs/remotes/origin/{name}" for name in names] + [f"refs/heads/{name}" for name in names[1:]]
    fork = next((found for place in places if (found := _git(workspace, "merge-base", "HEAD", place))), None)
    if fork and fork != head:
        return fork
    if known and _COMMIT.fullmatch(known):
        return known if _git(workspace, "merge-base", "--is-ancestor", known, "HEAD") is not None else None
    return parents[0] if parents else None


def has_commit(workspace: Path, commit: str) -> bool:
    """Whether the commit itself is in this clone."""
    return _git(workspace, "cat-file", "-e", f"{commit}^{{commit}}") is not None


def folder_in_repository(workspace: Path) -> str:
    """Where the workspace lies in its repository: "" at the top, else like ``examples/dice``."""
    return (_git(workspace, "rev-parse", "--show-prefix") or "").rstrip("/")


def export_tree(workspace: Path, commit: str, target: Path) -> None:
    """Write every file of a commit into the folder ``target``, byte for byte as committed.

    Neither the index nor a worktree of the repository is touched, and no filter that its configuration
    names is run (files of Git LFS stay pointers); submodules are left out. Raises OSError or ValueError
    saying what could not be written.
    """
    listing = _run(workspace, "ls-tree", "-r", "-z", "--full-tree", commit, timeout=_EXPORT_S)
    if listing is None or listing.returncode != 0:
        raise OSError(f"git cannot list the files of {commit[:10]}")
    entries = [_entry(line) for line in listing.stdout.split(b"\0") if line]
    # links last: no file is ever written through one
    entries = sorted((entry for entry in entries if entry.kind == "blob"), key=lambda entry: entry.mode == _LINK)
    argv = _argv(workspace, "cat-file", "--batch")
    with subprocess.Popen(  # noqa: S603 - argv is ours, no shell
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environ()
    ) as process:
        for entry in entries:
            _write(target, entry, _blob(process, entry))
        if process.stdin:
            process.stdin.close()


@dataclass(frozen=True, slots=True)
class _Entry:
    mode: str
    kind: str
    name: str
    path: str


def _entry(line: bytes) -> _Entry:
    about, _, path = line.partition(b"\t")
    mode, kind, name = about.decode("ascii").split(" ")
    return _Entry(mode, kind, name, os.fsdecode(path))


def _blob(process: subprocess.Popen[bytes], entry: _Entry) -> bytes:
    if process.stdin is None or process.stdout is None:
        raise OSError("git cat-file was started without pipes")
    process.stdin.write(f"{entry.name}\n".encode("ascii"))
    process.stdin.flush()
    header = process.stdout.readline().split(b" ")
    if len(header) != 3:  # noqa: PLR2004 - "<name> <type> <size>"; "<name> missing" in a partial clone
        raise OSError(f"git has no content for {entry.path}")
    size = int(header[2])
    data = process.stdout.read(size + 1)
    if len(data) != size + 1:
        raise OSError(f"git ended while it read {entry.path}")
    return data[:-1]


def _write(target: Path, entry: _Entry, data: bytes) -> None:
    parts = entry.path.split("/")
    if {"", ".", "..", ".git"} & {part.lower() for part in parts}:
        raise ValueError(f"the commit holds a file no checkout would have: {entry.path!r}")
    path = target.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    if entry.mode == _LINK:
        path.symlink_to(os.fsdecode(data))
        return
    path.write_bytes(data)
    if entry.mode == _PROGRAM:
        path.chmod(0o755)


def _parents(workspace: Path, commit: str) -> list[str]:
    """As the commit itself names them: in a shallow clone they resolve to nothing."""
    text = _git(workspace, "cat-file", "commit", commit) or ""
    return [line.split(" ")[1] for line in text.partition("\n\n")[0].splitlines() if line.startswith("parent ")]
