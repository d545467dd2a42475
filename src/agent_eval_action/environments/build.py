"""Build an agent's environment with uv from its lock file, once per content, safe with concurrent processes.

For sandboxes they are archived in one file each: agents may not read the cache, and many small files are slow to copy.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from uv import find_uv_bin

from agent_eval_action.environments.lock import UV_LOCK, LockFile
from agent_eval_action.errors import AgentEnvironmentError
from agent_eval_action.folders import OutputFolder
from agent_eval_action.sandbox import WORKSPACE
from agent_eval_action.sandbox.sandboxes import Sandbox, make_container_environments, popen_options
from agent_eval_action.sandbox.users import ISOLATION_VARIABLE, SANDBOX_UIDS, SandboxUser, kill_processes_of

LONGEST_INSTALL_S = 1800.0
"""Timeout of one uv command, in seconds: a build step that hangs must not take the whole job's time."""

_TAIL_LINES: Final = 15
_POLL_S: Final = 0.2
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_RESTORER: Final = SANDBOX_UIDS.stop
"""The uid that extracts archives. Nothing else runs as it, and it can write nowhere else."""

_ARCHIVE: Final = re.compile(r"[0-9a-f]{32}\.tar")
_DEFAULT_CACHE: Final = Path(".agent-eval", "cache", "environments")
_LONGEST_COPY_S: Final = 300.0
_ABANDONED_S: Final = 3600.0
_UNUSED_S: Final = 30 * 86_400.0
_restoring: Final[dict[str, threading.Lock]] = {}
_UNREACHABLE: Final = re.compile(
    r"error sending request|dns error|failed to lookup address|connection (?:refused|reset)|timed out|took longer than|"
    r"HTTP status (?:server error|client error \((?:401|403|407|408|429))",
    re.IGNORECASE,
)
_FAILING_PACKAGE: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"Failed to (?:build|download|fetch|prepare|unpack|install)[^`\n]*`([^`]+)`",
        r"Because (\S+) was not found",
        r"Because there (?:is|are) no versions? of (\S+)",
        r"no version of (\S+)",
        r"Because only (?:the following versions of )?([A-Za-z0-9._-]+)",
        r"No solution found when resolving dependencies[^`]*`([^`]+)`",
    )
)


@dataclass(frozen=True, slots=True)
class EnvironmentBuild:
    """Builds the environment of a lock file, or finds it in the cache.

    ``environ`` is what the install step sees (``variables.install_environ``). Setting ``given_up`` in another thread
    stops a build; ``announce`` is called before it begins.
    """

    lock: LockFile
    cache: OutputFolder
    environ: Mapping[str, str]
    given_up: threading.Event
    announce: Callable[[], None] = lambda: None

    def make(self, sandbox: Sandbox | None = None) -> tuple[Path, bool]:
        """Return the environment's folder, and whether it existed before. Raises AgentEnvironmentError."""
        name = self.lock.digest(self.environ)
        if sandbox is not None:
            with sandbox.owner.building:
                return self._make_in_sandbox(sandbox, name)
        final = self.cache.path / name
        if has_python(final):
            return final, True
        self.announce()
        self.cache.make()
        # Built as a draft and renamed: a process that dies half-way leaves nothing that looks complete.
        draft = self.cache.path / f".draft-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            self._install(draft, self.environ, None)
            if not has_python(final):
                # the Python that uv downloaded for it is gone: the cache was restored without it
                shutil.rmtree(final, ignore_errors=True)
            with contextlib.suppress(OSError):
                draft.rename(final)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return final, False

    def _make_in_sandbox(self, sandbox: Sandbox, name: str) -> tuple[Path, bool]:
        """Build as the installer's uid, then make root the owner, so that no agent can change it.

        Neither may read the workspace's cache, so an environment is archived there in one file and extracted again.
        """
        installer, folder = sandbox.installer, sandbox.environments
        final = folder / name
        if restore(self.cache, name, folder):
            return final, True
        self.announce()
        draft, pythons = folder / f".draft-{secrets.token_hex(4)}", folder / f"python-{name}"
        for path in (draft, pythons):
            path.mkdir(mode=0o755, exist_ok=True)
            os.chown(path, installer.uid, installer.uid)
        # An earlier build must leave nothing here: one of its steps could have edited packages in uv's cache.
        kill_processes_of({installer.uid})
        installer.remake_home()
        try:
            self._install(draft / "env", sandbox.install_environ(self.environ, pythons), installer)
            # a build step may have left a process behind that could still write
            kill_processes_of({installer.uid})
            for path in (draft, pythons):
                _give_to_root(path)
            shutil.rmtree(final, ignore_errors=True)
            (draft / "env").rename(final)
            keep(final, self.cache)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return final, False

    def _install(self, target: Path, environ: Mapping[str, str], user: SandboxUser | None) -> None:
        path, uv = self.lock.path, uv_binary(environ)
        environ = {**environ, "UV_PROJECT_ENVIRONMENT": str(target), "UV_NO_PROGRESS": "1"}
        install = ["pip", "install", "--python", str(target / "bin" / "python"), "-r", path.name]
        if path.name == UV_LOCK:
            install = ["sync", "--frozen"]
        # Relocatable, because it is renamed when it is complete.
        for command in (["venv", "--relocatable", str(target)], install):
            code, stderr = self._run([uv, *command], environ, user)
            if code != 0:
                package = failing_package(stderr)
                raise AgentEnvironmentError(
                    f"uv could not build the agent's environment from {path}"
                    + (f": package {package} failed" if package else ""),
                    hint="\n  ".join(["uv's last lines:", *stderr.strip().splitlines()[-_TAIL_LINES:]]),
                )

    def _run(self, command: list[str], environ: Mapping[str, str], user: SandboxUser | None) -> tuple[int, str]:
        """Run a uv command; return its exit code and stderr. Kills it after the timeout, or when given up."""
        with subprocess.Popen(  # noqa: S603 - uv, with arguments of ours
            user.command(command) if user else command,
            cwd=self.lock.path.parent,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            **popen_options(user),
        ) as process:
            deadline, late = time.monotonic() + LONGEST_INSTALL_S, ""
            while True:
                try:
                    _, stderr = process.communicate(timeout=_POLL_S)
                    return process.returncode, stderr.decode("utf-8", "replace") + late
                except subprocess.TimeoutExpired:
                    if time.monotonic() > deadline:
                        late = f"\nit was ended because it took longer than {LONGEST_INSTALL_S:g} s"
                    if late or self.given_up.is_set():
                        # Builds of source packages run in its group.
                        os.killpg(process.pid, signal.SIGKILL)


def _give_to_root(folder: Path) -> None:
    """Let only root change what the folder holds, whatever modes a build step gave it."""

    def give(path: str | Path, parent: int | None = None) -> None:
        # changing the owner also clears set-uid bits
        os.chown(path, 0, 0, dir_fd=parent, follow_symlinks=False)
        mode = os.stat(path, dir_fd=parent, follow_symlinks=False).st_mode
        if mode & _OTHERS_WRITE and not stat.S_ISLNK(mode):
            os.chmod(path, stat.S_IMODE(mode) & ~_OTHERS_WRITE, dir_fd=parent)

    give(folder)
    for _, folders, files, parent in os.fwalk(folder):
        for name in (*folders, *files):
            give(name, parent)


def restore_ahead(environ: Mapping[str, str]) -> None:
    """Start to restore the environment that was used last: it takes as long as the command's imports.

    Only in the container, where environments always have the same path. If the guess is wrong, the right one is
    restored when it is needed.
    """
    if environ.get(ISOLATION_VARIABLE) != "container":
        return
    workspace = Path(environ.get(WORKSPACE, "").strip() or Path.cwd())
    cache = OutputFolder.at(workspace / _DEFAULT_CACHE, workspace)
    with contextlib.suppress(OSError):
        kept = {found.st_mtime: name for name, found in cache.files() if _ARCHIVE.fullmatch(name)}
        if kept:
            name = kept[max(kept)].removesuffix(".tar")
            arguments = (cache, name, make_container_environments())
            threading.Thread(target=restore, args=arguments, daemon=True).start()


def restore(cache: OutputFolder, name: str, folder: Path) -> bool:
    """Extract an environment into ``folder``, owned by root; return whether it and its Python are there. Blocks.

    A second call waits for the first.
    """
    final, draft = folder / name, folder / f".restored-{name}"
    with _restoring.setdefault(name, threading.Lock()):
        if has_python(final):
            return True
        try:
            with cache.read(f"{name}.tar") as source:
                draft.mkdir(mode=0o755)
                os.chown(draft, _RESTORER, _RESTORER)
                command = ["--extract", "--no-same-owner", "--no-same-permissions", f"--directory={draft}"]
                user = {"user": _RESTORER, "group": _RESTORER, "extra_groups": [], "umask": 0o022}
                _execute("tar", command, stdin=source, **user)
                with contextlib.suppress(OSError):  # the cache may be read-only
                    os.utime(source.fileno())
            # tar has applied its umask, so nobody else may write to what is root's from here on
            _execute("chown", ["--recursive", "--no-dereference", "0:0", str(draft)])
            # the Python that uv downloaded for it may be gone
            if is_complete := has_python(draft / "env"):
                shutil.rmtree(final, ignore_errors=True)
                (draft / "env").rename(final)
        except (OSError, subprocess.SubprocessError):
            return False
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return is_complete


def keep(environment: Path, cache: OutputFolder) -> None:
    """Archive an environment under its name. If that fails, it is built again next time, which is no error."""
    with contextlib.suppress(OSError):
        for name, found in cache.files():
            age = time.time() - found.st_mtime
            # drop drafts of killed jobs, and what no run has used for a month: CI copies the whole cache
            if (name.endswith(".tmp") and age > _ABANDONED_S) or (name.endswith(".tar") and age > _UNUSED_S):
                cache.remove(name)
    renamed = ["--transform", f"s,^{environment.name},env,S", "--owner=0", "--group=0", environment.name]
    archive = cache.replacing(f"{environment.name}.tar", sync=False)
    with contextlib.suppress(OSError, subprocess.SubprocessError), archive as target:
        _execute("tar", ["--create", f"--directory={environment.parent}", *renamed], stdout=target)


def has_python(environment: Path) -> bool:
    """Whether its interpreter is there; the link to it may dangle."""
    return (environment / "bin" / "python").exists()


def _execute(program: str, arguments: list[str], **options: Any) -> None:
    subprocess.run(  # noqa: S603 - tar or chown, with arguments of ours
        [shutil.which(program) or program, *arguments],
        stderr=subprocess.DEVNULL,
        env={"PATH": os.defpath},
        check=True,
        timeout=_LONGEST_COPY_S,
        **options,
    )


def uv_binary(environ: Mapping[str, str]) -> str:
    """Return the uv that is installed with us, else the one on the PATH."""
    with contextlib.suppress(FileNotFoundError):
        return find_uv_bin()
    found = shutil.which("uv", path=environ.get("PATH"))
    if found is None:
        raise AgentEnvironmentError(
            "the agent has no environment, and uv, which would build one, is not installed",
            hint="install uv, or make a .venv with google-adk beside the agent",
        )
    return found


def is_index_unreachable(text: str) -> bool:
    """Whether uv reports that an index did not answer or refused the login: the lock is not at fault."""
    return _UNREACHABLE.search(text) is not None


def failing_package(text: str) -> str | None:
    """Return the package that uv's message is about, if it names one."""
    return next((found[1] for pattern in _FAILING_PACKAGE if (found := pattern.search(text))), None)
