"""Read a repository with one git process per question, in a restricted environment, and export a commit's files.

No program that the repository's configuration names is ever started. Fetches and pushes use a private repository, so
that the user's is never touched.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

from agent_eval_action.folders import real_path

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


# --- the remote, read from the configuration as text, and a private repository to fetch and push with ---

_SCP: Final = re.compile(r"[A-Za-z0-9_.@-]+:(?!//)[^\s]+")
_SCHEMES: Final = frozenset({"https", "http", "ssh", "file", "git"})
ORIGIN: Final = "origin"

_JOB_TOKENS: Final = (
    ("GITHUB_SERVER_URL", "https://github.com", "GITHUB_TOKEN", "x-access-token"),
    ("CI_SERVER_URL", "", "CI_JOB_TOKEN", "gitlab-ci-token"),
)
"""Per CI: the server's variable, the default server, the variable of the job's token, and the token's user."""

_REMOTE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*")


@dataclass(frozen=True, slots=True)
class Remote:
    """A remote's address without credentials; ``header`` is sent only to its host."""

    url: str
    header: str = field(default="", repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def config(self, name: str) -> tuple[tuple[str, str], ...]:
        """Git's configuration for this remote as ``name``."""
        settings = [(f"remote.{name}.url", self.url)]
        if self.header:
            # with a token, no credential helper must add another header
            settings += [("credential.helper", ""), (f"http.{_origin(self.url)}/.extraheader", self.header)]
        return tuple(settings)


def remote_of(repository: Repository, name: str, environ: Mapping[str, str]) -> Remote | None:
    """The remote ``name`` of a repository, or None if there is no usable one.

    Uses the checkout's credential (actions/checkout leaves a header in the configuration), else the one in the
    address, else the CI job's token, which is only sent to the CI's own server.
    """
    if not _REMOTE_NAME.fullmatch(name):
        return None
    url, embedded = _without_credentials(_absolute(repository, repository.setting("--get", f"remote.{name}.url")))
    if not url:
        return None
    if not url.startswith(("https://", "http://")):
        return Remote(url)
    header = repository.setting("--get-urlmatch", "http.extraheader", url)
    if not header.lower().startswith("authorization:"):
        credentials = embedded or _job_credentials(url, environ)
        header = f"AUTHORIZATION: basic {base64.b64encode(credentials.encode()).decode()}" if credentials else ""
    return Remote(url, header, _secrets(header, embedded))


def _absolute(repository: Repository, raw: str) -> str:
    """The address in a form that works from other folders; "" if it is of a kind that we do not use."""
    if not raw or raw.startswith("-") or any(ord(char) < ord(" ") for char in raw):
        return ""
    if "://" in raw:
        return raw if urlsplit(raw).scheme.lower() in _SCHEMES else ""
    if "::" in raw.split("/", 1)[0]:  # ext::, fd:: and any other remote helper on the PATH
        return ""
    if _SCP.fullmatch(raw) and not (repository.folder / raw).exists():
        return raw
    return str(real_path(repository.folder / raw))


def _without_credentials(url: str) -> tuple[str, str]:
    """Split an address into address and ``user:password``, because git's argument lists show addresses."""
    if not url.startswith(("https://", "http://")):
        return url, ""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url, ""
    who, _, host = parts.netloc.rpartition("@")
    user, _, password = who.partition(":")
    credentials = f"{unquote(user)}:{unquote(password)}" if user or password else ""
    return parts._replace(netloc=host, fragment="").geturl(), credentials


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _job_credentials(url: str, environ: Mapping[str, str]) -> str:
    for server_variable, default_server, token_variable, user in _JOB_TOKENS:
        server = environ.get(server_variable, "").strip() or default_server
        token = environ.get(token_variable, "").strip()
        if server and token and _origin(url) == _origin(server):
            return f"{user}:{token}"
    return ""


def _secrets(header: str, embedded: str) -> tuple[str, ...]:
    words = [header.rpartition(" ")[2], embedded, embedded.partition(":")[2]]
    if "basic " in header.lower():
        with contextlib.suppress(ValueError):
            words.append(base64.b64decode(words[0], validate=True).decode().partition(":")[2])
    return tuple(word for word in words if word)


_STORE: Final = "store"
_HERE: Final = "refs/agent-eval/fetched"
_WHO: Final = (("user.name", "agent-eval"), ("user.email", "agent-eval@users.noreply.github.com"))
_ABSENT: Final = re.compile(r"couldn't find remote ref|Remote branch .* not found")
_MOVED: Final = re.compile(
    r"\(fetch first\)|\(non-fast-forward\)|\(stale info\)|cannot lock ref|failed to update ref|incorrect old value"
    r"|reference already exists|\(failed to lock\)|remote ref (?:does not exist|changed)"
)
_REFUSED: Final = re.compile(r"\[remote rejected\]|\[rejected\]|denied|protected branch|\b40[13]\b|not permitted")


@dataclass(frozen=True, slots=True)
class Pushed:
    """The outcome of a push; all but ``done`` have git's message. ``moved``: another push was faster."""

    outcome: Literal["done", "moved", "refused", "unreachable"]
    error: str = ""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The fetched commit, or None if the ref does not exist or, with git's message, after an error."""

    sha: str | None
    error: str = ""


class Scratch(Repository):
    """A private temporary repository with one remote, which can also be written."""

    @classmethod
    @contextlib.contextmanager
    def open(cls, remote: Remote, environ: Mapping[str, str]) -> Iterator[Scratch]:
        """Create a repository, and remove it at the end. Raises OSError if it cannot be created."""
        with tempfile.TemporaryDirectory(prefix="agent-eval-git-", ignore_cleanup_errors=True) as folder:
            config = (*_WHO, *remote.config(_STORE))
            scratch = cls(Path(folder), environ, network=True, config=config, secrets=remote.secrets)
            made = scratch.run("init", "--quiet", "--bare", "--template=", ".")
            if not made.ok:
                raise OSError(made.err or "git init failed")
            yield scratch

    def fetch(self, ref: str, *, depth: int, commits_only: bool = False) -> Fetched:
        """Fetch ``depth`` commits of ``ref`` (a full ref name, or a commit)."""
        options = ["--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", f"--depth={depth}"]
        if commits_only:
            options.append("--filter=tree:0")
        result = self.run("fetch", *options, _STORE, f"+{ref}:{_HERE}")
        if not result.ok:
            return Fetched(None, "" if _ABSENT.search(result.err) else result.complaint)
        return Fetched(self.resolve(_HERE))

    def write_blob(self, data: bytes) -> str:
        """Store bytes; returns the object name."""
        return self._write("hash-object", "-w", "--stdin", "--no-filters", stdin=data)

    def write_tree(self, lines: Iterable[tuple[str, str, str, str]]) -> str:
        """Store a tree with entries of (mode, type, object, name)."""
        text = "".join(f"{mode} {kind} {oid}\t{name}\0" for mode, kind, oid, name in lines)
        return self._write("mktree", "-z", "--missing", stdin=text.encode())

    def write_commit(self, tree: str, parent: str | None, message: str) -> str:
        """Store a commit; without a parent it is the root of an orphan branch."""
        args = ("--no-gpg-sign", tree, *(("-p", parent) if parent else ()))
        return self._write("commit-tree", *args, stdin=message.encode())

    def _write(self, *args: str, stdin: bytes) -> str:
        result = self.run(*args, stdin=stdin)
        if not result.ok or not is_sha(result.text):
            raise OSError(result.complaint or "git wrote nothing")
        return result.text

    def push(self, sha: str, ref: str, expected: str | None) -> Pushed:
        """Move the remote's ``ref`` to ``sha`` if it still is ``expected`` (None: does not exist)."""
        lease = f"--force-with-lease={ref}:{expected or ''}"
        options = ("--porcelain", "--no-verify", "--no-signed", lease)
        result = self.run("push", *options, _STORE, f"{sha}:{ref}")
        if result.ok:
            return Pushed("done")
        output = f"{result.text}\n{result.err}"
        if _MOVED.search(output):
            return Pushed("moved", result.complaint)
        return Pushed("refused" if _REFUSED.search(output) else "unreachable", result.complaint)
