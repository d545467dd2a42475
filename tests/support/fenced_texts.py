"""The texts of a judge's request by their labels, read as the judge is told to read them."""

from __future__ import annotations

import re

from agent_eval_action.llm.client import LlmRequest

_FIRST = re.compile(r"<[a-z][a-z0-9_]*-([0-9a-f]{24})>\n")


def texts_in(request: LlmRequest) -> dict[str, str]:
    """Of the request's first message."""
    return texts_of(request.messages[0].text)


def texts_of(message: str) -> dict[str, str]:
    """Only tags with the digits of the message's first tag count, and nothing may stand between texts."""
    first = _FIRST.match(message)
    assert first, message[:200]
    one = re.compile(rf"<([a-z][a-z0-9_]*)-{first[1]}>\n(.*?)\n</\1-{first[1]}>(\n\n|\Z)", re.DOTALL)
    texts: dict[str, str] = {}
    at = 0
    while at < len(message):
        found = one.match(message, at)
        assert found, message[at : at + 200]
        texts[found[1]] = found[2]
        at = found.end()
    return texts
