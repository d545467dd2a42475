"""Recordings of other tools: sessions and results of google-adk, traces of agents-cli, and OTLP JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from agent_eval_action.diagnostics.reader import Source
from agent_eval_action.errors import EvalFileError, ResultsError
from agent_eval_action.folders import beginning
from agent_eval_action.formats.adk_results import SUFFIX, AdkResults, read_results
from agent_eval_action.formats.adk_sessions import AdkSession, is_session
from agent_eval_action.formats.agents_cli import AGENTS_CLI
from agent_eval_action.formats.base import Reading
from agent_eval_action.results.evalset import Content, DatasetCase, Invocation
from agent_eval_action.results.run_result import AttemptError, AttemptKey, ErrorKind
from agent_eval_action.telemetry.conversations import recorded_conversations
from agent_eval_action.telemetry.otlp import OtlpError, Telemetry, read_otlp_file

_FOLDERS: Final = (".", ".adk/eval_history", "artifacts/traces")
"""Where the tools write their files, relative to the named folder."""
_KINDS: Final = ("*.json", "*.jsonl")
_OTLP: Final = re.compile(rb'^\s*\{\s*"resource_?(Spans|spans|Logs|logs)"')
_BEGINNING: Final = 4096
_MAX_FILES: Final = 10_000


@dataclass(frozen=True, slots=True)
class RecordedConversation:
    """One conversation that a tool recorded. ``eval_set`` is "" if the tool does not record it.

    ``is_trace``: recorded by agents-cli, which writes another file in each run.
    """

    case: str
    turns: tuple[Invocation, ...]
    eval_set: str = ""
    final_state: dict[str, Any] | None = None
    error: AttemptError | None = None
    is_trace: bool = False

    def answers(self, messages: Sequence[Content]) -> bool:
        """Whether the recorded user messages have the same texts."""
        return [turn.user_content.text for turn in self.turns] == [message.text for message in messages]


@dataclass(frozen=True)
class ForeignRecordings:
    """All conversations of a folder, oldest first."""

    conversations: tuple[RecordedConversation, ...]

    @classmethod
    def of_folder(cls, folder: Path) -> ForeignRecordings:
        """Read every recording in a folder. Raises ResultsError for unreadable google-adk results or spans."""
        listed = {path for name in _FOLDERS for kind in _KINDS for path in (folder / name).glob(kind)}
        paths = sorted(path for path in listed if path.is_file())
        if len(paths) > _MAX_FILES:
            raise ResultsError(f"{folder} holds {len(paths):,} files of recordings, more than {_MAX_FILES:,}")
        results = [read_results(path) for path in paths if path.name.endswith(SUFFIX)]
        found: list[RecordedConversation] = []
        for result in sorted(results, key=lambda result: result.creation_timestamp):
            found += _of_results(result)
        exported = [path for path in paths if _is_otlp(path)]
        found += _newest(
            made
            for path in paths
            if path.suffix == ".json" and not path.name.endswith(SUFFIX) and path not in exported
            for made in _read(path)
        )
        if exported:
            found += _traced(exported)
        return cls(tuple(found))

    @classmethod
    def of_file(cls, path: Path) -> ForeignRecordings:
        """Read one file. Raises ResultsError or EvalFileError if it cannot be read."""
        if path.name.endswith(SUFFIX):
            return cls(tuple(_of_results(read_results(path))))
        if _is_otlp(path):
            return cls(tuple(_traced([path])))
        Source.read(path, workspace=None, error=EvalFileError)
        return cls(tuple(_read(path)))

    def find(self, key: AttemptKey, messages: Sequence[Content]) -> RecordedConversation | None:
        """Return the recording of an attempt, by case id, else by equal messages; repeats are taken in order."""
        found = [made for made in self.conversations if made.case == key.case]
        eval_set = key.eval_set.rpartition("/")[2]
        found = [made for made in found if made.eval_set.rpartition("/")[2] == eval_set] or found
        same = [made for made in found or self.conversations if messages and made.answers(messages)]
        found = same or found
        return found[key.repeat] if key.repeat < len(found) else None


def _newest(conversations: Iterable[RecordedConversation]) -> Iterator[RecordedConversation]:
    """Keep the last trace of each case: agents-cli adds ``traces_<time>.json`` per run and keeps the old ones.

    Cases without an id are numbered anew in each dataset, so a case is another one if its user messages differ.
    """
    traces: dict[tuple[str, ...], RecordedConversation] = {}
    for made in conversations:
        if made.is_trace:
            traces[made.case, *(turn.user_content.text for turn in made.turns)] = made
        else:
            yield made
    yield from traces.values()


def _is_otlp(path: Path) -> bool:
    """Whether a file is OTLP JSON, judged by its beginning because such files may be large."""
    return _OTLP.search(beginning(path, _BEGINNING)) is not None


def _traced(paths: Sequence[Path]) -> Iterator[RecordedConversation]:
    """Yield the conversations of all files together: one turn's spans and log records may be in several."""
    parts = []
    for path in paths:
        try:
            parts.append(read_otlp_file(path))
        except (OSError, OtlpError) as error:
            raise ResultsError(f"{path} cannot be read: {error}") from error
    for name, turns in recorded_conversations(Telemetry.joined(parts)):
        yield RecordedConversation(name, turns)


def _of_results(result: AdkResults) -> Iterator[RecordedConversation]:
    for case in result.eval_case_results:
        turns = tuple(turn.actual_invocation for turn in case.eval_metric_result_per_invocation)
        state = case.session_details.state if case.session_details else None
        yield RecordedConversation(case.eval_id, turns, result.eval_set_id, state)


def _read(path: Path) -> Iterator[RecordedConversation]:
    """Yield the conversations of a session or of traces; none for any other file."""
    try:
        source = Source.read(path, workspace=None, error=EvalFileError)
        if is_session(source.value):
            yield _session(path, AdkSession.model_validate(source.value))
        elif AGENTS_CLI.recognises(source.value):
            eval_set = AGENTS_CLI.read(Reading(source, path.stem))
            for case in eval_set.eval_cases if eval_set else ():
                if isinstance(case, DatasetCase) and case.recorded:
                    yield RecordedConversation(case.eval_id, case.recorded, is_trace=True)
    except (EvalFileError, ValidationError, RecursionError):
        return


def _session(path: Path, session: AdkSession) -> RecordedConversation:
    """Convert a session. It has its file's name, as in ``adk run --save_session``, and keeps a final error."""
    turns, error = session.turns(), None
    last = session.events[-1]
    if last.error_code and turns and turns[-1].final_response is None:
        message = f"{last.error_code}: {last.error_message or 'no message'}"
        error = AttemptError(kind=ErrorKind.EXCEPTION, message=message, turn=len(turns) - 1)
        turns = turns[:-1]
    name = path.name.removesuffix(".json").removesuffix(".session")
    return RecordedConversation(name, turns, final_state=session.state, error=error)
