"""The server: one route, what it lacks, and answers in OpenAI's form."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from support.model_server import wire
from support.model_server.server import ModelServer
from support.openai_server.faults import Fault
from support.openai_server.messages import Answer, ChatReply, ChatRequest, completion, error_body

PATH = "/v1/chat/completions"
SENTENCES = {
    "json_schema": "This model does not support response_format json_schema.",
    "json_object": "response_format: unknown type json_object.",
    "max_tokens": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'.",
    "max_completion_tokens": "Unrecognized request argument supplied: max_completion_tokens",
    "n": "Unsupported value: 'n' does not support this value. Only the default (1) value is supported.",
}


@dataclass
class OpenAiServer(ModelServer):
    """A base URL adds ``/v1``. ``lacks``: of SENTENCES' keys, those it answers 400 to; ``ignores_n`` as Ollama does."""

    fault: ClassVar[type[Fault]] = Fault
    too_many: ClassVar[str] = "Rate limit reached."

    answer: Answer
    lacks: frozenset[str] = frozenset()
    ignores_n: bool = False

    def configure(self, settings: dict[str, Any]) -> None:
        super().configure(settings)
        self.lacks = frozenset(settings.get("lacks", self.lacks))

    def read(self, request: wire.HttpRequest, number: int) -> ChatRequest | None:
        if request.path != PATH:
            return None
        return ChatRequest(number, request.path, request.headers, json.loads(request.body))

    def error(self, code: int, message: str) -> Any:
        return error_body(code, message)

    def whole(self, asked: ChatRequest) -> Any:
        return completion(asked, ChatReply("This answer is never whole."))

    def refused(self, fault: Fault) -> wire.HttpResponse:
        body = error_body(fault.code, fault.message, fault.error, fault.param)
        return wire.json_response(body, fault.code, {"Content-Type": fault.content_type, **fault.headers()})

    def useless(self, fault: Fault, asked: ChatRequest) -> Any:
        if fault.kind == "empty_choices":
            return {**self.whole(asked), "choices": []}
        return completion(asked, _USELESS[fault.kind])

    def said(self, asked: ChatRequest) -> wire.HttpResponse:
        used = {asked.response_format, *asked.body}
        if lacking := next((name for name in SENTENCES if name in used and name in self.lacks), None):
            self.seen.faults[lacking] += 1
            return wire.json_response(error_body(400, SENTENCES[lacking]), 400)
        self.seen.answered += 1
        wanted = 1 if self.ignores_n else asked.body.get("n", 1)
        replies = (self.answer(replace(asked, candidate=number)) for number in range(wanted))
        return wire.json_response(completion(asked, *replies))


_USELESS = {
    "empty_text": ChatReply(),
    "refusal": ChatReply(refusal="I'm sorry, I can't help with that."),
    "content_filter": ChatReply(text='{"reas', finish_reason="content_filter"),
    "length": ChatReply(text='{"reasoning": "The answer na', finish_reason="length"),
    "wrong_schema": ChatReply(text='{"colour": "blue", "verdict": "perhaps"}'),
    "not_json": ChatReply(text="I would say that this is right."),
}
