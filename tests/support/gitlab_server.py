"""A local GitLab that speaks the notes of merge requests: https://docs.gitlab.com/api/notes/. It is strict.

A request that GitLab would not know, and a fault that nobody met, fail the test.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

from support.serving import serving

PROJECT, IID, TOKEN, READER = "group/sub/repo", 7, "glpat-writes", "glpat-reads"
BOT = {"id": 11, "username": "project_1_bot", "name": "agent-eval"}
STRANGER = {"id": 12, "username": "mallory", "name": "M"}
_PARAMETERS = {"per_page": r"\d+", "page": r"\d+", "sort": "asc|desc", "order_by": "created_at|updated_at"}
_NOTES = re.compile(r"/api/v4/projects/([^/]+)/merge_requests/(\d+)(/notes(?:/(\d+))?)?")


@dataclass
class Fault:
    """An answer instead of the real one, so many times; ``on``: "VERB", or "" for every request."""

    status: int
    on: str = ""
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class GitLabServer:
    """One project with one merge request, its head ``sha``."""

    url: str = ""
    sha: str = ""
    state: str = "opened"
    notes: list[dict[str, Any]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)

    def add(self, body: str, author: dict[str, Any]) -> dict[str, Any]:
        note = {"id": 100 + len(self.notes), "body": body, "author": author, "system": False}
        self.notes.append(note)
        return note

    def answer(self, verb: str, target: str, token: str, content: Any) -> tuple[int, Any, dict[str, str]]:
        """Status, JSON and headers."""
        self.requests.append(f"{verb} {target}")
        status, value, headers = self._refusal(verb, token) or self._answer(verb, target, token, content)
        return status, value, headers

    def _refusal(self, verb: str, token: str) -> tuple[int, Any, dict[str, str]] | None:
        for fault in self.faults:
            if fault.times and fault.on in ("", verb):
                fault.times -= 1
                return fault.status, {"message": f"{fault.status} fault"}, fault.headers
        return None if token in {TOKEN, READER} else (401, {"message": "401 Unauthorized"}, {})

    def _answer(self, verb: str, target: str, token: str, content: Any) -> tuple[int, Any, dict[str, str]]:
        parts = urlsplit(target)
        if (verb, parts.path) == ("GET", "/api/v4/user"):
            return 200, BOT, {}
        found = _NOTES.fullmatch(parts.path)
        if not found:
            self.unexpected.append(f"{verb} {target}")
            return 500, {}, {}
        if (unquote(found[1]), int(found[2])) != (PROJECT, IID):
            return 404, {"message": "404 Project Not Found"}, {}
        if not found[3]:
            return 200, {"iid": IID, "state": self.state, "sha": self.sha, "title": "t"}, {}
        if verb != "GET" and token != TOKEN:
            return 403, {"message": "403 Forbidden"}, {}
        return self._notes(verb, int(found[4]) if found[4] else None, parts.query, content)

    def _notes(self, verb: str, number: int | None, query: str, content: Any) -> tuple[int, Any, dict[str, str]]:
        if verb == "GET" and number is None:
            asked = {name: values[0] for name, values in parse_qs(query).items()}
            if not all(re.fullmatch(_PARAMETERS.get(name, "(?!)"), value) for name, value in asked.items()):
                return 400, {"error": f"{query} does not have a valid value"}, {}
            size, page = int(asked.get("per_page", 20)), int(asked.get("page", 1))
            order = self.notes if asked.get("sort") == "asc" else self.notes[::-1]
            rest = {**asked, "page": page + 1}
            words = "&".join(f"{name}={value}" for name, value in rest.items())
            path = f"{self.url}/projects/{PROJECT.replace('/', '%2F')}/merge_requests/{IID}/notes?{words}"
            link = {"Link": f'<{path}>; rel="next"'} if page * size < len(order) else {}
            return 200, order[(page - 1) * size : page * size], link
        if verb == "POST" and number is None and isinstance(content, dict) and content.keys() == {"body"}:
            return 201, self.add(content["body"], BOT), {}
        note = next((one for one in self.notes if one["id"] == number), None)
        if note is None or verb not in {"GET", "PUT", "DELETE"}:
            return 404, {"message": "404 Note Not Found"}, {}
        if verb == "PUT":
            note["body"] = content["body"]
        elif verb == "DELETE":
            self.notes.remove(note)
            return 204, None, {}
        return 200, note, {}


@contextlib.contextmanager
def running_gitlab() -> Iterator[GitLabServer]:
    """Serve while the block runs."""
    server = GitLabServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version: ClassVar[str] = "HTTP/1.1"

        def _do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            content = json.loads(self.rfile.read(length)) if length else None
            token = self.headers.get("PRIVATE-TOKEN", "")
            status, value, headers = server.answer(self.command, self.path, token, content)
            data = b"" if value is None else json.dumps(value).encode()
            self.send_response(status)
            for name, text in {**headers, "Content-Length": str(len(data)), "Connection": "close"}.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = _do  # noqa: N815 - the names http.server calls

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with serving(Handler) as port:
        server.url = f"http://127.0.0.1:{port}/api/v4"
        yield server
    assert not server.unexpected, server.unexpected
    assert not [fault for fault in server.faults if fault.times], "a fault that nobody met"
