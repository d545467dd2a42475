"""Find out who listens on a port of this machine: another agent's process might answer in a server's place.

Works on Linux, from the tables of /proc; elsewhere nobody is reported.
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
"""Addresses, as the tables write them, at which a connection to 127.0.0.1 may end."""


@dataclass
class Port:
    """A program's port on 127.0.0.1. ``marker``, process ``group`` and ``uid`` identify the program's processes.

    ``uid`` is None if the program runs as our own user.
    """

    number: int
    marker: str
    group: int
    uid: int | None
    _known: set[str] = field(default_factory=set)

    def stranger(self) -> str:
        """Return who listens there in the program's place, for a message; "" if it does itself. Takes some ms."""
        listening = dict(_listening(self.number))
        if self.uid is not None:
            # The kernel reports the uid, and nobody else's code runs under it.
            others = [f"a process of user {owner}" for owner in listening.values() if owner != self.uid]
            return "nobody" if not listening and _TABLES[0].exists() else next(iter(others), "")
        # Root is trusted: if the command starts a container, the engine's proxy listens as root.
        inodes = {inode for inode, owner in listening.items() if owner != 0 or os.geteuid() == 0} - self._known
        if inodes and not inodes <= (own := self._inodes()):
            return f"a process of user {listening[min(inodes - own)]}"
        self._known |= inodes
        return ""

    def _inodes(self) -> set[str]:
        """Return the sockets of the program's processes; all sockets on the port if one of them hides its files."""
        found: set[str] = set()
        group = {pid for pid, _ in process_statuses() if _group(pid) == self.group}
        for pid in pids_with_marker(self.marker) | group:
            try:
                found |= set(_sockets(pid))
            except PermissionError:
                return {inode for inode, _ in _listening(self.number)}
        return found


def _listening(port: int) -> Iterator[tuple[str, int]]:
    """Yield the inode and the owner's uid of each socket that listens on the port."""
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
    """Yield the inodes of a process's sockets. Raises PermissionError if they are hidden."""
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                if found := _INODE.match(str(Path(entry.path).readlink())):
                    yield found[1]
    except (FileNotFoundError, ProcessLookupError):
        return
