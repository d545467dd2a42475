"""The command on a pseudo-terminal, and its screen as a person sees it: cursor movements and colours carried out."""

from __future__ import annotations

import os
import signal
import termios
import time
from pathlib import Path

import pexpect
import pyte
from pexpect.fdpexpect import fdspawn

from support.command import on_terminal

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
        self._ours, terminal = os.openpty()
        termios.tcsetwinsize(terminal, (_LINES, width))
        environ = {**os.environ, "TERM": "xterm-256color", **environ}
        self._process = on_terminal(terminal, words, cwd, environ)
        os.close(terminal)
        self._shown = fdspawn(self._ours, encoding="utf-8", timeout=_LONGEST_S)

    def wait_for(self, text: str) -> None:
        """Wait until the text is on its way to the screen."""
        self._shown.expect_exact(text)
        self._take(self._shown.before + self._shown.after)

    def type(self, line: str) -> None:
        """Type a line and press Enter."""
        os.write(self._ours, f"{line}\r".encode())

    def press(self, key: str) -> None:
        """Press a letter with Ctrl, ``^D``, or one key, once the command waits for one: what is typed ahead is lost."""
        if key.startswith("^"):
            os.write(self._ours, bytes([ord(key[1]) & 0x1F]))
            return
        while termios.tcgetattr(self._ours)[3] & termios.ICANON:
            time.sleep(0.01)
        os.write(self._ours, key.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.press("^C")

    def terminate(self) -> None:
        """Send SIGTERM."""
        os.kill(self._process.pid, signal.SIGTERM)

    def end(self) -> int:
        """Wait for the end; the exit code."""
        self._shown.expect(pexpect.EOF)
        self._take(self._shown.before)
        self._shown.close()
        code = self._process.wait(_LONGEST_S)
        assert code >= 0, "it ended by itself"
        return code

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
