"""The sandboxes of a run: a copy of each tree, a uid, the variables its processes see, the folders closed to them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import ssl
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from agent_eval_action.folders import OutputFolder, open_file, real_path
from agent_eval_action.sandbox import EVENT, MOUNTED_FOLDERS, NEVER_WRITTEN, TEMPORARY, WORKSPACE, WRITTEN
from agent_eval_action.sandbox.tree import TreeCopy
from agent_eval_action.sandbox.users import (
    ISOLATION_VARIABLE,
    SandboxUser,
    free_uids,
    kill_processes_of,
    no_new_privileges,
)

if TYPE_CHECKING:
    from agent_eval_action.sandbox.google_tokens import GoogleTokens

Role = Literal["head", "base", "metrics"]
Level = Literal["info", "warning"]
ROLES: Final[tuple[Role, ...]] = ("head", "base", "metrics")

BUNDLE_VARIABLES: Final = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "PIP_CERT",
)
"""Variables that name a file of certificates."""

_BUNDLE_BYTES: Final = 8 << 20
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----\s[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_CREDENTIALS: Final = "GOOGLE_APPLICATION_CREDENTIALS"
_IN_CONTAINER: Final = Path("/agent-eval")
"""Always the same folder, so that the next job can reuse environments that contain code of the tree."""

_SHARED: Final = frozenset(
    Path(name)
    for name in ("/", "/bin", "/dev", "/etc", "/home", "/lib", "/opt", "/proc", "/sys", "/tmp", "/usr", "/var")  # noqa: S108 - names, nothing is written there
)
_SOCKETS: Final = ("/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock", "/run/containerd")
_VARIABLES: Final = (WORKSPACE, TEMPORARY, "HOME", *WRITTEN, *NEVER_WRITTEN, EVENT, "GOOGLE_APPLICATION_CREDENTIALS")
_PROBE: Final = """
import json, os, socket, stat, sys
def open_to_us(path):
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    if stat.S_ISSOCK(mode):
        try:
            socket.socket(socket.AF_UNIX).connect(path)
        except OSError:
            return False
        return True
    return os.access(path, os.R_OK) or os.access(path, os.W_OK)
print(json.dumps([path for path in sys.argv[1:] if open_to_us(path)]))
"""
_PROBE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Where, and as which user, one tree's code runs. ``workspace`` is the original, ``tree`` the copy."""

    workspace: Path
    tree: Path
    user: SandboxUser
    installer: SandboxUser
    environments: Path
    owner: Sandboxes

    def inside(self, path: Path) -> Path:
        """Return a path of the workspace in the copy; other paths stay as they are."""
        return self.tree / path.relative_to(self.workspace) if path.is_relative_to(self.workspace) else path

    def shown(self, text: str) -> str:
        """Return a text with the copy's paths replaced by the workspace's."""
        return text.replace(str(self.tree), str(self.workspace))

    def environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return what a process of this sandbox sees of the variables selected for it."""
        return self.owner.readable_environ(self.user.environ(environ), self)

    def install_environ(self, environ: Mapping[str, str], pythons: Path) -> dict[str, str]:
        """The same for the install step. ``pythons``: where uv puts an interpreter that it downloads."""
        found = self.owner.readable_environ(self.installer.environ(environ), self)
        # agents cannot write beside the modules they import, so compile bytecode now
        return {**found, "UV_PYTHON_INSTALL_DIR": str(pythons), "UV_COMPILE_BYTECODE": "1"}


def popen_options(user: SandboxUser | None) -> dict[str, Any]:
    """Return the ``subprocess.Popen`` arguments that run a process as this user; none for our own user."""
    return user.options() if user else {}


@dataclass
class Sandboxes:
    """The sandboxes of one run. Thread-safe; ``close`` ends everything that runs in them.

    ``hidden``: paths relative to a workspace, left out of agents' copies but not of those for metric functions.
    """

    root: Path
    workspace: Path
    users: Mapping[Role, SandboxUser]
    installers: Mapping[Role, SandboxUser]
    environ: Mapping[str, str]
    closed: Collection[Path]
    is_temporary: bool
    tokens: GoogleTokens | None = None
    hidden: Collection[Path] = ()
    _sandboxes: dict[tuple[Role, Path], Sandbox] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    building: threading.Lock = field(default_factory=threading.Lock)

    def sandbox(self, role: Role, workspace: Path) -> Sandbox:
        """Return a tree's sandbox; the first call makes the copy. Raises AgentEnvironmentError or OSError. Blocks."""
        with self._lock:
            made = self._sandboxes.get((role, workspace))
            if made is None:
                made = self._sandboxes[role, workspace] = self._make(role, workspace)
            return made

    def close(self) -> None:
        """Kill everything that still runs as one of our uids, and remove the copies.

        In the container the removal is only started, and nobody waits for it: the engine removes what is left after the
        run.
        """
        kill_processes_of({user.uid for user in (*self.users.values(), *self.installers.values())})
        if self.tokens is not None:
            self.tokens.close()
        if self.is_temporary:
            shutil.rmtree(self.root, ignore_errors=True)
            return
        with contextlib.suppress(OSError):
            removed = Path(tempfile.mkdtemp(prefix=".removed-", dir=self.root))
            for path in self.root.glob("[!.]*"):
                path.rename(removed / path.name)
            subprocess.Popen(["rm", "-rf", str(removed)], start_new_session=True)  # noqa: S603, S607 - a folder of ours

    def _make(self, role: Role, workspace: Path) -> Sandbox:
        user, installer = self.users[role], self.installers[role]
        user.make_home()
        installer.make_home()
        folder = self.root / role
        if role == "base":
            # always the same folder for a commit, because its environment may be cached
            folder /= hashlib.sha256(str(workspace).encode()).hexdigest()[:12]
        shutil.rmtree(folder, ignore_errors=True)
        _make_folders(self.root, folder)
        hidden = () if role == "metrics" else (workspace / path for path in self.hidden)
        environments, left_out = self.root / "environments", {*self.closed, *hidden}
        copy = TreeCopy(workspace, folder / workspace.name, user.uid, installer.uid, environments, left_out)
        copy.make()
        return Sandbox(workspace, copy.target, user, installer, environments, self)

    def readable_environ(self, environ: Mapping[str, str], sandbox: Sandbox) -> dict[str, str]:
        """Return the variables, with paths and credentials replaced by those the sandbox can read."""
        found, workspace = {}, str(sandbox.workspace)
        for name, value in environ.items():
            found[name] = value
            if name in BUNDLE_VARIABLES:
                found[name] = self._readable_bundle(value)
            elif value == workspace or value.startswith(f"{workspace}/"):  # as the runner does with its paths
                found[name] = str(sandbox.tree) + value[len(workspace) :]
        if self.tokens is not None:
            ours = self.environ.get(_CREDENTIALS) or None
            if (environ.get(_CREDENTIALS) or None) == ours:  # not one of the agent's own
                found.pop(_CREDENTIALS, None)
                found |= self.tokens.environ
        return found

    def _readable_bundle(self, value: str) -> str:
        """Copy a certificate file that may be in a closed folder to where the agent can read it; return the path.

        Only files that the step itself names are copied: root reads them, and the change controls the configuration
        file.
        """
        if value not in {self.environ.get(name) for name in BUNDLE_VARIABLES}:
            return value
        certificates = read_certificates(Path(value), self.workspace)
        if certificates is None:
            return value
        target = self.root / "certificates" / hashlib.sha256(value.encode()).hexdigest()[:16]
        with contextlib.suppress(OSError):
            _make_folders(self.root, target.parent)
            target.write_bytes(certificates)
            target.chmod(0o644)
            return str(target)
        return value


def open_sandboxes(
    environ: Mapping[str, str], workspace: Path, ours: Iterable[Path], say: Callable[[str, Level], None]
) -> Sandboxes | None:
    """Return the sandboxes of a run, or None if the uid cannot be dropped; ``say`` reports either. Blocks.

    ``ours`` are the folders that we write to: closed to agents, and left out of copies.
    """
    mode = environ.get(ISOLATION_VARIABLE, "")
    if reason := reason_not_isolated(environ):
        say(f"the agent runs as the user of this process and sees its files: {reason}", "info")
        return None
    workspace = workspace.resolve()
    uids = iter(free_uids(2 * len(ROLES), {0, workspace.stat().st_uid}))
    root = _make_root(mode)
    homes = root / "homes"
    _make_folders(root, homes, root / "environments")
    users = {role: SandboxUser(next(uids), homes / role) for role in ROLES}
    # one each: what the change's build steps leave behind must not reach the base commit's environment
    installers = {role: SandboxUser(next(uids), homes / f"install-{role}", umask=0o022) for role in ROLES}
    closed = frozenset(path.resolve() for path in ours)
    to_close = _paths_to_close(environ, (workspace, *closed))
    if mode == "container":
        _close_paths(to_close)
    left_open = _find_open_paths(users["head"], to_close)
    if isinstance(left_open, str):
        shutil.rmtree(root, ignore_errors=True)
        reason = f"no process can be given another uid here ({left_open})"
        say(f"the agent runs as root and sees everything: {reason}", "warning")
        return None
    no_new_privileges()
    uid = users["head"].uid
    say(f"the agent runs as uid {uid} on a copy of the checkout; what it writes there is not kept", "info")
    if left_open:
        say(f"not closed to the agent, whose uid can open it: {', '.join(left_open)}", "warning")
    from agent_eval_action.sandbox.google_tokens import serve_google_tokens  # noqa: PLC0415 - an HTTP server, for few

    served = frozenset(user.uid for user in users.values())
    tokens = serve_google_tokens(environ, served, lambda text: say(text, "warning"))
    return Sandboxes(root, workspace, users, installers, environ, closed, root != _IN_CONTAINER, tokens)


def _paths_to_close(environ: Mapping[str, str], more: Iterable[Path] = ()) -> tuple[Path, ...]:
    """Return existing paths that only we may read or write."""
    named = [environ[name] for name in _VARIABLES if environ.get(name, "").startswith("/")]
    paths = [Path(text) for text in (*named, *MOUNTED_FOLDERS, *_SOCKETS)]
    return tuple(dict.fromkeys(path for path in (*more, *paths) if os.path.lexists(path)))


def _close_paths(paths: Iterable[Path]) -> None:
    """Close, for each path, the topmost folder above it that is not shared.

    That folder is in the container's own layer, so no mode of the runner's folders changes, and a killed container
    leaves nothing to undo. Paths that are mounted directly in a shared folder cannot be closed like this.
    """
    layer = Path("/").stat().st_dev
    for path in paths:
        real = path.resolve()
        for folder in reversed((real, *real.parents)):
            if folder in _SHARED or not folder.is_dir():
                continue
            found = folder.lstat()
            if found.st_dev == layer and found.st_uid == 0:
                folder.chmod(stat.S_IMODE(found.st_mode) & 0o700)
            break


def _find_open_paths(user: SandboxUser, paths: Sequence[Path]) -> tuple[str, ...] | str:
    """Return which paths a process of this user can open, or a text: why no such process can be started."""
    command = [sys.executable, "-I", "-S", "-c", _PROBE, *map(str, paths)]
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter and program
            command, cwd="/", env={}, capture_output=True, check=True, timeout=_PROBE_S, **user.options()
        )
        return tuple(json.loads(done.stdout))
    except subprocess.CalledProcessError as error:
        return error.stderr.decode("utf-8", "replace").strip().splitlines()[-1:][0] if error.stderr else str(error)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return str(error)


def reason_not_isolated(environ: Mapping[str, str]) -> str:
    """Return why no agent gets a uid of its own; "" if it is tried."""
    mode = environ.get(ISOLATION_VARIABLE, "")
    if mode == "off":
        return f"{ISOLATION_VARIABLE} is off"
    if os.geteuid() != 0:
        return "only root can give it its own user"
    if mode not in {"on", "container"}:
        return f"it gets its own user in the container, or with {ISOLATION_VARIABLE}=on"
    return ""


def _make_root(mode: str) -> Path:
    if mode == "container":
        _IN_CONTAINER.mkdir(mode=0o711, exist_ok=True)
        return _IN_CONTAINER
    root = Path(tempfile.mkdtemp(prefix="agent-eval-", dir="/tmp"))
    root.chmod(0o711)
    return root


def make_container_environments() -> Path:
    """Return the container's folder for environments, creating it if needed."""
    folder = _make_root("container") / "environments"
    _make_folders(folder.parent, folder)
    return folder


def _make_folders(root: Path, *paths: Path) -> None:
    """Make folders under the root that everybody may pass through, and only root may list or write."""
    for path in paths:
        for folder in reversed((path, *path.parents)):
            if folder.is_relative_to(root) and folder != root:
                folder.mkdir(exist_ok=True)
                folder.chmod(stat.S_IRWXU | stat.S_IXGRP | stat.S_IXOTH)


def read_certificates(path: Path, workspace: Path) -> bytes | None:
    """Return only the certificates of a PEM file; None if it has none or cannot be read.

    Links inside the workspace are not followed, because the change could have added them. Links outside, such as
    Debian's and Fedora's in /etc/ssl, are the machine's own.
    """
    try:
        workspace = workspace.resolve()
        path = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links
        if not path.is_relative_to(workspace):
            path = real_path(path)
        if path.is_relative_to(workspace):
            opened = OutputFolder(workspace, workspace).read(path.relative_to(workspace).as_posix())
        else:
            opened = open_file(path)
        with opened as file:
            if os.fstat(file.fileno()).st_size > _BUNDLE_BYTES:
                return None
            certificates = b"\n".join([*_CERTIFICATE.findall(file.read(_BUNDLE_BYTES)), b""])
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=certificates.decode("ascii"))
    except (OSError, ValueError):  # ssl.SSLError is an OSError
        return None
    return certificates
