"""The server: evaluateInstances, tokens, the metrics' bucket, faults, and what it saw. In a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qs, unquote

from support.model_server import wire
from support.serving import listening

Kind = Literal["status", "reset", "hang", "malformed", "truncated", "no_results", "no_score", "not_a_score", "error"]
BUCKET = "vertex-ai-generative-ai-eval-sdk-resources"
COHERENCE = """name: coherence
prompt_template: |
  Rate how well the answer holds together, 1 to 5.
  Prompt: {prompt}
  Response: {response}
"""


@dataclass
class Fault:
    """What goes wrong with ``times`` requests (None: all); ``code`` is the status of a *status* fault."""

    kind: Kind = "status"
    code: int = 500
    times: int | None = None
    retry_after: float | None = None


@dataclass(frozen=True)
class Asked:
    """One evaluateInstances request as it arrived."""

    path: str
    query: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def metric(self) -> str:
        """The predefined metric's name, or ``llm`` for one that brings its own prompt."""
        (metric,) = self.body["metrics"]
        return str(metric.get("predefined_metric_spec", {}).get("metric_spec_name") or "llm")


def one(asked: Asked) -> dict[str, Any]:
    """The service's answer to everything: full marks, and why."""
    del asked
    return {"score": 1.0, "explanation": "nothing against it"}


@dataclass
class VertexServer:
    """Answers each request with the metric result ``answer`` gives, unless a fault comes first."""

    answer: Callable[[Asked], dict[str, Any]] = one
    faults: list[Fault] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    tokens: int = 0
    token_status: int = 200
    files_read: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    now: int = 0
    most_at_once: int = 0
    latency: float = 0.0
    url: str = ""

    async def handle(self, request: wire.HttpRequest) -> wire.HttpResponse:
        """Route one request."""
        if request.path.endswith(":evaluateInstances") and request.verb == "POST":
            return await self._evaluate(request)
        if request.path == "/token":
            self.tokens += 1
            if self.token_status != 200:
                body = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
                return wire.json_response(body, self.token_status)
            return wire.json_response({"access_token": "ya29.local", "expires_in": 3599, "token_type": "Bearer"})
        if request.path.startswith("/storage/v1/b/") or request.path.startswith("/download/storage/v1/b/"):
            return self._bucket(request)
        self.unexpected.append(f"{request.verb} {request.path}")
        return wire.json_response({"error": {"code": 404, "message": request.path, "status": "NOT_FOUND"}}, 404)

    async def _evaluate(self, request: wire.HttpRequest) -> wire.HttpResponse:
        asked = Asked(request.path, request.query, request.headers, json.loads(request.body))
        self.asked.append(asked)
        self.now += 1
        self.most_at_once = max(self.most_at_once, self.now)
        try:
            await asyncio.sleep(self.latency)
            fault = next((fault for fault in self.faults if fault.times is None or fault.times > 0), None)
            if fault is not None:
                fault.times = None if fault.times is None else fault.times - 1
                return _faulty(fault)
            return wire.json_response({"metricResults": [self.answer(asked)]})
        finally:
            self.now -= 1

    def _bucket(self, request: wire.HttpRequest) -> wire.HttpResponse:
        name = "metrics/coherence/v1.yaml"
        if request.path == f"/storage/v1/b/{BUCKET}/o":
            prefix = parse_qs(request.query).get("prefix", [""])[0]
            items = [{"name": name, "bucket": BUCKET}] if name.startswith(prefix) else []
            return wire.json_response({"kind": "storage#objects", "items": items})
        asked = unquote(request.path.partition("/o/")[2])
        self.files_read.append(asked)
        if asked != name:
            return wire.json_response({"error": {"code": 404, "message": "No such object"}}, 404)
        if "alt=media" in request.query or request.path.startswith("/download"):
            return wire.HttpResponse(200, COHERENCE.encode(), {"Content-Type": "application/yaml"})
        return wire.json_response({"name": name, "bucket": BUCKET})


_BODIES: dict[str, bytes] = {
    "malformed": b'{"metricResults": [{"score": 1',
    "no_results": b"{}",
    "no_score": b'{"metricResults": [{"explanation": "could not say"}]}',
    "not_a_score": b'{"metricResults": [{"score": NaN}]}',
    "error": b'{"metricResults": [{"error": {"code": 13, "message": "the autorater failed"}}]}',
}


def _faulty(fault: Fault) -> wire.HttpResponse:
    if fault.kind == "reset":
        raise wire.ResetConnection
    if fault.kind == "hang":
        raise wire.HangConnection
    if fault.kind == "status":
        status = {403: "PERMISSION_DENIED", 429: "RESOURCE_EXHAUSTED"}.get(fault.code, "INTERNAL")
        body = {"error": {"code": fault.code, "message": f"Fault {fault.code}.", "status": status}}
        headers = {} if fault.retry_after is None else {"Retry-After": f"{fault.retry_after:g}"}
        return wire.json_response(body, fault.code, headers)
    said = {"Content-Type": "application/json"}
    if fault.kind == "truncated":
        whole = b'{"metricResults": [{"score": 1.0}]}'
        return wire.HttpResponse(200, whole, said, cut=len(whole) // 2)
    return wire.HttpResponse(200, _BODIES[fault.kind], said)


@contextlib.contextmanager
def running(server: VertexServer) -> Iterator[VertexServer]:
    """The server listening, with its ``url``, while the block runs."""
    with listening(server.handle) as server.url:
        yield server
