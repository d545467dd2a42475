"""What the model is asked and what it answers, in OpenAI's JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class ChatRequest:
    """One request to a model. ``number`` counts from 1 in the order of arrival, ``candidate`` from 0 in each."""

    number: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    candidate: int = 0

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self.body.get("model"))

    @cached_property
    def instruction(self) -> str:
        """The system message's text."""
        return "\n".join(m["content"] for m in self.body["messages"] if m["role"] in ("system", "developer"))

    @cached_property
    def user_text(self) -> str:
        """The newest user message."""
        return next((m["content"] for m in reversed(self.body["messages"]) if m["role"] == "user"), "")

    @property
    def response_format(self) -> str:
        """Its type; "" for none."""
        return str((self.body.get("response_format") or {}).get("type", ""))


@dataclass(frozen=True)
class ChatReply:
    """What the model says. ``calls``: tools by name with their arguments."""

    text: str = ""
    finish_reason: str = "stop"
    refusal: str | None = None
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()


Answer = Callable[[ChatRequest], ChatReply]


def completion(request: ChatRequest, *replies: ChatReply) -> dict[str, Any]:
    """A chat.completion. Tokens are counted as words; a tenth of the prompt is said to have come from a cache."""
    prompt, out = len(json.dumps(request.body["messages"]).split()), sum(len(reply.text.split()) for reply in replies)
    return {
        "id": f"chatcmpl-{request.number}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": f"{request.model}-2026-01-01",
        "choices": [_choice(request, index, reply) for index, reply in enumerate(replies)],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": out,
            "total_tokens": prompt + out,
            "prompt_tokens_details": {"cached_tokens": prompt // 10},
        },
    }


def _choice(request: ChatRequest, index: int, reply: ChatReply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None, "refusal": reply.refusal}
    if reply.calls:
        message["tool_calls"] = [
            {
                "id": f"call_{request.number}_{at}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for at, (name, arguments) in enumerate(reply.calls)
        ]
    finish = "tool_calls" if reply.calls else reply.finish_reason
    return {"index": index, "message": message, "finish_reason": finish, "logprobs": None}


def error_body(code: int, message: str, kind: str = "", param: str | None = None) -> dict[str, Any]:
    """OpenAI's error envelope."""
    names = {400: "invalid_request_error", 401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
    name = kind or names.get(code, "server_error")
    return {"error": {"message": message, "type": name, "param": param, "code": name}}
