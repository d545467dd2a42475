"""The ``branch`` store: an orphan branch of the remote with a small file per run of main, written by git plumbing."""

from __future__ import annotations

import datetime as dt
import json
import random
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from agent_eval_action.baseline.records import (
    MAX_BYTES,
    SHA_SHOWN,
    commit_in,
    file_name,
    is_file_name,
    parse_record,
    record_bytes,
)
from agent_eval_action.baseline.stores import FoundRecords, RecordQuery, Store, WriteResult, select
from agent_eval_action.config.models import Settings
from agent_eval_action.diagnostics.suggestions import shortlist
from agent_eval_action.git.repository import Pushed, Remote, Repository, Scratch, TreeEntry, batches, remote_of
from agent_eval_action.results.base import StoreKind
from agent_eval_action.results.history import Record
from agent_eval_action.results.run_result import collector_paused

KEEP: Final = 100
"""The number of runs of main that the branch holds; older ones stay in its git history."""

_FOLDER: Final = "records"
_MARKER: Final = "agent-eval.json"
_MARK: Final = json.dumps({"format": "agent-eval records", "version": 1}) + "\n"
_README: Final = """\
# Records of agent-eval

Scores of this repository's agent evaluations on its main branch, one file per run. agent-eval reads and writes this
branch and removes old records; what else lies here is removed too. Do not merge it. To begin anew, delete the branch.
"""
_TRIES: Final = 60
_DEADLINE_S: Final = 240.0
_LONGEST_WAIT_S: Final = 2.0
_MOST_FILES: Final = 1_000  # most files to look at, newest first, so that a flooded branch costs no more
_AT_ONCE: Final = 25
_SKIPPED_SHOWN: Final = 5
_BLOB: Final = "100644"


@dataclass(frozen=True, slots=True)
class BranchStore(Store):
    """``remote``: the remote with the branch; None if the checkout has no usable one."""

    kind: ClassVar[StoreKind] = "branch"
    begin: ClassVar[str] = "the next run on the main branch records what it scores"
    written_by_runs: ClassVar[bool] = True

    repository: Repository
    remote: Remote | None
    branch: str
    remote_name: str = "origin"
    keep: int = KEEP
    wait: Callable[[float], None] = field(default=time.sleep, compare=False)

    @classmethod
    def of_settings(cls, settings: Settings, environ: Mapping[str, str]) -> BranchStore:
        """The configured branch. Reads the remote's credential now, before any agent starts."""
        baseline = settings.baseline
        repository = Repository(settings.workspace, environ)
        remote = remote_of(repository, baseline.remote, environ)
        return cls(repository, remote, baseline.branch, baseline.remote, max(KEEP, 2 * baseline.runs))

    @property
    def name(self) -> str:
        return f"branch {self.branch}"

    @property
    def _ref(self) -> str:
        return f"refs/heads/{self.branch}"

    @collector_paused()
    def records(self, query: RecordQuery) -> FoundRecords:
        """The records to compare with. Never raises: problems of the branch or the remote become notes."""
        if self.remote is None:
            return self._local(f"this checkout has no remote {self.remote_name!r} that can be used", query)
        try:
            with Scratch.open(self.remote, self.repository.environ) as scratch:
                fetched = scratch.fetch(self._ref, depth=1)
                if fetched.sha is not None:
                    return _read(scratch, fetched.sha, self.branch, query)
        except OSError as error:
            return self._local(f"{self.remote_name} could not be asked ({error})", query)
        if fetched.error:
            return self._local(f"{self.remote_name} cannot be reached ({fetched.error})", query)
        return FoundRecords(notes=(f"{self.remote_name} has no branch {self.branch} yet", *query.notes))

    def _local(self, why: str, query: RecordQuery) -> FoundRecords:
        for place in (f"refs/remotes/{self.remote_name}/{self.branch}", self._ref):
            if (sha := self.repository.resolve(place)) is not None:
                found = _read(self.repository, sha, self.branch, query)
                note = f"{why}: the records this clone has of {self.branch} are used"
                return FoundRecords(found.records, (note, *found.notes))
        return FoundRecords(notes=(f"{why}, and this clone has no records of {self.branch}", *query.notes))

    def add(self, record: Record) -> WriteResult:
        """Add one record; after a conflict with another writer, fetch and retry. Problems are returned, not raised."""
        if self.remote is None:
            return WriteResult(False, f"the record was not stored: no remote {self.remote_name!r} that can be used")
        data = record_bytes(record)
        if len(data) > MAX_BYTES:
            return WriteResult(False, f"the record was not stored: it has {len(data) >> 20} MB")
        name = file_name(record, secrets.token_hex(4))
        try:
            with Scratch.open(self.remote, self.repository.environ) as scratch:
                return self._add(scratch, name, data)
        except OSError as error:
            return WriteResult(False, f"the record was not stored: {error}")

    def _add(self, scratch: Scratch, name: str, data: bytes) -> WriteResult:
        blob = scratch.write_blob(data)
        until = time.monotonic() + _DEADLINE_S
        lost = 0
        pushed = Pushed("moved")
        for number in range(_TRIES):
            pushed = self._try(scratch, name, blob)
            if pushed.outcome == "done":
                return WriteResult(True, f"one record added to {self.branch} of {self.remote_name}")
            lost += pushed.outcome == "unreachable"
            if pushed.outcome == "refused" or lost > 2 or time.monotonic() > until:  # noqa: PLR2004 - three tries
                break
            # random waits spread the writers: of twenty that retry together, nineteen would lose again
            self.wait(random.uniform(0, min(_LONGEST_WAIT_S, 0.05 * 2 ** min(number, 6))))  # noqa: S311 - no secret
        words = {"moved": "others kept writing", "refused": "was refused", "unreachable": "cannot be reached"}
        error = f" ({pushed.error})" if pushed.error else ""
        hint = "; the job needs `permissions: contents: write`" if pushed.outcome == "refused" else ""
        what = f"{self.branch} of {self.remote_name}: {words.get(pushed.outcome, '')}"
        return WriteResult(False, f"the record was not stored on {what}{error}{hint}")

    def _try(self, scratch: Scratch, name: str, blob: str) -> Pushed:
        fetched = scratch.fetch(self._ref, depth=1)
        if fetched.sha is None and fetched.error:
            return Pushed("unreachable", fetched.error)
        old = scratch.entries(fetched.sha) if fetched.sha else ()
        if fetched.sha and not any(entry.name == _MARKER and entry.mode == _BLOB for entry in old):
            why = f"it has no {_MARKER}, so it is no branch of records: name another in baseline.branch"
            return Pushed("refused", why)
        there = scratch.entries(fetched.sha, f"{_FOLDER}/") if fetched.sha else ()
        kept = [*_record_files(there)[0], TreeEntry(_BLOB, blob, None, name)]
        kept.sort(key=lambda entry: entry.name)
        folder = scratch.write_tree((_BLOB, "blob", entry.oid, entry.name) for entry in kept[-self.keep :])
        mark, readme = scratch.write_blob(_MARK.encode()), scratch.write_blob(_README.encode())
        top = (
            (_BLOB, "blob", readme, "README.md"),
            (_BLOB, "blob", mark, _MARKER),
            ("040000", "tree", folder, _FOLDER),
        )
        commit = scratch.write_commit(scratch.write_tree(top), fetched.sha, f"Record {name.removesuffix('.json')}\n")
        return scratch.push(commit, self._ref, fetched.sha)


def _read(repository: Repository, commit: str, branch: str, query: RecordQuery) -> FoundRecords:
    files, skipped = _record_files(repository.entries(commit, f"{_FOLDER}/"))
    records: list[Record] = []

    def readable() -> Iterator[TreeEntry]:
        for entry in _in_order(files, query):
            if entry.size is None or entry.size > MAX_BYTES:
                skipped.append(f"{entry.name} is larger than {MAX_BYTES >> 20} MB")
            else:
                yield entry

    for batch in batches(readable(), _AT_ONCE):
        contents = repository.blobs(entry.oid for entry in batch)
        for entry in batch:
            parsed = parse_record(contents.get(entry.oid, b""))
            if isinstance(parsed, Record):
                records.append(parsed)
            else:
                skipped.append(f"{entry.name} {parsed}")
        if len(select(records, query).records) >= query.limit:
            break
    found = select(records, query)
    if not skipped:
        return found
    note = f"skipped on {branch}: {shortlist(skipped, _SKIPPED_SHOWN, separator='; ')}"
    return FoundRecords(found.records, (note, *found.notes))


def _record_files(entries: Iterable[TreeEntry]) -> tuple[list[TreeEntry], list[str]]:
    """Split the entries into records and problems; links, folders and submodules are problems."""
    now = dt.datetime.now(dt.UTC)
    files: list[TreeEntry] = []
    others: list[str] = []
    for entry in entries:
        name = entry.name.removeprefix(f"{_FOLDER}/")
        if entry.mode == _BLOB and is_file_name(name, now):
            files.append(replace(entry, name=name))
        else:
            others.append(f"{json.dumps(name[:80])} is no record")
    return files, others


def _in_order(files: Iterable[TreeEntry], query: RecordQuery) -> list[TreeEntry]:
    """Sort the most likely choices first. File names are only a hint; the records decide."""
    newest = sorted(files, key=lambda entry: entry.name, reverse=True)
    rank = {sha[:SHA_SHOWN]: place for place, sha in reversed(list(enumerate(query.ancestors)))}
    newest.sort(key=lambda entry: rank.get(commit_in(entry.name), len(rank)))
    if query.complete:
        newest = [entry for entry in newest if commit_in(entry.name) in rank]
    return newest[:_MOST_FILES]
