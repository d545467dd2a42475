"""Writes and reads results.json. The parser cuts out, decodes and validates one case at a time.

The file is untrusted: parts that are too large, too deep or of the wrong type are refused before they take memory,
with their line. Reading 10,000 cases (35 MB) takes 0.67 s and 154 MB this way; pydantic on the whole text takes
0.90 s and 289 MB, and reports no line. Artifacts of other jobs are hostile: one file of bounded size is read of them,
no link is followed, and nothing is written or unpacked.
"""

from __future__ import annotations

import json
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, NoReturn, TypeVar

import pydantic
import pydantic_core
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from agent_eval_action.errors import ResultsError
from agent_eval_action.folders import open_file
from agent_eval_action.reports.base import write_text
from agent_eval_action.results.decision import BaselineTrajectory, Decision, MainCase, PairChange
from agent_eval_action.results.findings import Finding, Subject
from agent_eval_action.results.run_result import (
    SCHEMA_VERSION,
    CaseResult,
    RunResult,
    SetResult,
    Shard,
    ShardCase,
    collector_paused,
)

_Model = TypeVar("_Model", bound=pydantic.BaseModel)

RESULTS: Final = "results.json"
"""The name of the file."""
RUN_FIRST: Final = "run `agent-eval run` first"
"""The hint if there are no results."""

STREAMED: dict[tuple[type[pydantic.BaseModel], str], type[pydantic.BaseModel]] = {
    (RunResult, "sets"): SetResult,
    (SetResult, "cases"): CaseResult,
    (RunResult, "decision"): Decision,
    (RunResult, "shard"): Shard,
    (Shard, "cases"): ShardCase,
    (Decision, "findings"): Finding,
    (Decision, "pairs"): PairChange,
    (Decision, "baseline_trajectories"): BaselineTrajectory,
    (Decision, "main_cases"): MainCase,
}
"""Large fields: written one item a line, read one item at a time."""

PARENTS = frozenset(model for model, _ in STREAMED)

_MAX_PIECE = 8 * 1024 * 1024
_MAX_DEPTH = 60
_SPACE = re.compile(rb"[ \t\n\r]*+")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SCALAR = re.compile(rb"[^\s,\[\]{}\"]++")
# Matches whole strings too, so that brackets inside them are not counted.
_BRACKET = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_NESTING: Final = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}
_VERSION = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"schema_version"\s*:\s*(-?\d{1,9})\b')
_READ_VERSIONS = (1, SCHEMA_VERSION)
_BOM = b"\xef\xbb\xbf"


def _check_version(path: Path, version: int) -> None:
    if version in _READ_VERSIONS:
        return
    raise ResultsError(
        f"{path} has schema_version {version}, this version reads {' and '.join(map(str, _READ_VERSIONS))}",
        hint="use the agent-eval that wrote it, or a newer one"
        if version > SCHEMA_VERSION
        else "run the eval sets again with this version",
    )


def _from_version_1(model: type[BaseModel], value: Any) -> Any:
    """Upgrade an object of version 1: its sentences become the texts of findings."""
    if not isinstance(value, dict):
        return value
    if model is Finding and "effect" in value:
        subject = {name: value.get(name) for name in Subject.model_fields}
        return {
            "code": "text",
            "severity": value["effect"],
            "subject": subject,
            "data": {"text": value.get("reason", "")},
        }
    if model is PairChange and "reason" in value:
        text = value["reason"]
        return {**value, "reason": {"code": "text", "data": {"text": text}} if text else None}
    if model is Decision:
        rows = [{k: v for k, v in row.items() if k not in {"reason", "limit"}} for row in value.get("criteria", ())]
        weakenings = [_from_version_1(Finding, finding) for finding in value.get("weakenings", ())]
        notes = [_text(note, "note") for note in value.get("notes", ())]
        rest = {name: item for name, item in value.items() if name != "reason"}
        reasons = [_text(value.get("reason", ""), "note")]
        return {**rest, "criteria": rows, "weakenings": weakenings, "notes": notes, "reasons": reasons}
    return {**value, "schema_version": SCHEMA_VERSION} if model is RunResult else value


def _text(text: Any, severity: str) -> dict[str, Any]:
    return {"code": "text", "severity": severity, "data": {"text": text}}


class _Parser:
    """A single pass over the bytes. ``_at``: offset of the next token. ``upgrade`` converts older values."""

    def __init__(self, path: Path, data: bytes, upgrade: Callable[[type[BaseModel], Any], Any] | None = None) -> None:
        self._path = path
        self._data = data
        self._upgrade = upgrade
        self._at = len(_BOM) if data.startswith(_BOM) else 0

    def document(self) -> RunResult:
        result = self._model(RunResult)
        self._skip()
        if self._at != len(self._data):
            self._refuse("something follows the end of the results")
        return result

    def _model(self, model: type[_Model]) -> _Model:
        """Parse an object with streamed fields, member by member."""
        self._skip()
        start = self._at
        members: dict[str, Any] = {}
        self._expect(b"{", f"a {model.__name__} object")
        for _ in self._until(b"}", "the end of the object"):
            self._member(model, members)
        try:
            return model.model_validate(self._upgrade(model, members) if self._upgrade else members)
        except pydantic.ValidationError as error:
            self._invalid(model, error, start)

    def _until(self, close: bytes, what: str) -> Iterator[None]:
        """Yield before each part of an object or a list, whose parts have commas between them."""
        if self._take(close):
            return
        yield
        while self._take(b","):
            yield
        self._expect(close, what)

    def _member(self, model: type[pydantic.BaseModel], members: dict[str, Any]) -> None:
        self._skip()
        start = self._at
        name = self._decode(self._piece())
        if not isinstance(name, str) or name in members:
            self._refuse("expected a name that was not there yet", start)
        self._expect(b":", "a colon")
        self._skip()
        item = STREAMED.get((model, name))
        if item is not None and self._data.startswith(b"[", self._at):
            parse = self._model if item in PARENTS else self._item
            self._expect(b"[", "a list")
            members[name] = tuple(parse(item) for _ in self._until(b"]", "the end of the list"))
        elif item is not None and self._data.startswith(b"{", self._at):
            members[name] = self._model(item)
        else:
            members[name] = self._decode(self._piece())

    def _item(self, item: type[_Model]) -> _Model:
        """Parse an item: at once if it is alone on its line, as we write it; else after measuring its length."""
        self._skip()
        start = self._at
        end = self._data.find(b"\n", start, start + _MAX_PIECE)
        if end > 0 and self._upgrade is None:
            line = self._data[start:end].rstrip(b"\r ").removesuffix(b",")
            try:
                value = item.model_validate_json(line)
            except pydantic.ValidationError:
                pass  # parsed again below, for the error message
            else:
                self._at = start + len(line)
                return value
        piece = self._piece()
        try:
            if self._upgrade is not None:
                return item.model_validate(self._upgrade(item, self._decode(piece)))
            return item.model_validate_json(piece)
        except pydantic.ValidationError as error:
            self._invalid(item, error, start)

    def _piece(self) -> bytes:
        """Return the bytes of the next value; refuses too large or too deep ones."""
        self._skip()
        start = self._at
        sign = self._data[start : start + 1]
        if sign in (b"{", b"["):
            self._at = self._end_of_container()
        else:
            found = (_STRING if sign == b'"' else _SCALAR).match(self._data, start)
            self._at = found.end() if found else self._refuse("expected a value")
        if self._at - start > _MAX_PIECE:
            self._refuse(f"one part is larger than {_MAX_PIECE:,} bytes", start)
        return self._data[start : self._at]

    def _end_of_container(self) -> int:
        depth = 0
        for found in _BRACKET.finditer(self._data, self._at, self._at + _MAX_PIECE + 1):
            depth += _NESTING.get(found.group(), 0)
            if depth > _MAX_DEPTH:
                self._refuse(f"nested deeper than {_MAX_DEPTH} levels", found.start())
            if depth == 0:
                return found.end()
        if len(self._data) - self._at > _MAX_PIECE:
            return self._refuse(f"one part is larger than {_MAX_PIECE:,} bytes")
        return self._refuse("the file ends in the middle: it was cut off", len(self._data))

    def _decode(self, piece: bytes) -> Any:
        try:
            return pydantic_core.from_json(piece, allow_inf_nan=False)
        except ValueError as error:
            self._refuse(str(error).splitlines()[0], self._at - len(piece))

    def _invalid(self, model: type[pydantic.BaseModel], error: pydantic.ValidationError, start: int) -> NoReturn:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part)[:80] for part in first["loc"]) or model.__name__
        got = "" if first["type"] == "missing" else f" (got {repr(first['input'])[:80]})"
        self._refuse(f"{field}: {first['msg']}{got}", start)

    def _skip(self) -> None:
        found = _SPACE.match(self._data, self._at)
        self._at = found.end() if found else self._at

    def _take(self, sign: bytes) -> bool:
        self._skip()
        if not self._data.startswith(sign, self._at):
            return False
        self._at += 1
        return True

    def _expect(self, sign: bytes, what: str) -> None:
        if not self._take(sign):
            got = self._data[self._at : self._at + 20].decode("utf-8", "replace")
            self._refuse(f"expected {what}, got {got!r}" if got else "the file ends in the middle: it was cut off")

    def _refuse(self, message: str, at: int | None = None) -> NoReturn:
        line = self._data.count(b"\n", 0, self._at if at is None else at) + 1
        raise ResultsError(
            f"{self._path}:{line}: not a results file of this version: {message}",
            hint="results.json is written by agent-eval run; its form is in schema/results.schema.json",
        )


MAX_BYTES = 512 * 1024 * 1024


def write(path: Path, result: RunResult, *, workspace: Path | None = None) -> None:
    """Write results.json; the output is deterministic. Raises OutputError."""
    write_text(path, dump(result), workspace=workspace)


def read(path: Path, max_bytes: int = MAX_BYTES) -> RunResult:
    """Read results.json. Raises ResultsError, with the line, if it is not valid in a version we read."""
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except FileNotFoundError as error:
        raise ResultsError(f"there are no results at {path}", hint=RUN_FIRST) from error
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > max_bytes:
        raise ResultsError(
            f"{path} is larger than {max_bytes:,} bytes", hint="split the run: fewer cases or fewer repeats"
        )
    return parsed(path, data)


def parsed(path: Path, data: bytes) -> RunResult:
    """Parse the bytes of a results.json. ``path`` is for messages. Raises ResultsError."""
    found = _VERSION.match(data)
    version = int(found.group(1)) if found else SCHEMA_VERSION
    _check_version(path, version)
    with collector_paused():  # garbage collection would take 7 times as long as the parsing
        result = _Parser(path, data, upgrade=_from_version_1 if version == 1 else None).document()
    _check_version(path, result.schema_version)
    return result


def dump(result: RunResult) -> Iterator[str]:
    """Yield results.json in pieces, so that a large run's text is never in memory as a whole."""
    yield from _members(result, "")
    yield "\n"


def schema() -> dict[str, Any]:
    """Return the JSON Schema of results.json, which is also in ``schema/results.schema.json``."""
    body = RunResult.model_json_schema(mode="validation")
    body["title"] = "results.json of agent-eval"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **body}


def _members(value: BaseModel, pad: str) -> Iterator[str]:
    yield "{"
    for index, name in enumerate(type(value).model_fields):
        yield f"{',' if index else ''}\n{pad} {json.dumps(name)}: "
        items = getattr(value, name)
        if (type(value), name) not in STREAMED or not items:
            yield _compact(value, name)
        elif isinstance(items, BaseModel):
            yield from _members(items, f"{pad} ")
        else:
            yield "["
            for at, item in enumerate(items):
                yield f"{',' if at else ''}\n{pad}  "
                yield from _members(item, f"{pad}  ") if type(item) in PARENTS else (_line(item),)
            yield f"\n{pad} ]"
    yield f"\n{pad}}}"


def _compact(value: BaseModel, name: str) -> str:
    try:
        return json.dumps(value.model_dump(mode="json", include={name})[name], ensure_ascii=False, allow_nan=False)
    except (PydanticSerializationError, ValueError):
        return _plain(value.model_dump(include={name})[name])


def _line(value: BaseModel) -> str:
    try:
        return value.model_dump_json()
    except PydanticSerializationError:
        return _plain(value.model_dump())


def _plain(value: Any) -> str:
    """Serialise values that JSON lacks: lone surrogates (replaced on encoding), NaN and infinities (null)."""
    return json.dumps(_finite_values(value), ensure_ascii=False, default=str)


def _finite_values(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite_values(item) for item in value]
    if isinstance(value, float) and value - value != 0:
        return None
    return value


# --- artifacts of other jobs -----------------------------------------------------------------------

FOREIGN_BYTES: Final = 64 * 1024 * 1024
"""Limit for an untrusted results.json; 5,000 cases take about 20 MB."""
MAX_ZIP: Final = 256 * 1024 * 1024
MAX_ENTRIES: Final = 20_000
MAX_FOLDERS: Final = 4
_PACKED: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_ENCRYPTED: Final = 0x1
_HINT: Final = "it is what upload-artifact keeps of the folder `agent-eval run --out` names"


def read_foreign(path: Path) -> RunResult:
    """Read results.json at ``path``, in a folder or in an artifact's zip. Raises ResultsError for anything else."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            found = list(_files(path, MAX_FOLDERS))
            if len(found) != 1:
                raise ResultsError(f"{path} holds {len(found) or 'no'} {RESULTS}, it must hold one", hint=_HINT)
            path = found[0]
        elif not stat.S_ISREG(mode):
            raise ResultsError(f"{path} is no regular file", hint=_HINT)
        with open_file(path) as file:  # a link could point to any file this job can read, a FIFO would block for ever
            if stat.S_ISREG(mode) and file.read(2) == b"PK":
                return _read_zip(path, file)
            file.seek(0)
            return _bounded(path, file)
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}", hint=_HINT) from error


def _files(folder: Path, depth: int) -> Iterator[Path]:
    """Yield every results.json below ``folder``, without following links."""
    with os.scandir(folder) as found:
        entries = [entry for entry, _ in zip(found, range(MAX_ENTRIES), strict=False)]
    for entry in sorted(entries, key=lambda entry: entry.name):
        if entry.name == RESULTS and not entry.is_dir(follow_symlinks=False):
            yield folder / entry.name
        elif depth > 1 and entry.is_dir(follow_symlinks=False):
            yield from _files(folder / entry.name, depth - 1)


def _read_zip(path: Path, file: IO[bytes]) -> RunResult:
    if os.fstat(file.fileno()).st_size > MAX_ZIP:
        raise ResultsError(f"{path} is larger than {MAX_ZIP:,} bytes")
    try:
        with zipfile.ZipFile(file) as archive:
            entry = _entry(path, archive)
            with archive.open(entry) as packed:
                return _bounded(path / entry.filename, packed)
    # what zipfile raises for files that are no zip, are cut off, or use an unknown compression
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError, OSError) as error:
        raise ResultsError(f"{path} is no zip that can be read: {error}", hint=_HINT) from error


def _entry(path: Path, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    entries = archive.infolist()
    if len(entries) > MAX_ENTRIES:
        raise ResultsError(f"{path} has more than {MAX_ENTRIES:,} entries")
    for name in (entry.filename for entry in entries):
        parts = name.replace("\\", "/").split("/")
        if not parts[0] or ".." in parts or ":" in parts[0] or "\0" in name:
            raise ResultsError(f"{path} has an entry that leads out of it: {name[:200]!r}")
    found = [entry for entry in entries if PurePosixPath(entry.filename).name == RESULTS and not entry.is_dir()]
    if len(found) != 1:
        raise ResultsError(f"{path} has {len(found) or 'no'} {RESULTS}, it must have one", hint=_HINT)
    (entry,) = found
    if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
        raise ResultsError(f"{entry.filename[:200]!r} of {path} is no regular file")
    if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _PACKED:
        raise ResultsError(f"{entry.filename[:200]!r} of {path} is encrypted, or packed in an unknown way")
    return entry


def _bounded(path: Path, file: IO[bytes]) -> RunResult:
    # ignore the size that a zip's entry declares: a bomb declares a small one
    data = file.read(FOREIGN_BYTES + 1)
    if len(data) > FOREIGN_BYTES:
        raise ResultsError(f"{path} is larger than {FOREIGN_BYTES:,} bytes")
    return parsed(path, data)
