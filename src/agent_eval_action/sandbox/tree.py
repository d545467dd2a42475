"""Copy a workspace for an agent, without git, credentials, our own files and what would not run there."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from agent_eval_action.errors import AgentEnvironmentError
from agent_eval_action.folders import OutputFolder
from agent_eval_action.sandbox import CREDENTIAL_FILES

LEFT_OUT: Final = frozenset(
    {".git", ".agent-eval", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox", ".hypothesis"}
)
TREE_BYTES: Final = 4 << 30
_NAMED: Final = 3
_MODE: Final = 0o700
_DEEPEST: Final = 250
_WITH_PATHS: Final = ("*.pth", "*.egg-link", "__editable__*.py")


@dataclass
class TreeCopy:
    """One copy. ``uid`` owns the files, ``gid`` may also write them; nobody else can see them.

    ``closed``: folders to leave out, besides those that every copy lacks. ``environments``: where virtual environments
    that work here are moved, owned by root, with a link in their place: an agent may only rewrite what no other agent
    runs.
    """

    source: Path
    target: Path
    uid: int
    gid: int
    environments: Path
    closed: Collection[Path] = ()
    limit: int = TREE_BYTES
    bytes: int = field(default=0, init=False)

    def make(self) -> None:
        """Copy. Raises AgentEnvironmentError if the tree is too large, OSError if it cannot be written."""
        room = shutil.disk_usage(self.target.parent).free
        self.limit = min(self.limit, room * 4 // 5)
        self._folder(self.source, self.target)

    def _folder(self, source: Path, target: Path) -> None:
        if len(target.relative_to(self.target).parts) > _DEEPEST:
            raise self._too_deep()
        target.mkdir(mode=_MODE)
        for entry in _entries(source):
            path = Path(entry.path)
            if entry.name in LEFT_OUT or path in self.closed or fnmatchcase(entry.name, CREDENTIAL_FILES):
                continue
            if entry.is_symlink():
                self._link(path, target / entry.name)
            elif entry.is_dir(follow_symlinks=False):
                if (path / "pyvenv.cfg").is_file():
                    self._environment(path, target / entry.name)
                else:
                    self._folder(path, target / entry.name)
            elif entry.is_file(follow_symlinks=False):
                self._file(path, target / entry.name)
            # pipes, sockets and devices are left out
        self._give(target, source.lstat().st_mode)

    def _file(self, source: Path, target: Path) -> None:
        found = source.lstat()
        self.bytes += found.st_size
        if self.bytes > self.limit:
            raise self._too_large()
        with contextlib.suppress(FileNotFoundError):  # it may be removed meanwhile
            shutil.copyfile(source, target, follow_symlinks=False)
            os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
            self._give(target, found.st_mode)

    def _link(self, source: Path, target: Path) -> None:
        to = source.readlink()
        if to.is_absolute() and to.is_relative_to(self.source):
            to = self.target / to.relative_to(self.source)
        target.symlink_to(to)
        os.lchown(target, self.uid, self.gid)

    def _give(self, path: Path, mode: int) -> None:
        os.chown(path, self.uid, self.gid, follow_symlinks=False)
        own = stat.S_IMODE(mode) & _MODE | (_MODE if stat.S_ISDIR(mode) else 0o600)
        path.chmod(own | own >> 3)

    def _environment(self, source: Path, target: Path) -> None:
        """Move a virtual environment that works here out of the tree, and skip one that does not."""
        if not (source / "bin" / "python").exists():
            return
        place = self.environments / f"found-{len(list(self.environments.glob('found-*')))}"
        try:
            shutil.copytree(source, place, symlinks=True)
        except RecursionError:
            raise self._too_deep() from None
        _rewrite_paths(place, str(self.source), str(self.target))
        target.symlink_to(place)
        os.lchown(target, self.uid, self.gid)

    def _too_deep(self) -> AgentEnvironmentError:
        return AgentEnvironmentError(
            f"the checkout has folders more than {_DEEPEST} deep, and the agent works on a copy of it",
            hint="check out less of it (git sparse-checkout)",
        )

    def _too_large(self) -> AgentEnvironmentError:
        sizes = sorted((_size(Path(e.path)), e.name) for e in _entries(self.source) if e.name not in LEFT_OUT)
        largest = ", ".join(f"{name} ({size >> 20} MB)" for size, name in reversed(sizes[-_NAMED:]))
        return AgentEnvironmentError(
            f"the checkout is larger than {self.limit >> 20} MB, and the agent works on a copy of it",
            hint=f"check out less of it (git sparse-checkout); the largest are {largest}",
        )


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        yield from sorted(found, key=lambda entry: entry.name)


def _size(path: Path) -> int:
    if not path.is_dir() or path.is_symlink():
        return path.lstat().st_size
    return sum((Path(top) / name).lstat().st_size for top, _, names in os.walk(path) for name in names)


def _rewrite_paths(environment: Path, old: str, new: str) -> None:
    """Make installed links to code of the tree point into the copy."""
    libraries = OutputFolder.at(environment, environment) / "lib"
    with contextlib.suppress(OSError):  # links are not followed: they lead out of this environment
        for python in libraries.folders():
            packages = libraries / python / "site-packages"
            for name, _ in packages.files():
                if any(fnmatchcase(name, pattern) for pattern in _WITH_PATHS):
                    with packages.read(name) as file:
                        text = file.read()
                    packages.replace(name, [text.replace(os.fsencode(old), os.fsencode(new))], sync=False)
