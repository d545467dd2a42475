"""The server: Gemini's routes and its tokens, and answers whole or streamed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from support.gemini_server.faults import Fault
from support.gemini_server.messages import MODEL_PATH, ModelRequest, Reply, error_body, response_body
from support.gemini_server.script import Answer
from support.model_server import wire
from support.model_server.server import ModelServer

STREAMED_WORDS = 4


@dataclass
class GeminiServer(ModelServer):
    """``token_status``: what ``/token`` answers, where a credentials file of the tests points to."""

    fault: ClassVar[type[Fault]] = Fault
    too_many: ClassVar[str] = "Resource has been exhausted (rate)."

    answer: Answer
    token_status: int = 200

    async def handle(self, request: wire.HttpRequest) -> wire.HttpResponse:
        return self._token() if request.path == "/token" else await super().handle(request)

    def read(self, request: wire.HttpRequest, number: int) -> ModelRequest | None:
        route = MODEL_PATH.match(request.path)
        if not route:
            return None
        body = json.loads(request.body)
        return ModelRequest(number, route["model"], route["method"], request.path, request.headers, body)

    def error(self, code: int, message: str) -> Any:
        return error_body(code, message)

    def whole(self, asked: ModelRequest) -> Any:
        return response_body(asked, [{"text": "This answer is never whole."}], "STOP")

    def refused(self, fault: Fault) -> wire.HttpResponse:
        body = error_body(fault.code, fault.message or f"Fault {fault.code}.", fault.details())
        return wire.json_response(body, fault.code, fault.headers())

    def useless(self, fault: Fault, asked: ModelRequest) -> Any:
        if fault.kind == "empty_candidates":
            return {**self.whole(asked), "candidates": []}
        if fault.kind == "blocked_prompt":
            usage = self.whole(asked)["usageMetadata"]
            return {"usageMetadata": usage, "promptFeedback": {"blockReason": "SAFETY"}}
        reply = _USELESS[fault.kind]
        return response_body(asked, reply.parts(), reply.finish_reason)

    def said(self, asked: ModelRequest) -> wire.HttpResponse:
        if asked.candidates > 1 and asked.model.startswith(_ONE_CANDIDATE):
            self.seen.faults["candidates"] += 1
            return wire.json_response(error_body(400, "Multiple candidates is not enabled for this model"), 400)
        try:
            replies = [self.answer(replace(asked, candidate=number)) for number in range(asked.candidates)]
        except LookupError as nothing:
            self.seen.unexpected.append(str(nothing))
            return wire.json_response(error_body(400, str(nothing)), 400)
        self.seen.answered += 1
        return _streamed(asked, *replies) if asked.method == "streamGenerateContent" else _whole(asked, replies)

    def _token(self) -> wire.HttpResponse:
        self.seen.tokens += 1
        if self.token_status != 200:
            said = {"error": "invalid_grant", "error_description": "Token has been expired or revoked."}
            return wire.json_response(said, self.token_status)
        token = f"ya29.local-token-{self.seen.tokens}"
        return wire.json_response({"access_token": token, "expires_in": 3600, "token_type": "Bearer"})


_ONE_CANDIDATE = "gemini-3"  # googleapis/python-genai#1723
_USELESS = {
    "blocked": Reply(finish_reason="SAFETY"),
    "max_tokens": Reply('{"reasoning": "The answer na', finish_reason="MAX_TOKENS"),
    "only_thoughts": Reply(thought="I think so."),
    "wrong_schema": Reply('{"colour": "blue", "verdict": "perhaps"}'),
    "not_json": Reply("I would say that this is right."),
}


def _whole(asked: ModelRequest, replies: list[Reply]) -> wire.HttpResponse:
    """All candidates; their tokens are added up, the prompt's count once."""
    bodies = [response_body(asked, reply.parts(), reply.finish_reason) for reply in replies]
    usages = [body["usageMetadata"] for body in bodies]
    prompt = usages[0]["promptTokenCount"]
    usage = {name: sum(each.get(name, 0) for each in usages) for name in set().union(*usages)}
    usage |= {"promptTokenCount": prompt, "totalTokenCount": usage["totalTokenCount"] - prompt * (len(replies) - 1)}
    candidates = [{**body["candidates"][0], "index": index} for index, body in enumerate(bodies)]
    return wire.json_response({**bodies[0], "candidates": candidates, "usageMetadata": usage})


def _streamed(asked: ModelRequest, reply: Reply) -> wire.HttpResponse:
    """Server-sent events: the text a few words at a time, calls and the finish reason in the last one."""
    pieces = [[{"text": text}] for text in re.findall(rf"(?:\S+\s*){{1,{STREAMED_WORDS}}}", reply.text)]
    pieces = [*pieces[:-1], [*(pieces[-1] if pieces else []), *Reply(calls=reply.calls).parts()]]
    bodies = [response_body(asked, piece, None) for piece in pieces[:-1]]
    bodies.append(response_body(asked, pieces[-1], reply.finish_reason))
    events = tuple(b"data: " + json.dumps(body).encode() + b"\r\n\r\n" for body in bodies)
    return wire.HttpResponse(200, headers={"Content-Type": "text/event-stream"}, chunks=events)
