"""The command on a pseudo-terminal, and its screen as a person sees it: cursor movements and colours carried out."""

from __future__ import annotations

import os
from pathlib import Path

import pexpect
import pyte

from support.command import COMMAND

_LINES = 300
"""More than a test prints, so that nothing leaves the screen."""
_LONGEST_S = 120


class PseudoTerminal:
    """One run of the command on a terminal of so many columns."""

    def __init__(self, *words: str, cwd: Path, width: int = 80, **environ: str) -> None:
        self.raw = ""
        self.code = -1
        self._screen = pyte.Screen(width, _LINES)
        self._stream = pyte.Stream(self._screen)
        self._child = pexpect.spawn(
            COMMAND,
            [*words],
            cwd=str(cwd),
            env={**os.environ, "TERM": "xterm-256color", **environ},
            dimensions=(_LINES, width),
            encoding="utf-8",
            timeout=_LONGEST_S,
        )

    def wait_for(self, text: str) -> None:
        """Wait until the text is on its way to the screen."""
        self._child.expect_exact(text)
        self._take(self._child.before + self._child.after)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._child.sendintr()

    def end(self) -> int:
        """Wait for the end; the exit code."""
        self._child.expect(pexpect.EOF)
        self._take(self._child.before)
        self._child.close()
        assert self._child.exitstatus is not None, "it ended by itself"
        return int(self._child.exitstatus)

    @property
    def lines(self) -> list[str]:
        """The screen, without what is empty at its end; what the terminal folded is two lines."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip().split("\n")

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def _take(self, data: str) -> None:
        self.raw += data
        self._stream.feed(data)
