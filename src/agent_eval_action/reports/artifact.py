"""Reads untrusted results: results.json, a folder that contains it, or the zip of an artifact.

All input is assumed hostile. Reads one file of bounded size, follows no links, writes and unpacks nothing.
"""

from __future__ import annotations

import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Final

from agent_eval_action.errors import ResultsError
from agent_eval_action.folders import open_file
from agent_eval_action.reports.results_json import RESULTS, parsed
from agent_eval_action.results.run_result import RunResult

MAX_BYTES: Final = 64 * 1024 * 1024
"""Limit for results.json; 5,000 cases take about 20 MB."""
MAX_ZIP: Final = 256 * 1024 * 1024
MAX_ENTRIES: Final = 20_000
MAX_DEPTH: Final = 4
_PACKED: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_ENCRYPTED: Final = 0x1
_HINT: Final = "it is what upload-artifact keeps of the folder `agent-eval run --out` names"


def read_foreign(path: Path) -> RunResult:
    """Read results.json at ``path``, in a folder or in a zip. Raises ResultsError for anything else."""
    mode = _mode(path)
    if stat.S_ISDIR(mode):
        found = list(_files(path, MAX_DEPTH))
        if len(found) != 1:
            raise ResultsError(f"{path} holds {len(found) or 'no'} {RESULTS}, it must hold one", hint=_HINT)
        return _read_file(found[0])
    if not stat.S_ISREG(mode):
        raise ResultsError(f"{path} is no regular file", hint=_HINT)
    with _open(path) as file:
        is_zip = file.read(2) == b"PK"
    return _read_zip(path) if is_zip else _read_file(path)


def _read_file(path: Path) -> RunResult:
    with _open(path) as file:
        return _parsed(path, file)


def _read_zip(path: Path) -> RunResult:
    try:
        with _open(path) as file:
            if os.fstat(file.fileno()).st_size > MAX_ZIP:
                raise ResultsError(f"{path} is larger than {MAX_ZIP:,} bytes")
            with zipfile.ZipFile(file) as archive:
                entry = _entry(path, archive)
                with archive.open(entry) as packed:
                    return _parsed(path / entry.filename, packed)
    # what zipfile raises for files that are no zip, are cut off, or use an unknown compression
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError, OSError) as error:
        raise ResultsError(f"{path} is no zip that can be read: {error}", hint=_HINT) from error


def _entry(path: Path, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    entries = archive.infolist()
    if len(entries) > MAX_ENTRIES:
        raise ResultsError(f"{path} has more than {MAX_ENTRIES:,} entries")
    for entry in entries:
        if _leads_out(entry.filename):
            raise ResultsError(f"{path} has an entry that leads out of it: {entry.filename[:200]!r}")
    found = [entry for entry in entries if PurePosixPath(entry.filename).name == RESULTS and not entry.is_dir()]
    if len(found) != 1:
        raise ResultsError(f"{path} has {len(found) or 'no'} {RESULTS}, it must have one", hint=_HINT)
    entry = found[0]
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise ResultsError(f"{entry.filename[:200]!r} of {path} is no regular file")
    if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _PACKED:
        raise ResultsError(f"{entry.filename[:200]!r} of {path} is encrypted, or packed in an unknown way")
    return entry


def _leads_out(name: str) -> bool:
    parts = name.replace("\\", "/").split("/")
    return name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0] or "\0" in name


def _parsed(path: Path, file: IO[bytes]) -> RunResult:
    # ignore the size that the entry declares: a zip bomb declares a small one
    data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ResultsError(f"{path} is larger than {MAX_BYTES:,} bytes")
    return parsed(path, data)


def _files(folder: Path, depth: int) -> Iterator[Path]:
    """Yield every results.json below ``folder``, without following links."""
    try:
        with os.scandir(folder) as found:
            entries = [entry for entry, _ in zip(found, range(MAX_ENTRIES), strict=False)]
    except OSError as error:
        raise ResultsError(f"{folder} cannot be read: {error.strerror or error}") from error
    for entry in sorted(entries, key=lambda entry: entry.name):
        if entry.name == RESULTS and not entry.is_dir(follow_symlinks=False):
            yield folder / entry.name
        elif depth > 1 and entry.is_dir(follow_symlinks=False):
            yield from _files(folder / entry.name, depth - 1)


def _open(path: Path) -> IO[bytes]:
    """Open a regular file: a link could point to any file this job can read, and a FIFO would block for ever."""
    try:
        return open_file(path)
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error.strerror or error}", hint=_HINT) from error


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}", hint=_HINT) from error
