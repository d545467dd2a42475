"""The server: routes, latency, faults, and what it saw. Control is by HTTP too, under ``/_control``."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from support.gemini_server import wire
from support.gemini_server.faults import Fault, RateLimit
from support.gemini_server.messages import MODEL_PATH, ModelRequest, Reply, error_body, response_body
from support.gemini_server.script import Answer

KEEP = 5000
STREAMED_WORDS = 4


Hold = Callable[[ModelRequest], Awaitable[None]]


async def at_once(asked: ModelRequest) -> None:
    """Put nothing off."""


@dataclass
class Seen:
    """What arrived: model requests, those answered, those made to fail, and what no rule or route fits.

    ``tokens``: access tokens given out at ``/token``, where a credentials file of the tests points to.
    """

    calls: int = 0
    answered: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    now: int = 0
    most_at_once: int = 0
    unexpected: list[str] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    tokens: int = 0


@dataclass
class GeminiServer:
    """Answers as ``answer`` says, each after ``latency`` seconds; ``hold`` is awaited first and can put one off."""

    answer: Answer
    latency: float = 0.0
    faults: list[Fault] = field(default_factory=list)
    limit: RateLimit = field(default_factory=RateLimit)
    token_status: int = 200
    hold: Hold = at_once
    seen: Seen = field(default_factory=Seen)
    url: str = ""

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> tuple[asyncio.Server, str]:
        """Listen; returns the server and its URL."""
        server = await wire.serve(self.handle, host, port)
        return server, f"http://{host}:{server.sockets[0].getsockname()[1]}"

    async def handle(self, request: wire.HttpRequest) -> wire.HttpResponse:
        """Route one request."""
        if request.path.startswith("/_control/"):
            return self._control(request)
        if request.path == "/token":
            return self._token()
        route = MODEL_PATH.match(request.path)
        if request.verb != "POST" or not route:
            self.seen.unexpected.append(f"{request.verb} {request.path}")
            return wire.json_response(error_body(404, f"no such method: {request.verb} {request.path}"), 404)
        self.seen.calls += 1
        asked = ModelRequest(
            number=self.seen.calls,
            model=route["model"],
            method=route["method"],
            path=request.path,
            headers=request.headers,
            body=json.loads(request.body),
        )
        if len(self.seen.requests) < KEEP:
            self.seen.requests.append(
                {"at": time.time(), "path": asked.path, "headers": asked.headers, "body": asked.body}
            )
        self.seen.now += 1
        self.seen.most_at_once = max(self.seen.most_at_once, self.seen.now)
        try:
            return await self._model(asked)
        finally:
            self.seen.now -= 1

    async def _model(self, asked: ModelRequest) -> wire.HttpResponse:
        if self.limit.exceeded():
            self.seen.faults["rate"] += 1
            return wire.json_response(error_body(429, "Resource has been exhausted (rate)."), 429)
        if self.latency:
            await asyncio.sleep(self.latency)
        await self.hold(asked)
        fault = next((fault for fault in self.faults if fault.strikes(asked)), None)
        if fault:
            self.seen.faults[fault.kind] += 1
            return await self._faulty(fault, asked)
        try:
            reply = self.answer(asked)
        except LookupError as nothing:
            self.seen.unexpected.append(str(nothing))
            return wire.json_response(error_body(400, str(nothing)), 400)
        self.seen.answered += 1
        return _streamed(asked, reply) if asked.method == "streamGenerateContent" else _whole(asked, reply)

    async def _faulty(self, fault: Fault, asked: ModelRequest) -> wire.HttpResponse:
        whole = response_body(asked, [{"text": "This answer is never whole."}], "STOP")
        match fault.kind:
            case "reset":
                raise wire.ResetConnection
            case "hang":
                raise wire.HangConnection
            case "truncated":
                body = json.dumps(whole).encode()
                return wire.HttpResponse(200, body, {"Content-Type": "application/json"}, cut=len(body) // 2)
            case "invalid_json":
                return wire.HttpResponse(200, json.dumps(whole).encode()[:-9], {"Content-Type": "application/json"})
            case "status":
                return _refused(fault)
            case _:
                return wire.json_response(_useless(fault, asked))

    def _token(self) -> wire.HttpResponse:
        self.seen.tokens += 1
        if self.token_status != 200:
            said = {"error": "invalid_grant", "error_description": "Token has been expired or revoked."}
            return wire.json_response(said, self.token_status)
        token = f"ya29.local-token-{self.seen.tokens}"
        return wire.json_response({"access_token": token, "expires_in": 3600, "token_type": "Bearer"})

    def _control(self, request: wire.HttpRequest) -> wire.HttpResponse:
        if request.path == "/_control/settings":
            settings = json.loads(request.body)
            self.latency = settings.get("latency", self.latency)
            if "faults" in settings:
                self.faults = [Fault(**fault) for fault in settings["faults"]]
            if "per_second" in settings:
                self.limit = RateLimit(settings["per_second"])
        elif request.path == "/_control/reset":
            self.seen = Seen(now=self.seen.now)
        elif request.path != "/_control/seen":
            return wire.json_response(error_body(404, request.path), 404)
        return wire.json_response(vars(self.seen))


def _useless(fault: Fault, asked: ModelRequest) -> Any:
    """Answers that are whole as HTTP and no use."""
    whole = response_body(asked, [{"text": "This answer is never whole."}], "STOP")
    match fault.kind:
        case "empty_candidates":
            said: Any = {**whole, "candidates": []}
        case "blocked_prompt":
            said = {"usageMetadata": whole["usageMetadata"], "promptFeedback": {"blockReason": "SAFETY"}}
        case "blocked":
            said = response_body(asked, [], "SAFETY")
        case "max_tokens":
            said = response_body(asked, [{"text": '{"reasoning": "The answer na'}], "MAX_TOKENS")
        case "only_thoughts":
            said = response_body(asked, Reply(thought="I think so.").parts(), "STOP")
        case "wrong_schema":
            said = response_body(asked, [{"text": '{"colour": "blue", "verdict": "perhaps"}'}], "STOP")
        case "not_json":
            said = response_body(asked, [{"text": "I would say that this is right."}], "STOP")
        case _:
            said = ["no", {"answer": "of", "a": "model"}]
    return said


def _refused(fault: Fault) -> wire.HttpResponse:
    if fault.body is not None:
        headers = {"Content-Type": fault.content_type, **fault.headers()}
        return wire.HttpResponse(fault.code, fault.body.encode(), headers)
    body = error_body(fault.code, fault.message or f"Fault {fault.code}.", fault.details())
    return wire.json_response(body, fault.code, fault.headers())


def _whole(asked: ModelRequest, reply: Reply) -> wire.HttpResponse:
    return wire.json_response(response_body(asked, reply.parts(), reply.finish_reason))


def _streamed(asked: ModelRequest, reply: Reply) -> wire.HttpResponse:
    """Server-sent events: the text a few words at a time, calls and the finish reason in the last one."""
    pieces = [[{"text": text}] for text in re.findall(rf"(?:\S+\s*){{1,{STREAMED_WORDS}}}", reply.text)]
    pieces = [*pieces[:-1], [*(pieces[-1] if pieces else []), *Reply(calls=reply.calls).parts()]]
    bodies = [response_body(asked, piece, None) for piece in pieces[:-1]]
    bodies.append(response_body(asked, pieces[-1], reply.finish_reason))
    events = tuple(b"data: " + json.dumps(body).encode() + b"\r\n\r\n" for body in bodies)
    return wire.HttpResponse(200, headers={"Content-Type": "text/event-stream"}, chunks=events)
