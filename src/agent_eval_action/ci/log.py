"""Streams for a job's log that keep untrusted text from being read as CI commands.

GitHub's runner reads stdout and stderr line by line, and a lone CR starts a new line. ``::name::`` after blanks is a
command; so is the old ``##[name]``, anywhere in a line (actions/runner, ActionCommand.cs). Azure's agent looks for
``##vso[name]`` and ``##[name]``, TeamCity's for ``##teamcity[name]``.
"""

from __future__ import annotations

import io
import os
import re
import stat
import threading
from collections.abc import Callable
from typing import Final, TextIO

_LONGEST: Final = 1 << 20
"""Characters that are buffered while a line is incomplete; a longer line is broken here."""
_COMMAND: Final = re.compile(r"(?m)^\s*:(?=:)|#(?=#(?:[A-Za-z]+)?\[)")
_BREAK: Final = re.compile(r"\r\n?")


def neutralize(text: str) -> str:
    """Break every CI command in ``text`` with an invisible character; a CR becomes a new line.

    Leaves control characters, which the reports remove.
    """
    # the zero-width space is invisible, and the runner does not trim it
    return _COMMAND.sub("\\g<0>\N{ZERO WIDTH SPACE}", _BREAK.sub("\n", text))


class GuardedStream(io.TextIOBase):
    """A text stream whose lines cannot be commands. Lines are written once they are complete, or at the end."""

    def __init__(self, under: TextIO, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._under = under
        self._redact = redact
        self._buffer = ""
        self._lock = threading.RLock()

    @property
    def encoding(self) -> str:  # type: ignore[override] # typeshed has it writable
        return self._under.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override] # typeshed has it writable
        return self._under.errors

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._under.isatty()

    def fileno(self) -> int:
        return self._under.fileno()

    def write(self, text: str, /) -> int:
        """Buffer text and write its complete lines."""
        with self._lock:
            self._buffer += text.replace("\r\n", "\n").replace("\r", "\n")
            whole, ended, rest = self._buffer.rpartition("\n")
            if len(rest) > _LONGEST:
                whole, ended, rest = self._buffer, "\n", ""
            self._buffer = rest
            if ended:
                self._put(f"{whole}\n")
        return len(text)

    def command(self, line: str) -> None:
        """Write one of our own commands, unescaped."""
        with self._lock:
            self.end_line()
            self._write(f"{line}\n")
            self._under.flush()

    def end_line(self) -> None:
        """Write the buffered text as a line."""
        with self._lock:
            line, self._buffer = self._buffer, ""
            if line:
                self._put(f"{line}\n")

    def flush(self) -> None:
        """Flush the underlying stream; an incomplete line stays buffered."""
        if not self.closed:
            self._under.flush()

    def _put(self, text: str) -> None:
        self._write(neutralize(self._redact(text)))

    def _write(self, text: str) -> None:
        encoding = self._under.encoding or "utf-8"
        self._under.write(text.encode(encoding, "backslashreplace").decode(encoding))


def is_log(stream: TextIO) -> bool:
    """Return whether a stream may be a CI log; a file that a step redirects to is data, which no runner reads."""
    try:
        return not stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return True
