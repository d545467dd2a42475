"""What of our environment an agent gets to see: an allow-list, since CI puts its own credentials there."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from agent_eval_action.config.types import is_job_variable
from agent_eval_action.sandbox.certificates import BUNDLE_VARIABLES, read_certificates
from agent_eval_action.sandbox.google_tokens import GoogleTokens, serve_google_tokens
from agent_eval_action.sandbox.permissions import close_paths, find_open_paths, paths_to_close
from agent_eval_action.sandbox.tree import TreeCopy
from agent_eval_action.sandbox.users import SandboxUser, free_uids, kill_processes_of, no_new_privileges

ALLOWED_NAMES = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "TERM",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "TEMP",
        "TMP",
        "CI",
        "NO_COLOR",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
        "CLOUDSDK_CONFIG",
        "CLOUDSDK_CORE_PROJECT",
        "GCLOUD_PROJECT",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "OPENAI_API_BASE",
        "OPENAI_ORGANIZATION",
        "OPENAI_ORG_ID",
        "OPENAI_PROJECT",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "AZURE_API_KEY",
        "AZURE_API_BASE",
        "AZURE_API_VERSION",
        "AZURE_OPENAI_API_KEY",
        "AZURE_OPENAI_ENDPOINT",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_REGION_NAME",
        "AWS_BEARER_TOKEN_BEDROCK",
        "COHERE_API_KEY",
        "DEEPSEEK_API_KEY",
        "FIREWORKS_API_KEY",
        "GROQ_API_KEY",
        "HF_TOKEN",
        "HUGGINGFACE_API_KEY",
        "MISTRAL_API_KEY",
        "OPENROUTER_API_KEY",
        "PERPLEXITY_API_KEY",
        "TOGETHER_API_KEY",
        "TOGETHERAI_API_KEY",
        "XAI_API_KEY",
        "OLLAMA_API_BASE",
        "OLLAMA_HOST",
        "ADK_DISABLE_LOAD_DOTENV",
    }
)
"""Names passed on; in upper case, compared without case where a lower-case form is in use (proxies)."""

ALLOWED_PREFIXES = ("LC_", "SSL_CERT_", "GOOGLE_", "GEMINI_", "VERTEX", "LITELLM_")
"""Beginnings of names passed on."""


def agent_environ(environ: Mapping[str, str], env_allow: Iterable[str] = ()) -> dict[str, str]:
    """The variables an agent sees. ``env_allow`` names more of them, but never a variable of the CI job."""
    names = set(env_allow)
    return {
        name: value
        for name, value in environ.items()
        if (name in names or _is_allowed(name)) and not is_job_variable(name)
    }


def _is_allowed(name: str) -> bool:
    return (
        name in ALLOWED_NAMES
        or name.startswith(ALLOWED_PREFIXES)
        or (name.lower().endswith("_proxy") and name.upper() in ALLOWED_NAMES)
    )


Role = Literal["head", "base", "metrics"]
Level = Literal["info", "warning"]
ROLES: Final[tuple[Role, ...]] = ("head", "base", "metrics")

ISOLATION_VARIABLE: Final = "AGENT_EVAL_ISOLATION"
"""``container`` (set by our first process), ``on`` or ``off``. No option of agent-eval.yaml, which is the change's."""

_IN_CONTAINER: Final = Path("/agent-eval")
"""Always the same place: environments with code of the tree in them are found again by the next job."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Where one tree's code runs, and as whom. ``workspace`` is the original, ``tree`` the copy."""

    workspace: Path
    tree: Path
    user: SandboxUser
    installer: SandboxUser
    environments: Path
    building: threading.Lock
    rewrite: Callable[[dict[str, str]], dict[str, str]]

    def inside(self, path: Path) -> Path:
        """A path of the workspace in the copy; others stay."""
        return self.tree / path.relative_to(self.workspace) if path.is_relative_to(self.workspace) else path

    def shown(self, text: str) -> str:
        """A text with paths of the copy as those of the workspace."""
        return text.replace(str(self.tree), str(self.workspace))

    def environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """What a process of this cell sees of an environment that was picked for it."""
        return self.rewrite(self.user.environ(environ))

    def install_environ(self, environ: Mapping[str, str], pythons: Path) -> dict[str, str]:
        """The same for the install step. ``pythons``: where uv puts an interpreter it has to download."""
        found = self.rewrite(self.installer.environ(environ))
        # agents cannot write beside the modules they import, so bytecode is made now or never
        return {**found, "UV_PYTHON_INSTALL_DIR": str(pythons), "UV_COMPILE_BYTECODE": "1"}


def popen_options(user: SandboxUser | None) -> dict[str, Any]:
    """What ``subprocess.Popen`` is told; nothing where there is no uid to give."""
    return user.options() if user else {}


@dataclass
class Sandboxes:
    """The cells of one run. Thread-safe; ``close`` ends everything that runs in them.

    ``hidden``: paths relative to a workspace that the copies of agents lack, those of metric functions have.
    """

    root: Path
    workspace: Path
    users: Mapping[Role, SandboxUser]
    installers: Mapping[Role, SandboxUser]
    environ: Mapping[str, str]
    closed: Collection[Path]
    removed: bool
    tokens: GoogleTokens | None = None
    hidden: Collection[Path] = ()
    copied: list[tuple[float, int, int]] = field(default_factory=list)
    _cells: dict[tuple[Role, Path], Sandbox] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _building: threading.Lock = field(default_factory=threading.Lock)

    def cell(self, role: Role, workspace: Path) -> Sandbox:
        """The cell of a tree, its copy made at the first call. Raises AgentEnvironmentError or OSError. Blocks."""
        with self._lock:
            made = self._cells.get((role, workspace))
            if made is None:
                made = self._cells[role, workspace] = self._make(role, workspace)
            return made

    def close(self) -> None:
        """Kill whatever still runs as one of our uids, and remove the copies where nobody else does."""
        kill_processes_of({user.uid for user in (*self.users.values(), *self.installers.values())})
        if self.tokens is not None:
            self.tokens.close()
        if self.removed:
            shutil.rmtree(self.root, ignore_errors=True)

    def _make(self, role: Role, workspace: Path) -> Sandbox:
        user, installer = self.users[role], self.installers[role]
        user.make_home()
        installer.make_home()
        place = self.root / role
        if role == "base":
            # one per commit, and the same one for the same commit: its environment may be cached
            place /= hashlib.sha256(str(workspace).encode()).hexdigest()[:12]
        shutil.rmtree(place, ignore_errors=True)
        _make_folders(self.root, place)
        began = time.monotonic()
        hidden = () if role == "metrics" else (workspace / path for path in self.hidden)
        closed = {*self.closed, *hidden}
        copy = TreeCopy(workspace, place / workspace.name, user.uid, installer.uid, self.root / "environments", closed)
        copy.make()
        self.copied.append((time.monotonic() - began, copy.files, copy.bytes))
        return Sandbox(
            workspace,
            copy.target,
            user,
            installer,
            self.root / "environments",
            self._building,
            lambda environ: self._rewritten(environ, workspace, copy.target),
        )

    def _rewritten(self, environ: dict[str, str], workspace: Path, tree: Path) -> dict[str, str]:
        found = {}
        for name, value in environ.items():
            if name in BUNDLE_VARIABLES:
                value = self._bundle(value)  # noqa: PLW2901 - what is closed to it is handed over
            elif value == str(workspace) or value.startswith(f"{workspace}/"):
                value = str(tree) + value[len(str(workspace)) :]  # noqa: PLW2901 - as the runner maps its own paths
            found[name] = value
        if self.tokens is not None:
            ours = self.environ.get("GOOGLE_APPLICATION_CREDENTIALS") or None
            if (environ.get("GOOGLE_APPLICATION_CREDENTIALS") or None) == ours:  # not one of the agent's own
                found.pop("GOOGLE_APPLICATION_CREDENTIALS", None)
                found |= self.tokens.environ
        return found

    def _bundle(self, value: str) -> str:
        """Where the agent can read the certificates of a file that may lie in a closed folder.

        Only a file that the step itself names is copied: root reads it, and a configuration file is the change's.
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
    """The cells of a run, or None where the uid cannot be dropped; either is said once. Blocks.

    ``ours`` are folders that hold what we write: closed, and in no copy. ``say`` takes a text and a level.
    """
    asked = environ.get(ISOLATION_VARIABLE, "")
    why = _reason_not_isolated(asked)
    if why:
        say(f"the agent runs as the user of this process and sees its files: {why}", "info")
        return None
    found = workspace.resolve()
    uids = free_uids(2 * len(ROLES), {0, found.stat().st_uid})
    root = _make_root(asked)
    homes = root / "homes"
    _make_folders(root, homes, root / "environments")
    users = {role: SandboxUser(uid, homes / role) for role, uid in zip(ROLES, uids, strict=False)}
    # one each: what a build step of the change leaves behind must not reach the environment of the base commit
    installers = {
        role: SandboxUser(uid, homes / f"install-{role}", umask=0o022)
        for role, uid in zip(ROLES, uids[len(ROLES) :], strict=True)
    }
    ours = tuple(path.resolve() for path in ours)
    closing = paths_to_close(environ, (found, *ours))
    if asked == "container":
        close_paths(closing)
    left = find_open_paths(users["head"], closing)
    if isinstance(left, str):
        shutil.rmtree(root, ignore_errors=True)
        say(f"the agent runs as root and sees everything: no process can be given another uid here ({left})", "warning")
        return None
    no_new_privileges()
    say(
        f"the agent runs as uid {users['head'].uid} on a copy of the checkout; what it writes there is not kept", "info"
    )
    if left:
        say(f"not closed to the agent, whose uid can open it: {', '.join(left)}", "warning")
    tokens = serve_google_tokens(
        environ, frozenset(user.uid for user in users.values()), lambda text: say(text, "warning")
    )
    return Sandboxes(root, found, users, installers, environ, frozenset(ours), root != _IN_CONTAINER, tokens)


def _reason_not_isolated(asked: str) -> str:
    if asked == "off":
        return f"{ISOLATION_VARIABLE} is off"
    if os.geteuid() != 0:
        return "only root can give it a uid of its own"
    return (
        ""
        if asked in {"on", "container"}
        else f"a uid of its own is given in the container, or with {ISOLATION_VARIABLE}=on"
    )


def _make_root(asked: str) -> Path:
    if asked == "container":
        _IN_CONTAINER.mkdir(mode=0o711, exist_ok=True)
        return _IN_CONTAINER
    root = Path(tempfile.mkdtemp(prefix="agent-eval-", dir="/tmp"))
    root.chmod(0o711)
    return root


def _make_folders(root: Path, *places: Path) -> None:
    """Folders under the root that anybody may pass through, and nobody but root may list or write."""
    for place in places:
        for folder in reversed((place, *place.parents)):
            if folder.is_relative_to(root) and folder != root:
                folder.mkdir(exist_ok=True)
                folder.chmod(stat.S_IRWXU | stat.S_IXGRP | stat.S_IXOTH)
