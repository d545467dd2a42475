"""A session's open calls, which wait for the user, and the answers that a case scripts for them.

Standard library only: drivers of servers share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class OpenCalls:
    """Calls that wait for the user's answer, in the order in which they were made."""

    def __init__(self, history: Iterable[Mapping[str, Any]] = ()) -> None:
        """``history``: the contents before the first turn; calls without an answer in it are open."""
        self._names: dict[str, str] = {}
        for part in (part for content in history for part in content.get("parts") or ()):
            call, response = part.get("function_call") or {}, part.get("function_response") or {}
            if call.get("id"):
                self.add(call["id"], call.get("name") or "")
            self._names.pop(response.get("id"), None)

    def add(self, identifier: str, name: str) -> None:
        """Add a call that only the user answers."""
        self._names[identifier] = name

    def answer(self, answers: Iterable[tuple[str | None, str | None]]) -> list[str]:
        """Match the answers of one message, given as (id, name), to open calls; return the calls' ids.

        Call ids are random, so no file can know them: an answer is for the open call with its id and name, else for the
        first one with its name. Raises LookupError if an answer is for none; then all calls stay open.
        """
        waiting, found = dict(self._names), list[str]()
        for identifier, name in answers:
            same_name = [call for call, called in waiting.items() if called == name]
            if not same_name:
                others = ", ".join(f"`{called}`" for called in waiting.values()) or "none"
                asked = f"of `{name}`" if name else "that it does not name"
                raise LookupError(
                    f"the case answers a call {asked}, and no such call waits for an answer (calls that wait: {others})"
                )
            found.append(identifier if identifier in same_name else same_name[0])
            del waiting[found[-1]]
        self._names = waiting
        return found
