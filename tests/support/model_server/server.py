"""The server apart from its wire: counts, latency, faults, a rate, and control by HTTP under ``/_control``."""

from __future__ import annotations

import abc
import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from support.model_server import wire
from support.model_server.faults import RateLimit, WireFault

KEEP = 5000


async def at_once(asked: Any) -> None:
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
class ModelServer(abc.ABC):
    """Answers as ``answer`` says, each after ``latency`` seconds; ``hold`` is awaited first and can put one off.

    ``too_many``: what a 429 of ``limit`` says.
    """

    fault: ClassVar[type[WireFault]]
    too_many: ClassVar[str]

    answer: Callable[[Any], Any]
    hold: Callable[[Any], Awaitable[None]] = at_once
    latency: float = 0.0
    faults: list[Any] = field(default_factory=list)
    limit: RateLimit = field(default_factory=RateLimit)
    seen: Seen = field(default_factory=Seen)
    url: str = ""

    @abc.abstractmethod
    def read(self, request: wire.HttpRequest, number: int) -> Any:
        """The request to a model; None for a path that is none."""

    @abc.abstractmethod
    def error(self, code: int, message: str) -> Any:
        """The wire's error envelope."""

    @abc.abstractmethod
    def whole(self, asked: Any) -> Any:
        """A good body, to be broken."""

    @abc.abstractmethod
    def refused(self, fault: Any) -> wire.HttpResponse:
        """The response of a *status* fault without a body of its own."""

    @abc.abstractmethod
    def useless(self, fault: Any, asked: Any) -> Any:
        """The body of a fault that is whole as HTTP and no use."""

    @abc.abstractmethod
    def said(self, asked: Any) -> wire.HttpResponse:
        """The response that ``answer`` makes."""

    def configure(self, settings: dict[str, Any]) -> None:
        """Settings that came from outside while the server runs."""
        self.latency = settings.get("latency", self.latency)
        if "faults" in settings:
            self.faults = [self.fault(**fault) for fault in settings["faults"]]
        if "per_second" in settings:
            self.limit = RateLimit(settings["per_second"])

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> tuple[asyncio.Server, str]:
        """Listen; returns the server and its URL."""
        server = await wire.serve(self.handle, host, port)
        return server, f"http://{host}:{server.sockets[0].getsockname()[1]}"

    async def handle(self, request: wire.HttpRequest) -> wire.HttpResponse:
        """Route one request."""
        if request.path.startswith("/_control/"):
            return self._control(request)
        asked = self.read(request, self.seen.calls + 1) if request.verb == "POST" else None
        if asked is None:
            self.seen.unexpected.append(f"{request.verb} {request.path}")
            return wire.json_response(self.error(404, f"no such method: {request.verb} {request.path}"), 404)
        self.seen.calls += 1
        if len(self.seen.requests) < KEEP:
            self.seen.requests.append(
                {"at": time.time(), "path": request.path, "headers": request.headers, "body": asked.body}
            )
        self.seen.now += 1
        self.seen.most_at_once = max(self.seen.most_at_once, self.seen.now)
        try:
            return await self._model(asked)
        finally:
            self.seen.now -= 1

    async def _model(self, asked: Any) -> wire.HttpResponse:
        if self.limit.exceeded():
            self.seen.faults["rate"] += 1
            return wire.json_response(self.error(429, self.too_many), 429)
        if self.latency:
            await asyncio.sleep(self.latency)
        await self.hold(asked)
        fault = next((fault for fault in self.faults if fault.strikes(asked)), None)
        if fault:
            self.seen.faults[fault.kind] += 1
            return self._faulty(fault, asked)
        return self.said(asked)

    def _faulty(self, fault: Any, asked: Any) -> wire.HttpResponse:
        said = {"Content-Type": "application/json"}
        body = json.dumps(self.whole(asked)).encode()
        match fault.kind:
            case "reset":
                raise wire.ResetConnection
            case "hang":
                raise wire.HangConnection
            case "truncated":
                return wire.HttpResponse(200, body, said, cut=len(body) // 2)
            case "invalid_json":
                return wire.HttpResponse(200, body[:-9], said)
            case "other_json":
                return wire.json_response(["no", {"answer": "of", "a": "model"}])
            case "status" if fault.body is not None:
                headers = {"Content-Type": fault.content_type, **fault.headers()}
                return wire.HttpResponse(fault.code, fault.body.encode(), headers)
            case "status":
                return self.refused(fault)
            case _:
                return wire.json_response(self.useless(fault, asked))

    def _control(self, request: wire.HttpRequest) -> wire.HttpResponse:
        if request.path == "/_control/settings":
            self.configure(json.loads(request.body))
        elif request.path == "/_control/reset":
            self.seen = Seen(now=self.seen.now)
        elif request.path != "/_control/seen":
            return wire.json_response(self.error(404, request.path), 404)
        return wire.json_response(vars(self.seen))
