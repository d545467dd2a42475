"""Cache answers in files named by a digest of the question, so that the same question is paid for once.

An entry contains its key and a digest of the answer; damaged entries and entries for another question are misses.
Any number of processes may read and write the same folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from agent_eval_action.folders import OutputFolder
from agent_eval_action.llm.client import Llm, LlmError, LlmReply, LlmRequest, LlmUsage

FORMAT: Final = 1
MAX_AGE_S: Final = 30 * 24 * 3600
MAX_BYTES: Final = 200 * 1024 * 1024
_LARGEST_ENTRY = 4 * 1024 * 1024
_COUNTS = ("input_tokens", "output_tokens", "cached_input_tokens")


def request_key(request: LlmRequest, provider: str, server: str = "") -> str:
    """Everything that an answer depends on, as JSON. ``server``: the base URL or project.

    ``purpose`` is left out: criteria that ask exactly the same share the answer. Raises TypeError or ValueError for
    options that are not JSON.
    """
    key = {
        "format": FORMAT,
        "provider": provider,
        "server": server and _digest(server),  # a base URL may contain a password
        "model": request.model,
        "system": request.system,
        "messages": [[message.role, message.text] for message in request.messages],
        "schema": None if request.schema is None else dict(request.schema),
        "options": dict(request.options),
        "prompt_version": request.prompt_version,
        "sample": request.sample,
        "repeat": request.repeat,
    }
    return _text(key)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class AnswerStore:
    """A folder of answers. The first disk error is reported through ``say`` and disables the store."""

    def __init__(self, folder: OutputFolder, say: Callable[[str], None] = lambda _: None) -> None:
        self.folder = replace(folder, private=True)
        self._say = say
        self._broken = False

    def read(self, key: str) -> LlmReply | None:
        """The intact answer to exactly this question, or None."""
        if self._broken:
            return None
        try:
            with self.folder.read(_file_of(key)) as file:
                data = file.read(_LARGEST_ENTRY + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._give_up(error)
            return None
        return _reply(data, key)

    def write(self, key: str, reply: LlmReply) -> None:
        """Store an answer atomically."""
        if self._broken:
            return
        fields = {"text": reply.text, "usage": asdict(reply.usage)}
        data = json.dumps({"key": key, "reply": fields, "digest": _digest(_text(fields))}).encode()
        if len(data) > _LARGEST_ENTRY:
            return
        try:
            self.folder.replace(_file_of(key), [data], sync=False)
        except OSError as error:
            self._give_up(error)

    def prune(self, *, max_age_s: float = MAX_AGE_S, max_bytes: int = MAX_BYTES, now: float | None = None) -> int:
        """Remove expired files, then the oldest until the rest fits. Returns the number removed."""
        now = time.time() if now is None else now
        kept: list[tuple[float, int, str]] = []
        removed = 0
        with contextlib.suppress(OSError):
            for shard in self.folder.folders():
                for name, stat in (self.folder / shard).files():
                    # a temporary file older than an hour is from a killed process
                    if now - stat.st_mtime > (max_age_s if name.endswith(".json") else 3600):
                        removed += self._remove(f"{shard}/{name}")
                    else:
                        kept.append((stat.st_mtime, stat.st_size, f"{shard}/{name}"))
        total = sum(size for _, size, _ in kept)
        for _, size, name in sorted(kept):
            if total <= max_bytes:
                break
            removed += self._remove(name)
            total -= size
        return removed

    def _remove(self, name: str) -> int:
        with contextlib.suppress(OSError):  # another process may have removed it
            self.folder.remove(name)
            return 1
        return 0

    def _give_up(self, error: OSError) -> None:
        self._broken = True
        self._say(f"judges' answers are not cached: {error.strerror or error} ({self.folder.path})")


def _file_of(key: str) -> str:
    digest = _digest(key)
    return f"{digest[:2]}/{digest}.json"


def _reply(data: bytes, key: str) -> LlmReply | None:
    """The reply of an entry if it is intact and answers this question, else None."""
    try:
        entry = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or entry.keys() != {"key", "reply", "digest"} or entry["key"] != key:
        return None
    match entry["reply"]:
        case {"text": str(text), "usage": dict(usage)} if text:
            counts = [usage.get(name) for name in _COUNTS]
            if entry["digest"] == _digest(_text(entry["reply"])) and all(type(n) in (int, type(None)) for n in counts):
                return LlmReply(text, LlmUsage(*counts), cached=True)
    return None


@dataclass(frozen=True)
class Cached:
    """An ``Llm`` that answers from the store if it can. ``read`` False: it only writes.

    ``identity`` returns a model's provider and server; ``hit`` is called for every answer found.
    """

    inner: Llm
    store: AnswerStore
    identity: Callable[[str], tuple[str, str]]
    read: bool = True
    hit: Callable[[LlmRequest], None] = field(default=lambda _: None)

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        """Return a reply; errors are not stored."""
        try:
            key = request_key(request, *self.identity(request.model))
        except (TypeError, ValueError):  # options that are not JSON have no key
            return await self.inner.generate(request)
        if self.read and (kept := self.store.read(key)) is not None and request.usable(kept.text):
            self.hit(request)
            return kept
        reply = await self.inner.generate(request)
        if isinstance(reply, LlmReply) and not reply.cached and request.usable(reply.text):
            self.store.write(key, reply)
        return reply
