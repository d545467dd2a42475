"""One git process: its environment, its limits, and what it may not do whatever a repository's config asks for."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

LOCAL_S: Final = 10.0
NETWORK_S: Final = 90.0
MAX_OUTPUT: Final = 512 * 1024 * 1024

# The workspace's .git/config is untrusted: it may name programs to run.
_OFF: Final = (
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


_OF_OBJECTS: Final = frozenset({"cat-file", "ls-tree"})
"""What may be asked while agents run: objects by their own names, which were found out before."""

_agents = 0


def agents_begin() -> None:
    """Forbid questions about the checkout while agents run, which could have changed it: they raise AssertionError."""
    global _agents  # noqa: PLW0603 - the agents of one process
    _agents += 1


def agents_end() -> None:
    """Allow them again: the agents have ended."""
    global _agents  # noqa: PLW0603 - as above
    _agents = max(0, _agents - 1)


@dataclass(frozen=True, slots=True)
class Done:
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


@dataclass(frozen=True, slots=True)
class Git:
    """Runs git in one repository.

    ``network``: may speak with a remote; ``config``: more settings, given by the environment so that no
    token stands in an argument list, where every user of the machine can read it.
    """

    folder: Path
    environ: Mapping[str, str]
    network: bool = False
    config: Sequence[tuple[str, str]] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def __call__(self, *args: str, stdin: bytes = b"", timeout: float | None = None) -> Done:
        """Run ``git ARGS``; what cannot be started or takes too long is a code of its own, never raised."""
        # a repository with a network is one of ours, and empty of anything an agent could have written
        if _agents and not self.network and args[0] not in _OF_OBJECTS:
            raise AssertionError(f"git {args[0]} is asked of the checkout while agents run")
        program = shutil.which("git", path=self.environ.get("PATH", os.defpath))
        if program is None:
            return Done(127, err="git is not installed")
        try:
            process = subprocess.Popen(  # noqa: S603 - argv is ours, no shell
                [program, "-C", str(self.folder), *args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environ(),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return Done(126, err=f"git cannot be started: {error}")
        with process:
            try:
                out, err = process.communicate(stdin, timeout or (NETWORK_S if self.network else LOCAL_S))
            except BaseException as error:
                # what git started for a remote holds our pipes, and would wait for the remote for ever
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                process.communicate()
                return Done(124, err=f"git {args[0]} took too long")
        return Done(process.returncode, out, self._plain(err))

    def _environ(self) -> dict[str, str]:
        given = self.environ
        own = {
            "PATH": given.get("PATH", os.defpath),
            "LC_ALL": "C",
            "GIT_TERMINAL_PROMPT": "0",
            "GCM_INTERACTIVE": "never",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_ALLOW_PROTOCOL": _PROTOCOLS if self.network else _NO_PROTOCOL,
        }
        if self.network:
            own |= {name: given[name] for name in _NETWORK_ENVIRON if name in given}
            own.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes -o ConnectTimeout=20")
        settings = (*_OFF, *self.config)
        own["GIT_CONFIG_COUNT"] = str(len(settings))
        for number, (key, value) in enumerate(settings):
            own[f"GIT_CONFIG_KEY_{number}"] = key
            own[f"GIT_CONFIG_VALUE_{number}"] = value
        return own

    def _plain(self, raw: bytes) -> str:
        text = raw[-20_000:].decode("utf-8", "replace")
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text.strip()
