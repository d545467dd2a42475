"""Real git repositories with a real remote, in few words; and what of a checkout must stay as it was."""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from agent_eval_action.git.repository import Repository

IDENTITY = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.com",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "file:http",
}


def environ(**more: str) -> dict[str, str]:
    """What our code is given: a PATH and no configuration of this machine."""
    return {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", **more}


def run_git(folder: Path, *args: str, at: int | None = None, env: Mapping[str, str] | None = None) -> str:
    """git as a person runs it; ``at``: the commit's date."""
    when = {"GIT_AUTHOR_DATE": f"{at} +0000", "GIT_COMMITTER_DATE": f"{at} +0000"} if at is not None else {}
    base = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", "-C", str(folder), *args],
        check=True,
        capture_output=True,
        text=True,
        env=base | IDENTITY | when | dict(env or {}),
    )
    return done.stdout.strip()


def commit_all(folder: Path) -> str:
    """Everything in the folder as one more commit of its repository, which is made where there is none."""
    if not (folder / ".git").exists():
        run_git(folder, "init", "--quiet", "--initial-branch=main")
        (folder / ".git" / "info" / "exclude").write_text(".agent-eval/out/\n.agent-eval/cache/\n")
    run_git(folder, "add", "-A")
    run_git(folder, "commit", "--quiet", "--allow-empty", "-m", "everything")
    return run_git(folder, "rev-parse", "HEAD")


class Origin:
    """A bare repository that others clone, with a main branch of as many commits as were made."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "origin.git"
        self.seed = root / "seed"
        self.clock = 1_760_000_000
        self._numbers = itertools.count()
        run_git(root, "init", "--quiet", "--bare", "--initial-branch=main", str(self.path))
        run_git(root, "init", "--quiet", "--initial-branch=main", str(self.seed))
        run_git(self.seed, "remote", "add", "origin", self.url)

    @property
    def url(self) -> str:
        return f"file://{self.path}"

    def commit(self, name: str, branch: str = "main") -> str:
        """One more commit on a branch, pushed."""
        self.clock += 60
        (self.seed / f"{name}.txt").write_text(name)
        run_git(self.seed, "add", "-A")
        run_git(self.seed, "commit", "--quiet", "-m", name, at=self.clock)
        run_git(self.seed, "push", "--quiet", "origin", f"HEAD:refs/heads/{branch}")
        return run_git(self.seed, "rev-parse", "HEAD")

    def branch(self, name: str, at: str) -> None:
        run_git(self.seed, "checkout", "--quiet", "-B", name, at)

    def merge(self, onto: str, head: str, ref: str) -> str:
        """A merge commit as GitHub makes it for a pull request, pushed under ``ref``."""
        self.clock += 60
        run_git(self.seed, "checkout", "--quiet", "--detach", onto)
        run_git(self.seed, "merge", "--quiet", "--no-ff", "-m", "merge", head, at=self.clock)
        run_git(self.seed, "push", "--quiet", "origin", f"HEAD:{ref}")
        return run_git(self.seed, "rev-parse", "HEAD")

    def clone(self, name: str, *options: str, ref: str | None = None) -> Path:
        """A checkout; of one ref as actions/checkout makes it when ``ref`` is given."""
        path = self.root / f"{name}-{next(self._numbers)}"
        if ref is None:
            run_git(self.root, "clone", "--quiet", *options, self.url, str(path))
            return path
        run_git(self.root, "init", "--quiet", "--initial-branch=unborn", str(path))
        run_git(path, "remote", "add", "origin", self.url)
        run_git(path, "fetch", "--quiet", "--no-tags", *options, "origin", f"+{ref}:refs/remotes/pull/head")
        run_git(path, "checkout", "--quiet", "--detach", "refs/remotes/pull/head")
        return path


def repository(path: Path, **more: str) -> Repository:
    return Repository(path, environ(**more))


def fingerprint(folder: Path) -> dict[str, str]:
    """Every file of a checkout, .git included, by the digest of its bytes, with its mode and modification time."""
    found = {}
    for path in sorted(folder.rglob("*")):
        state = path.lstat()
        if path.is_symlink():
            digest = str(path.readlink())
        elif path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            digest = "folder"
        found[str(path.relative_to(folder))] = f"{digest} {state.st_mode:o} {state.st_mtime_ns}"
    return found
