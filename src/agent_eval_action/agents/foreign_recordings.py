"""Recordings of other tools: sessions and results of google-adk, traces of agents-cli, and OTLP JSON."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
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
from agent_eval_action.results.run_result import Attempt, AttemptError, AttemptKey, ErrorKind
from agent_eval_action.telemetry.otlp import OtlpError, Telemetry, read_otlp_file
from agent_eval_action.telemetry.trajectory import recorded_conversations

_FOLDERS: Final = (".", ".adk/eval_history", "artifacts/traces")
"""Where the tools write their files, relative to the named folder."""
_KINDS: Final = ("*.json", "*.jsonl")
_OTLP: Final = re.compile(rb'^\s*\{\s*"resource_?(Spans|spans|Logs|logs)"')
_BEGINNING: Final = 4096
_MAX_FILES: Final = 10_000


def read_folder(folder: Path) -> list[Attempt]:
    """Read every recording in a folder, oldest first, as attempts of an agent without a name.

    Raises ResultsError for unreadable google-adk results or spans.
    """
    listed = {path for name in _FOLDERS for kind in _KINDS for path in (folder / name).glob(kind)}
    paths = sorted(path for path in listed if path.is_file())
    if len(paths) > _MAX_FILES:
        raise ResultsError(f"{folder} holds {len(paths):,} files of recordings, more than {_MAX_FILES:,}")
    results = [read_results(path) for path in paths if path.name.endswith(SUFFIX)]
    exported = [path for path in paths if _is_otlp(path)]
    found = [
        made for result in sorted(results, key=lambda result: result.creation_timestamp) for made in _of_results(result)
    ]
    # agents-cli adds ``traces_<time>.json`` per run and keeps the old ones. Cases without an id are numbered anew in
    # each dataset, so a case is another one if its user messages differ.
    newest: dict[tuple[str, ...], Attempt] = {}
    for path in paths:
        if path.suffix == ".json" and not path.name.endswith(SUFFIX) and path not in exported:
            is_session, conversations = _read(path)
            if is_session:
                found += conversations
            else:
                newest |= {(made.case, *_messages(made)): made for made in conversations}
    return [*found, *newest.values(), *_of_spans(exported)]


def read_file(path: Path) -> list[Attempt]:
    """Read the recordings in one file. Raises ResultsError or EvalFileError if it cannot be read."""
    if path.name.endswith(SUFFIX):
        return list(_of_results(read_results(path)))
    if _is_otlp(path):
        return list(_of_spans([path]))
    Source.read(path, workspace=None, error=EvalFileError)
    return _read(path)[1]


def find_recording(recordings: Sequence[Attempt], key: AttemptKey, messages: Sequence[Content]) -> Attempt | None:
    """Return the recording of an attempt, by case id, else by equal messages; repeats are taken in order."""
    found = [made for made in recordings if made.case == key.case]
    eval_set = key.eval_set.rpartition("/")[2]
    found = [made for made in found if made.eval_set.rpartition("/")[2] == eval_set] or found
    texts = [message.text for message in messages]
    found = [made for made in found or recordings if texts and _messages(made) == texts] or found
    return found[key.repeat] if key.repeat < len(found) else None


def _messages(made: Attempt) -> list[str]:
    return [turn.user_content.text for turn in made.turns]


def _attempt(case: str, turns: tuple[Invocation, ...], eval_set: str = "", **fields: Any) -> Attempt:
    return Attempt(agent="", eval_set=eval_set, case=case, repeat=0, case_digest="", turns=turns, **fields)


def _is_otlp(path: Path) -> bool:
    """Whether a file is OTLP JSON, judged by its beginning because such files may be large."""
    return _OTLP.search(beginning(path, _BEGINNING)) is not None


def _of_spans(paths: Sequence[Path]) -> Iterator[Attempt]:
    """Yield the conversations of all files together: one turn's spans and log records may be in several."""
    parts = []
    for path in paths:
        try:
            parts.append(read_otlp_file(path))
        except (OSError, OtlpError) as error:
            raise ResultsError(f"{path} cannot be read: {error}") from error
    for name, turns in recorded_conversations(Telemetry.joined(parts).whole_spans()):
        yield _attempt(name, turns)


def _of_results(results: AdkResults) -> Iterator[Attempt]:
    for case in results.eval_case_results:
        turns = tuple(turn.actual_invocation for turn in case.eval_metric_result_per_invocation)
        state = case.session_details.state if case.session_details else None
        yield _attempt(case.eval_id, turns, results.eval_set_id, final_session_state=state)


def _read(path: Path) -> tuple[bool, list[Attempt]]:
    """Return whether a file is a session, and its conversations; none for a file that is neither that nor traces."""
    with contextlib.suppress(EvalFileError, ValidationError, RecursionError):
        source = Source.read(path, workspace=None, error=EvalFileError)
        if is_session(source.value):
            return True, [_of_session(path, AdkSession.model_validate(source.value))]
        if AGENTS_CLI.recognises(source.value) and (read := AGENTS_CLI.read(Reading(source, path.stem))):
            cases = (case for case in read.eval_cases if isinstance(case, DatasetCase) and case.recorded)
            return False, [_attempt(case.eval_id, case.recorded) for case in cases]
    return False, []


def _of_session(path: Path, session: AdkSession) -> Attempt:
    """Convert a session. It has its file's name, as in ``adk run --save_session``, and keeps a final error."""
    turns, error = session.turns(), None
    last = session.events[-1]
    if last.error_code and turns and turns[-1].final_response is None:
        message = f"{last.error_code}: {last.error_message or 'no message'}"
        error = AttemptError(kind=ErrorKind.EXCEPTION, message=message, turn=len(turns) - 1)
        turns = turns[:-1]
    name = path.name.removesuffix(".json").removesuffix(".session")
    return _attempt(name, turns, final_session_state=session.state, error=error)
