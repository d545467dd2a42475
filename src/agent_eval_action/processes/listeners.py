"""Who listens on a port of this machine: a process of another agent might answer there in a server's place.

Known on Linux, from the tables of /proc; elsewhere nothing is said about anybody.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent_eval_action.processes.process import pids_with_marker
from agent_eval_action.sandbox.users import process_statuses

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS: Final = "0A"
_INODE: Final = re.compile(r"^socket:\[(\d+)\]$")
_LOCAL: Final = frozenset(
    {"0100007F", "00000000", "0" * 32, "0000000000000000FFFF00000100007F", "0000000000000000FFFF000000000000"}
)
"""Addresses, as the tables write them, that a connection to 127.0.0.1 may end at."""


@dataclass
class Port:
    """A port of 127.0.0.1 that is a program's: known by its ``marker``, its process ``group``, and its user's ``uid``.

    ``uid`` is None where the program runs as our own user.
    """

    number: int
    marker: str
    group: int
    uid: int | None
    _known: set[str] = field(default_factory=set)

    def stranger(self) -> str:
        """Return who else listens there, for a message; "" if nobody. Blocks for some milliseconds."""
        listening = dict(_listening(self.number))
        if self.uid is not None:
            # The kernel writes the uid, and nobody else's code runs under it.
            others = [f"a process of user {owner}" for owner in listening.values() if owner != self.uid]
            return "nobody" if not listening and _TABLES[0].exists() else next(iter(others), "")
        # Root is nobody's code: the proxy of a container engine, where the command starts a container.
        inodes = {inode for inode, owner in listening.items() if owner != 0 or os.geteuid() == 0} - self._known
        if inodes and not inodes <= (own := self._inodes()):
            return f"a process of user {listening[min(inodes - own)]}"
        self._known |= inodes
        return ""

    def _inodes(self) -> set[str]:
        """The sockets of the program's processes, and every other one where a process of it hides its files."""
        found: set[str] = set()
        group = {pid for pid, _ in process_statuses() if _group(pid) == self.group}
        for pid in pids_with_marker(self.marker) | group:
            try:
                found |= set(_sockets(pid))
            except PermissionError:
                return {inode for inode, _ in _listening(self.number)}
        return found


def _listening(port: int) -> Iterator[tuple[str, int]]:
    """The inode and the owner's uid of each socket that listens there."""
    for table in _TABLES:
        lines: list[str] = []
        with contextlib.suppress(OSError):
            lines = table.read_text().splitlines()[1:]
        for fields in map(str.split, lines):
            address, _, number = fields[1].partition(":")
            if fields[3] == _LISTENS and int(number, 16) == port and address in _LOCAL:
                yield fields[9], int(fields[7])


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def _sockets(pid: int) -> Iterator[str]:
    """The inodes of a process's sockets. Raises PermissionError where they are hidden."""
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                if found := _INODE.match(str(Path(entry.path).readlink())):
                    yield found[1]
    except (FileNotFoundError, ProcessLookupError):
        return
