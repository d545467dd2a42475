"""What a store of records is, and two of them: ``file``, a baseline committed with the code, and ``rerun``."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from sys import intern
from typing import ClassVar, Final, Self

from pydantic import ValidationError

from agent_eval_action.baseline.records import baseline_text
from agent_eval_action.config.models import Settings
from agent_eval_action.diagnostics.reader import MAX_JSON_BYTES, Source, read_bytes, read_text, shorten
from agent_eval_action.diagnostics.validation import validated
from agent_eval_action.errors import ConfigError, ResultsError, Unreadable, writing
from agent_eval_action.folders import OutputFolder, below, relative
from agent_eval_action.results.base import StoreKind
from agent_eval_action.results.history import RECORD_VERSION, CaseRecord, CriterionRecord, Record


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Whether a record was stored, and a sentence about it."""

    stored: bool
    note: str


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """Which records a run is compared with. ``ancestors``: the reference and its first parents, nearest first.

    ``complete``: the ancestors go back far enough. Otherwise records of other commits up to ``at`` (the reference's
    date, seconds since 1970) count as well, and ``notes`` report it, with ``clone_hint``.
    """

    reference: str | None = None
    how: str = ""
    ancestors: tuple[str, ...] = ()
    complete: bool = False
    at: int | None = None
    limit: int = 20
    notes: tuple[str, ...] = ()
    clone_hint: str = ""


@dataclass(frozen=True, slots=True)
class FoundRecords:
    """Records, newest commit first, and notes about them."""

    records: tuple[Record, ...] = ()
    notes: tuple[str, ...] = ()


class Store(ABC):
    """A place for records of main.

    ``kind``: its name in the settings.
    ``begin``: how to create a baseline there, for hints; backticks mark names.
    ``committed``: it is a file of the checkout, so a change is compared with the base commit's version.
    ``written_by_runs``: runs of main add their records, which may belong to commits that a shallow clone lacks and must
    fetch; otherwise only people write it, if anyone.
    """

    kind: ClassVar[StoreKind]
    begin: ClassVar[str]
    committed: ClassVar[bool] = False
    written_by_runs: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def of_settings(cls, settings: Settings, environ: Mapping[str, str]) -> Self:
        """The configured store."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name that reports show."""

    @abstractmethod
    def records(self, query: RecordQuery) -> FoundRecords:
        """The records to compare a run with. Raises ResultsError if a file that the user keeps is no baseline."""

    @abstractmethod
    def add(self, record: Record) -> WriteResult:
        """Store one run of main. A failure is returned as a note: the verdict stands without it."""


def select(records: Sequence[Record], query: RecordQuery) -> FoundRecords:
    """The records at or before the reference, nearest first, at most ``limit`` runs. Pure."""
    rank = {sha: place for place, sha in enumerate(query.ancestors)}
    near = [record for record in records if record.commit in rank]
    near.sort(key=lambda record: (-rank[record.commit or ""], record.created_at), reverse=True)
    if query.complete or len(near) >= query.limit:
        return FoundRecords(tuple(near[: query.limit]), query.notes)
    latest = query.at
    by_date = [
        record
        for record in records
        if record.commit not in rank
        and (latest is None or (record.committed_at is not None and record.committed_at <= latest))
    ]
    by_date.sort(key=lambda record: (record.committed_at or 0, record.created_at), reverse=True)
    chosen = (*near, *by_date)[: query.limit]
    if len(chosen) == len(near):
        return FoundRecords(chosen, query.notes)
    which = f"{len(chosen) - len(near)} of {len(chosen)} records of main are matched by date, not by ancestry"
    return FoundRecords(chosen, (*query.notes, f"{which}: the clone's history is cut ({query.clone_hint})"))


# --- a committed file, usually ``.agent-eval/baseline.json`` --------------------------------------

FOLDER: Final = ".agent-eval"
_ANEW: Final = "make it anew with `agent-eval baseline update`"
_CONFLICT: Final = (b"<<<<<<< ", b"||||||| ", b">>>>>>> ")
_IGNORE: Final = """\
# Reports, transcripts and caches stay out of git; what decides stays in.
*
!.gitignore
!baseline.json
!accept.yaml
"""


@dataclass(frozen=True, slots=True)
class FileStore(Store):
    """One file. ``workspace``: no link may lead out of it; a path outside it is used as given."""

    kind: ClassVar[StoreKind] = "file"
    begin: ClassVar[str] = "run `agent-eval baseline update` and commit the file it writes"
    committed: ClassVar[bool] = True

    path: Path
    workspace: Path | None = None

    @classmethod
    def of_settings(cls, settings: Settings, environ: Mapping[str, str]) -> Self:  # noqa: ARG003 - the branch needs it
        return cls(settings.baseline.path, settings.workspace)

    @property
    def name(self) -> str:
        return relative(self.path, self.workspace) if self.workspace else self.path.as_posix()

    def records(self, query: RecordQuery) -> FoundRecords:  # noqa: ARG002 - the checkout has only one file
        record = self.read()
        return FoundRecords((record,) if record and record.cases else ())

    def add(self, record: Record) -> WriteResult:  # noqa: ARG002 - runs do not change committed files
        return WriteResult(False, f"{self.name} is written by `agent-eval baseline update` alone")

    def read(self) -> Record | None:
        """The record, or None if there is no file. Raises ResultsError with path and line."""
        path = self.path
        if not os.path.lexists(path):
            return None
        absolute = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow the link to be checked
        inside = self.workspace is not None and below(absolute, self.workspace.absolute()) is not None
        bound = self.workspace if inside else None  # the user may have named a place elsewhere
        try:
            text = read_text(path, workspace=bound, error=ResultsError)
            with contextlib.suppress(ValidationError):
                record = Record.model_validate_json(text)
                if "schema_version" in record.model_fields_set:
                    return _with_shared_parts(record)
            source = Source.parse(text, path=path, error=ResultsError)  # has line numbers, but takes far more memory
        except ResultsError as error:
            hint = _unreadable_hint(path, bound)
            raise ResultsError(f"the baseline {error.message}", hint=hint, problems=error.problems) from None
        _refuse_foreign(source)
        message = f"{path} is not a baseline of schema version {RECORD_VERSION}"
        return _with_shared_parts(validated(source, Record, message, _ANEW))

    def write(self, record: Record) -> None:
        """Replace the file atomically, so that neither a reader nor a crash sees a partial file. Raises OutputError."""
        with writing(f"the baseline {self.path}"):
            replace_committed(self.path, baseline_text(record), self.workspace)


class RerunStore(FileStore):
    """Has no records: the base commit's agent is measured in the same run. `baseline update` still writes the file."""

    kind: ClassVar[StoreKind] = "rerun"
    begin: ClassVar[str] = "it is measured beside a run, on the base commit's agent, which could not be run here"
    committed: ClassVar[bool] = False

    def records(self, query: RecordQuery) -> FoundRecords:  # noqa: ARG002 - there are none to choose from
        return FoundRecords()

    def add(self, record: Record) -> WriteResult:  # noqa: ARG002 - nothing is stored
        return WriteResult(False, "the rerun store keeps nothing")


def _with_shared_parts(record: Record) -> Record:
    """Share equal names and scores, which are most of a suite's: with 50,000 cases a run takes 80 MB less."""
    known: dict[CriterionRecord, CriterionRecord] = {}

    def shared(case: CaseRecord) -> CaseRecord:
        criteria = {intern(name): known.setdefault(scores, scores) for name, scores in case.criteria.items()}
        names = {"agent": intern(case.agent), "eval_set": intern(case.eval_set)}
        return case.model_copy(update={**names, "criteria": criteria})

    return record.model_copy(update={"cases": tuple(map(shared, record.cases))})


def replace_committed(path: Path, text: str, workspace: Path | None) -> None:
    """Replace a committed file. Raises OSError, and ConfigError if it or a folder above it is a link."""
    folder = OutputFolder.at(path.parent, workspace)
    if link := (folder / path.name).first_link():
        raise ConfigError(f"{link} is a symbolic link, and is not written through", hint="put the file itself there")
    if folder.path.name == FOLDER:
        keep_out_of_git(folder, also=path.name)
    folder.replace(path.name, [text.encode()])


def keep_out_of_git(folder: OutputFolder, *, also: str = "baseline.json") -> None:
    """Give ``.agent-eval`` a .gitignore that admits only the baseline and accept.yaml; never replaces one."""
    extra = "" if f"\n!{also}\n" in _IGNORE else f"!{also}\n"
    if ".gitignore" not in dict(folder.entries()):
        folder.replace(".gitignore", [(_IGNORE + extra).encode()], sync=False)


def _unreadable_hint(path: Path, bound: Path | None) -> str:
    with contextlib.suppress(Unreadable):
        for number, line in enumerate(read_bytes(path, bound, MAX_JSON_BYTES).splitlines(), 1):
            if line.startswith(_CONFLICT):
                return f"{path}:{number} is a mark of a merge conflict: take the base branch's file, then {_ANEW}"
    return f"restore it from git, or {_ANEW}"


def _refuse_foreign(source: Source) -> None:
    value, path = source.value, source.path
    if not isinstance(value, dict) or "schema_version" not in value:
        raise ResultsError(f"{path} is not a baseline: it has no schema_version", hint=_ANEW)
    version = value["schema_version"]
    where = f"{path}:{source.nearest_line(('schema_version',))}"
    if type(version) is not int:
        raise ResultsError(f"{where}: schema_version is {shorten(version)}, not a number", hint=_ANEW)
    if version != RECORD_VERSION:
        by = shorten(value.get("tool_version", "a newer version"))
        raise ResultsError(
            f"{where}: the baseline has schema version {version}; this agent-eval reads {RECORD_VERSION}",
            hint=f"it was written by agent-eval {by}: use that version or a newer one, or {_ANEW}",
        )
    if "records" not in value and ("sets" in value or "conditions" in value):
        raise ResultsError(
            f"{path} holds the results of a run, not a baseline",
            hint=f"`agent-eval compare` takes results as they are; to keep them as the baseline, {_ANEW}",
        )
