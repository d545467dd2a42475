"""What attempts.jsonl and blobs/ hold beyond results.json: when each call ran, what tools returned, media."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

from pydantic import TypeAdapter, ValidationError

from agent_eval_action.errors import ResultsError
from agent_eval_action.folders import OutputFolder
from agent_eval_action.results.evalset import Content, FunctionResponse, Invocation, InvocationEvents, Part
from agent_eval_action.results.run_result import AttemptKey
from agent_eval_action.results.transcripts import ATTEMPTS, BLOB_PREFIX, BLOBS, decode_media, read_line, read_lines

_TEXT: Final = rb'"(?:[^"\\]|\\.)*"'
# A transcript's line begins with these fields, as TranscriptWriter writes them.
_HEAD: Final = re.compile(
    rb'\{"agent":(%s),"eval_set":(%s),"case":(%s),"repeat":(\d{1,9})(?:,"arm":"(head|base)")?' % (_TEXT, _TEXT, _TEXT)
)
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_TURNS: Final = TypeAdapter(tuple[Invocation, ...])

Place = Literal["user", "tool", "answer"]


@dataclass(frozen=True, slots=True)
class Medium:
    """A file that user, tool or agent sent in a turn. ``digest`` and ``size`` are of its bytes.

    ``data`` is base64, "" where the bytes lie in blobs/; ``uri`` is set instead where there are no bytes at all.
    """

    place: Place
    mime_type: str
    name: str = ""
    digest: str = ""
    size: int | None = None
    data: str = field(default="", repr=False)
    uri: str = ""


@dataclass(frozen=True, slots=True)
class Recordings:
    """The transcripts in the output folder of a run, each read when it is asked for."""

    folder: Path
    workspace: Path | None
    offsets: dict[AttemptKey, int]

    @classmethod
    def find(cls, folder: Path, workspace: Path | None = None) -> Recordings | None:
        """The transcripts in ``folder``; None where there are none that can be read."""
        offsets: dict[AttemptKey, int] = {}
        try:
            for _, offset, line in read_lines(folder / ATTEMPTS, workspace):
                if found := _HEAD.match(line):
                    agent, eval_set, case = (json.loads(text) for text in found.group(1, 2, 3))
                    arm: Literal["head", "base"] = "base" if found[5] == b"base" else "head"
                    offsets[AttemptKey(agent, eval_set, case, int(found[4]), arm)] = offset
        except (ResultsError, ValueError):
            return None
        return cls(folder, workspace, offsets)

    def turns(self, key: AttemptKey) -> tuple[Invocation, ...]:
        """The turns of an attempt as they were recorded; () where they are not known."""
        if (offset := self.offsets.get(key)) is None:
            return ()
        try:
            line = read_line(self.folder / ATTEMPTS, offset, self.workspace)
            return _TURNS.validate_python(json.loads(line).get("turns", ()))
        except (OSError, ValueError, RecursionError, ValidationError, AttributeError):
            return ()

    def encoded(self, medium: Medium) -> str | None:
        """The bytes of a medium in base64; None where they are gone, or are not those that were sent."""
        if medium.data:
            return medium.data
        raw = self._blob(medium.digest)
        intact = raw is not None and hashlib.sha256(raw).hexdigest() == medium.digest
        return base64.b64encode(raw).decode() if raw is not None and intact else None

    def media(self, turn: Invocation) -> Iterator[Medium]:
        """The media of a turn: the user's, those that tools returned, the agent's."""
        for part in turn.user_content.parts or ():
            yield from self._of_part(part, "user")
        data = turn.intermediate_data
        contents: list[Content | None] = []
        if isinstance(data, InvocationEvents):
            contents = [event.content for event in data.invocation_events]
        for content in (*contents, turn.final_response):
            for part in (content.parts if content else None) or ():
                yield from self._of_part(part, "answer")

    def _of_part(self, part: Part, place: Place) -> Iterator[Medium]:
        if part.function_response is not None:
            for inner in (part.function_response.model_extra or {}).get("parts") or ():
                if isinstance(inner, dict):
                    yield from self._of_dicts(inner.get("inline_data"), inner.get("file_data"), "tool")
        yield from self._of_dicts(part.inline_data, part.file_data, place)

    def _of_dicts(self, inline: Any, file: Any, place: Place) -> Iterator[Medium]:
        if isinstance(inline, dict) and isinstance(data := inline.get("data"), str) and data:
            kind, name = _named(inline)
            if data.startswith(BLOB_PREFIX):
                digest = data.removeprefix(BLOB_PREFIX)
                yield Medium(place, kind, name, digest, self._size(digest))
            else:
                raw = decode_media(data)
                digest = hashlib.sha256(raw).hexdigest()
                yield Medium(place, kind, name, digest, len(raw), base64.b64encode(raw).decode())
        if isinstance(file, dict) and file.get("file_uri"):
            kind, name = _named(file)
            yield Medium(place, kind, name, uri=str(file["file_uri"]))

    def _size(self, digest: str) -> int | None:
        with contextlib.suppress(OSError), self._open(digest) as file:
            return file.seek(0, 2)
        return None

    def _blob(self, digest: str) -> bytes | None:
        with contextlib.suppress(OSError), self._open(digest) as file:
            return file.read()
        return None

    def _open(self, digest: str) -> BinaryIO:
        if not _DIGEST.fullmatch(digest):
            raise FileNotFoundError(digest)
        return OutputFolder.at(self.folder, self.workspace).read(f"{BLOBS}/{digest}")


def _named(wire: dict[str, Any]) -> tuple[str, str]:
    return str(wire.get("mime_type") or ""), str(wire.get("display_name") or "")


def tool_results(turn: Invocation) -> list[str]:
    """What came back from each call of the turn, as text; "" for a call without an answer."""
    waiting = list(turn.tool_responses())
    texts = []
    for call in turn.tool_calls():
        alike = [answer for answer in waiting if answer.name == call.name]
        found = next((answer for answer in alike if call.id and answer.id == call.id), next(iter(alike), None))
        if found is not None:
            waiting.remove(found)
        texts.append(_result_text(found) if found else "")
    return texts


def _result_text(answer: FunctionResponse) -> str:
    value: Any = answer.response
    if isinstance(value, dict) and value.keys() == {"result"}:
        value = value["result"]  # ADK wraps what is no dict
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
