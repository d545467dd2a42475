"""What can go wrong at GitHub, and when. Faults come as JSON to the running server."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from support.model_server import wire

Kind = Literal["permission", "secondary", "reset_at", "status", "reset", "slow", "too_long", "garbage", "behind"]


@dataclass
class Fault:
    """One fault.

    ``on``: a regular expression over "VERB /path". ``kind``: *permission* (403 as a token without the right gets it),
    *secondary* (``code`` 403 or 429 with Retry-After ``seconds``, without the header when that is None), *reset_at*
    (403, x-ratelimit-remaining 0 and a reset ``seconds`` from now), *status* (``code``), *reset* (connection reset),
    *slow* (``seconds`` before it is done), *too_long* (422), *garbage* (200 and no JSON), *behind* (a list
    of comments without the newest, as a replica has it).
    ``done``: the request takes effect all the same, only its answer is lost; *slow* then waits after it.
    When: after ``after`` such requests, ``times`` in all.
    """

    on: str
    kind: Kind = "status"
    code: int = 502
    seconds: float | None = None
    message: str = ""
    after: int = 0
    times: int = 1
    done: bool = False
    seen: int = field(default=0, init=False)
    made: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"unknown fault {self.kind!r}: known are {', '.join(get_args(Kind))}")

    def strikes(self, said: str) -> bool:
        """Whether the request gets the fault; counts it when it does."""
        if self.made >= self.times or not re.fullmatch(self.on, said):
            return False
        self.seen += 1
        if self.seen <= self.after:
            return False
        self.made += 1
        return True

    def answer(self) -> wire.HttpResponse:
        """The response of kinds that have one."""
        match self.kind:
            case "permission":
                headers = {"X-Accepted-GitHub-Permissions": "issues=write; pull_requests=write"}
                return refuse(403, self.message or "Resource not accessible by integration", headers)
            case "secondary":
                code = 403 if self.code == 502 else self.code
                headers = {} if self.seconds is None else {"Retry-After": f"{self.seconds:.0f}"}
                return refuse(code, self.message or "You have exceeded a secondary rate limit.", headers)
            case "reset_at":
                at = f"{time.time() + (self.seconds or 0):.0f}"
                headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": at}
                return refuse(403, self.message or "API rate limit exceeded for installation.", headers)
            case "too_long":
                return too_long()
            case "garbage":
                return wire.HttpResponse(200, b"<html>", {"Content-Type": "text/html"})
            case _:
                return refuse(self.code, self.message or "Server Error")


def refuse(code: int, message: str, headers: dict[str, str] | None = None, **fields: Any) -> wire.HttpResponse:
    """An error as GitHub words it."""
    body = {"message": message, "documentation_url": "https://docs.github.com/rest", "status": str(code), **fields}
    return wire.json_response(body, code, headers)


def too_long() -> wire.HttpResponse:
    """What a body of more than 65,536 characters gets."""
    error = {
        "resource": "IssueComment",
        "code": "unprocessable",
        "field": "data",
        "message": "Body is too long (maximum is 65536 characters)",
    }
    return refuse(422, "Validation Failed", errors=[error])
