"""The server: one route, latency, faults, what it lacks, and what it saw. Control is under ``/_control``."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from support.gemini_server import wire
from support.gemini_server.faults import RateLimit
from support.openai_server.faults import Fault
from support.openai_server.messages import Answer, ChatReply, ChatRequest, completion, error_body

KEEP = 5000
PATH = "/v1/chat/completions"
SENTENCES = {
    "json_schema": "This model does not support response_format json_schema.",
    "json_object": "response_format: unknown type json_object.",
    "max_tokens": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'.",
    "max_completion_tokens": "Unrecognized request argument supplied: max_completion_tokens",
}


@dataclass
class Seen:
    """What arrived: requests, those answered, those made to fail, and what no route fits."""

    calls: int = 0
    answered: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    now: int = 0
    most_at_once: int = 0
    unexpected: list[str] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class OpenAiServer:
    """Answers as ``answer`` says. ``lacks``: of SENTENCES' keys, those it answers 400 to."""

    answer: Answer
    latency: float = 0.0
    faults: list[Fault] = field(default_factory=list)
    limit: RateLimit = field(default_factory=RateLimit)
    lacks: frozenset[str] = frozenset()
    seen: Seen = field(default_factory=Seen)
    url: str = ""

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> tuple[asyncio.Server, str]:
        """Listen; returns the server and its URL, to which a base URL adds ``/v1``."""
        server = await wire.serve(self.handle, host, port)
        return server, f"http://{host}:{server.sockets[0].getsockname()[1]}"

    async def handle(self, request: wire.HttpRequest) -> wire.HttpResponse:
        """Route one request."""
        if request.path.startswith("/_control/"):
            return self._control(request)
        if request.verb != "POST" or request.path != PATH:
            self.seen.unexpected.append(f"{request.verb} {request.path}")
            return wire.json_response(error_body(404, f"no such method: {request.verb} {request.path}"), 404)
        self.seen.calls += 1
        asked = ChatRequest(self.seen.calls, request.path, request.headers, json.loads(request.body))
        if len(self.seen.requests) < KEEP:
            self.seen.requests.append({"at": time.time(), "headers": asked.headers, "body": asked.body})
        self.seen.now += 1
        self.seen.most_at_once = max(self.seen.most_at_once, self.seen.now)
        try:
            return await self._model(asked)
        finally:
            self.seen.now -= 1

    async def _model(self, asked: ChatRequest) -> wire.HttpResponse:
        if self.limit.exceeded():
            self.seen.faults["rate"] += 1
            return wire.json_response(error_body(429, "Rate limit reached."), 429)
        if self.latency:
            await asyncio.sleep(self.latency)
        fault = next((fault for fault in self.faults if fault.strikes(asked)), None)
        if fault:
            self.seen.faults[fault.kind] += 1
            return _faulty(fault, asked)
        used = {asked.response_format, *asked.body}
        if lacking := next((name for name in SENTENCES if name in used and name in self.lacks), None):
            self.seen.faults[lacking] += 1
            return wire.json_response(error_body(400, SENTENCES[lacking]), 400)
        self.seen.answered += 1
        return wire.json_response(completion(asked, self.answer(asked)))

    def _control(self, request: wire.HttpRequest) -> wire.HttpResponse:
        if request.path == "/_control/settings":
            settings = json.loads(request.body)
            self.latency = settings.get("latency", self.latency)
            self.lacks = frozenset(settings.get("lacks", self.lacks))
            if "faults" in settings:
                self.faults = [Fault(**fault) for fault in settings["faults"]]
            if "per_second" in settings:
                self.limit = RateLimit(settings["per_second"])
        elif request.path == "/_control/reset":
            self.seen = Seen(now=self.seen.now)
        elif request.path != "/_control/seen":
            return wire.json_response(error_body(404, request.path), 404)
        return wire.json_response(vars(self.seen))


def _faulty(fault: Fault, asked: ChatRequest) -> wire.HttpResponse:
    whole = completion(asked, ChatReply("This answer is never whole."))
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
        case "other_json":
            return wire.json_response(["no", {"answer": "of", "a": "model"}])
        case "empty_choices":
            return wire.json_response({**whole, "choices": []})
        case "status":
            body = fault.body or json.dumps(error_body(fault.code, fault.message, fault.error, fault.param))
            return wire.HttpResponse(fault.code, body.encode(), {"Content-Type": fault.content_type, **fault.headers()})
        case _:
            return wire.json_response(completion(asked, _USELESS[fault.kind]))


_USELESS = {
    "empty_text": ChatReply(),
    "refusal": ChatReply(refusal="I'm sorry, I can't help with that."),
    "content_filter": ChatReply(text='{"reas', finish_reason="content_filter"),
    "length": ChatReply(text='{"reasoning": "The answer na', finish_reason="length"),
    "wrong_schema": ChatReply(text='{"colour": "blue", "verdict": "perhaps"}'),
    "not_json": ChatReply(text="I would say that this is right."),
}
