"""Bounded walks over folders that find agents, eval files and the files that match a pattern.

Files in Google Cloud Storage buckets are fetched into the workspace with the job's credentials.
A store of ``adk eval`` (``--eval_storage_uri``) keeps an eval set at ``AGENT/evals/eval_sets/ID.evalset.json``.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from agent_eval_action.config.types import EvalPattern
from agent_eval_action.diagnostics.reader import YAML_SUFFIXES, did_you_mean, shorten
from agent_eval_action.diagnostics.tables import MAX_TABLE_BYTES, TABLE_SUFFIXES, is_table
from agent_eval_action.folders import OutputFolder, beginning
from agent_eval_action.results.evalset import CONFORMANCE_SPEC, EVAL_SUFFIXES, FIXTURES

SET_FOLDERS: Final = ("evalsets", "eval/datasets")
"""Folders of Google's project templates, where every JSON file with eval cases is an eval file."""
MAX_ENTRIES: Final = 250_000
GO_SERVER: Final = ("go", "run", ".", "web", "--port", "{port}", "--write-timeout", "10m", "api", "-path_prefix", "/")
"""Serves an agent of ADK for Go over REST, like agents-cli. The timeout is set because ADK's default is 15 s."""

_MAX_DEPTH: Final = 40
PRUNED: Final = frozenset({"node_modules", "site-packages", "__pycache__", "venv", "build", "dist", "target"})
_NO_AGENTS: Final = frozenset({"tests", "test"})  # these contain eval files; agents in them are fixtures
_FOREIGN: Final = frozenset({"tsconfig.test.json"})  # TypeScript's, with the same suffix
_MENTION: Final = re.compile(rb"\b(?:root_agent|get_agent_async)\b")
_APP: Final = re.compile(rb"^app\s*(?::[^=\n]+)?=|\bimport\b[^\n]*\bapp\b", re.MULTILINE)
_CASE: Final = re.compile(rb'"(?:eval_?[iI]d|eval_?[cC]ase_?[iI]d|prompt|agent_?[dD]ata)"\s*:')
_SESSION: Final = (re.compile(rb'"events"\s*:\s*\['), re.compile(rb'"author"\s*:\s*"user"'))
_MANIFEST: Final = "agents-cli-manifest.yaml"
_MANIFEST_LINE: Final = re.compile(rb"^(language|agent_directory):\s*[\"']?([^\"'\s#]+)", re.MULTILINE)
_READ: Final = 256 * 1024
_MAGIC: Final = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Walked:
    """What a walk found, sorted by path.

    ``go_agents``: agent folders of agents-cli's Go projects, served by ``GO_SERVER``.
    """

    agents: tuple[Path, ...]
    eval_files: tuple[Path, ...]
    go_agents: tuple[Path, ...] = ()


class TooManyEntries(Exception):  # noqa: N818 - internal signal; the caller adds the hint
    """A walk found more entries than its limit."""


def walk(root: Path, *, max_entries: int = MAX_ENTRIES) -> Walked:
    """Search a folder for agents and eval files, except linked, hidden, build and installed folders.

    Raises TooManyEntries.
    """
    agents: list[Path] = []
    go_agents: list[Path] = []
    files: list[Path] = []
    for folder, entries in _folders(root, max_entries):
        names = {entry.name for entry in entries}
        if not _NO_AGENTS & set(folder.relative_to(root).parts) and holds_agent(folder, names):
            agents.append(folder)
        if _MANIFEST in names and (agent := _go_agent(folder)) is not None:
            go_agents.append(agent)
        named = [folder / entry.name for entry in entries if entry.name.endswith((".json", CONFORMANCE_SPEC))]
        here = [file for file in named if os.path.isfile(file)]  # noqa: PTH113 - the other raises for some links
        files += filter(is_eval_file, here)
    return Walked(tuple(sorted(agents)), tuple(sorted(files)), tuple(sorted(go_agents)))


def _go_agent(project: Path) -> Path | None:
    """The agent folder named by the manifest of a Go project; None for other languages."""
    lines = _MANIFEST_LINE.findall(beginning(project / _MANIFEST, _READ))
    found = {key: os.fsdecode(value) for key, value in lines}
    folder = Path(os.path.normpath(project / found.get(b"agent_directory", "app")))
    is_inside = folder != project and folder.is_relative_to(project)
    return folder if found.get(b"language") == "go" and is_inside and folder.is_dir() else None


def is_set_folder(folder: Path) -> bool:
    """Whether the folder is one of ``SET_FOLDERS``, wherever it lies."""
    return folder.as_posix().endswith(tuple(f"/{name}" for name in SET_FOLDERS))


def is_eval_file(path: Path) -> bool:
    """Whether discovery takes a file as an eval file, by its name or by its folder and content."""
    if path.name.endswith(EVAL_SUFFIXES):
        return path.name not in _FOREIGN
    if path.name == CONFORMANCE_SPEC:
        return any(path.with_name(f"generated-recordings{mode}.yaml").is_file() for mode in ("", "-sse"))
    return (is_set_folder(path.parent) and holds_cases(path)) or _is_fixture(path)


def _is_fixture(path: Path) -> bool:
    """Whether `adk test` runs the file (session events beside an agent) and does not expect it to fail."""
    if path.parent.name != FIXTURES or path.suffix != ".json" or path.stem.endswith("_xfail"):
        return False
    try:
        names = [entry.name for entry in path.parent.parent.iterdir()]
    except OSError:
        return False
    return holds_agent(path.parent.parent, names) and all(mark.search(beginning(path, _READ)) for mark in _SESSION)


def holds_cases(path: Path) -> bool:
    """Whether a JSON file looks like it has eval cases, whatever its name; reads only its beginning."""
    text = beginning(path, _READ) if path.suffix == ".json" else b""
    return b"eval_cases" in text and bool(_CASE.search(text))


def files_below(root: Path, *, max_entries: int = MAX_ENTRIES) -> Iterator[Path]:
    """Every file below a folder, in the folders that `walk` searches. Raises TooManyEntries."""
    for folder, entries in _folders(root, max_entries):
        for entry in entries:
            is_link = entry.is_symlink()
            if not (os.path.isdir(entry) if is_link else entry.is_dir()):  # noqa: PTH112 - as above
                yield folder / entry.name


def _folders(root: Path, max_entries: int) -> Iterator[tuple[Path, list[os.DirEntry[str]]]]:
    """Folders with their entries, in a stable order, parents first."""
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:  # unreadable or removed since: nothing in it can run
            entries = []
        if depth and any(entry.name == "pyvenv.cfg" for entry in entries):
            continue
        max_entries -= len(entries)
        if max_entries < 0:
            raise TooManyEntries
        yield folder, entries
        waiting += [
            (folder / entry.name, depth + 1)
            for entry in reversed(entries)
            if depth < _MAX_DEPTH
            and entry.is_dir(follow_symlinks=False)
            and not entry.name.startswith(".")
            and entry.name not in PRUNED
        ]


def holds_agent(folder: Path, names: Iterable[str]) -> bool:
    """Whether a folder's files look like an agent that ADK would find; imports nothing."""
    present = set(names)
    if "root_agent.yaml" in present:
        return True
    if "agent.py" in present:
        text = beginning(folder / "agent.py", _READ)
        return bool(_MENTION.search(text) or (b"adk" in text and (_APP.search(text) or not _parses(text))))
    return "__init__.py" in present and bool(_MENTION.search(beginning(folder / "__init__.py", _READ)))


def _parses(text: bytes) -> bool:
    """Whether the text is valid Python. A broken agent.py counts as an agent, so that starting it reports the line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError):
        return len(text) >= _READ  # truncated
    except (RecursionError, MemoryError):
        return True
    return True


def texts_below(root: Path, suffixes: tuple[str, ...], *, max_entries: int, size: int) -> Iterator[tuple[Path, bytes]]:
    """Files below a folder with these suffixes, and the first ``size`` bytes of each; stops at ``max_entries``."""
    with contextlib.suppress(TooManyEntries):
        for path in files_below(root, max_entries=max_entries):
            if path.suffix in suffixes:
                yield path, beginning(path, size)


def expand(named: EvalPattern) -> tuple[Path, ...]:
    """The matching files, sorted. Raises EvalFileError if there are none: a gate that ran nothing must not pass."""
    path = Path(os.path.normpath(named.origin.base / named.pattern))
    if path.is_file():
        return (path,)
    is_glob = bool(_MAGIC.search(named.pattern))
    try:
        if path.is_dir():
            return _eval_files_below(path, named)
        found: tuple[Path, ...] = ()
        if is_glob:  # search from the last folder without wildcards
            first = next(index for index, part in enumerate(path.parts) if _MAGIC.search(part))
            start, wanted = Path(*path.parts[:first]), glob_regex("/".join(path.parts[first:]))
            below = files_below(start)
            found = tuple(sorted(file for file in below if wanted.fullmatch(file.relative_to(start).as_posix())))
    except TooManyEntries:
        message = f"more than {MAX_ENTRIES} files to look through"
        raise named.refusal(message, "name a folder further down") from None
    except re.error:
        raise named.refusal("is not a glob", "[a-z] holds a range, ** stands alone") from None
    if found:
        return found
    if is_glob:
        raise named.refusal("matches no file", f"paths start from {named.origin.base}")
    siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    raise named.refusal("there is no such eval file", did_you_mean(path.name, siblings))


def _eval_files_below(folder: Path, named: EvalPattern) -> tuple[Path, ...]:
    files = sorted(files_below(folder))
    if named.columns is not None:
        found = tuple(filter(is_table, files))
        what, names = "no table", "*.csv, *.tsv, *.jsonl or *.ndjson"
    else:
        found = tuple(filter(is_eval_file, files)) or tuple(filter(holds_cases, files))
        what, names = "no eval file", "*.evalset.json or *.test.json; a table is named itself"
    if not found:
        raise named.refusal(f"{what} in this folder", names)
    return found


def glob_regex(pattern: str) -> re.Pattern[str]:
    """Translate a glob: ``*``, ``?`` and ``[...]`` match inside a name, ``**`` any number of folders."""
    *folders, name = PurePosixPath(pattern).parts
    out = "".join("(?:[^/]+/)*" if part == "**" else _name_regex(part) + "/" for part in folders)
    return re.compile(out + (".*" if name == "**" else _name_regex(name)), re.DOTALL)


def _name_regex(part: str) -> str:
    out, index = "", 0
    while index < len(part):
        sign, index = part[index], index + 1
        end = part.find("]", index + 1 + (part[index : index + 1] == "!"))
        if sign == "[" and end > 0:
            inside, index = part[index:end], end + 1
            letters = inside.removeprefix("!").replace("\\", r"\\").replace("^", r"\^").replace("[", r"\[")
            out += f"(?!/)[{'^' if inside.startswith('!') else ''}{letters}]"
        else:
            out += {"*": "[^/]*", "?": "[^/]"}.get(sign, re.escape(sign))
    return out


# --- eval files in buckets -------------------------------------------------------------------------

FETCHED: Final = Path(".agent-eval/gs")
"""Folder of fetched files in the workspace; each is at ``BUCKET/OBJECT`` in it."""

_ADDRESS: Final = re.compile(r"gs:/{1,2}(?P<bucket>[a-z0-9][a-z0-9._-]{1,220}[a-z0-9])(?:/(?P<name>.*))?", re.DOTALL)
_SETS: Final = "evals/eval_sets"
_SUFFIXES: Final = (".json", *YAML_SUFFIXES, *TABLE_SUFFIXES)
_MOST_OBJECTS: Final = 1000
_SECONDS: Final = 30.0
_INSTALL: Final = "pip install 'agent-eval-action[gcs]'"


def is_in_bucket(pattern: str) -> bool:
    """Whether the pattern is an address in a bucket; ``Path`` turns ``gs://`` into ``gs:/``."""
    return pattern.startswith(("gs://", "gs:/"))


def fetch(named: EvalPattern, agents: Sequence[Path], workspace: Path) -> dict[Path, Path | None]:
    """Fetch the files at an address: each, sorted, with the folder of the agent whose store it is from, or None.

    Raises EvalFileError if there are none or they cannot be fetched.

    ``gs://bucket/x.evalset.json`` is an object, ``gs://bucket/folder/`` means every eval file below, ``gs://bucket``
    every eval set of these agents in a store of ``adk eval``, and ``gs://bucket/my_set`` the set with this id.
    """
    found = _ADDRESS.fullmatch(named.pattern)
    if found is None:
        raise named.refusal(
            "is no address of a bucket", "gs://bucket, gs://bucket/my_set or gs://bucket/x.evalset.json"
        )
    name = found["name"] or ""
    with _errors_as_problems(named):
        bucket, limits = _open_bucket(found["bucket"])
        names = dict(_objects(bucket, limits, name, agents))
        if not names:
            ours = " or ".join(f"{folder.name}/{_SETS}/" for folder in agents)
            hint = f"a store of adk eval has the agent's eval sets in {ours}" if not name.endswith(_SUFFIXES) else None
            raise named.refusal("there is no such eval file", hint)
        if len(names) > _MOST_OBJECTS:
            raise named.refusal(f"names more than {_MOST_OBJECTS} eval files", "name a folder further down")
        store = OutputFolder(workspace / FETCHED, workspace)
        for wanted in names:
            blob = bucket.get_blob(wanted, **limits)
            if blob is None:
                raise OSError(f"{wanted} was removed meanwhile")
            if (blob.size or 0) > MAX_TABLE_BYTES:
                raise OSError(f"{wanted} is larger than {MAX_TABLE_BYTES // (1024 * 1024)} MB")
            with store.replacing(f"{bucket.name}/{wanted}", sync=False) as file:
                blob.download_to_file(file, **limits)
    return {workspace / FETCHED / bucket.name / wanted: agent for wanted, agent in sorted(names.items())}


def _open_bucket(name: str) -> tuple[Any, dict[str, Any]]:
    """Google's client of a bucket, and the limits of each of its requests."""
    storage = importlib.import_module("google.cloud.storage")  # untyped, slow to import, and rarely used
    retry = importlib.import_module("google.cloud.storage.retry").DEFAULT_RETRY.with_timeout(_SECONDS)
    # Reading objects needs no project, but without one the client would ask the machine for it.
    client = storage.Client(project=os.environ.get("GOOGLE_CLOUD_PROJECT") or "none")
    return client.bucket(name), {"timeout": _SECONDS, "retry": retry}


def _objects(
    bucket: Any, limits: Mapping[str, Any], name: str, agents: Sequence[Path]
) -> Iterator[tuple[str, Path | None]]:
    def names_below(prefix: str) -> list[str]:
        return [blob.name for blob in bucket.list_blobs(prefix=prefix, max_results=_MOST_OBJECTS + 1, **limits)]

    if name.endswith(_SUFFIXES):
        if bucket.get_blob(name, **limits) is not None:
            yield name, None
    elif name.endswith("/"):
        yield from ((found, None) for found in names_below(name) if found.endswith(EVAL_SUFFIXES))
    else:
        for folder in agents:
            prefix = f"{folder.name}/{_SETS}/"
            for found in names_below(prefix):
                if found == f"{prefix}{name}.evalset.json" or (not name and found.endswith(".evalset.json")):
                    yield found, folder


@contextlib.contextmanager
def _errors_as_problems(named: EvalPattern) -> Iterator[None]:
    """Turn exceptions of Google's client and its transport into a problem with the address."""
    try:
        from google.api_core.exceptions import Forbidden, GoogleAPIError, NotFound, Unauthorized  # noqa: PLC0415 - slow
        from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415 - as above
        from requests import RequestException  # noqa: PLC0415 - as above

        yield
    except ImportError as missing:
        raise named.refusal(f"needs google-cloud-storage ({missing.name})", _INSTALL) from missing
    except NotFound:
        raise named.refusal("there is no such bucket or object", None) from None
    except (Forbidden, Unauthorized, GoogleAuthError) as error:
        hint = "the job needs credentials of Google Cloud that may read the bucket (storage.objects.get and .list)"
        raise named.refusal(f"may not be read: {_sentence(error)}", hint) from None
    except (GoogleAPIError, RequestException, OSError, ValueError) as error:
        raise named.refusal(f"cannot be fetched: {_sentence(error)}", None) from None


def _sentence(error: Exception) -> str:
    return shorten(" ".join(str(error).split()), 200).strip('"')
