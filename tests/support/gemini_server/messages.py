"""What the model is asked and what it answers: views of Gemini's JSON, which stays as it came."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

MODEL_PATH = re.compile(
    r"^/(?P<version>v\w+)/(?:projects/(?P<project>[^/]+)/locations/(?P<location>[^/]+)/)?"
    r"(?:(?:publishers/google/)?models|endpoints)/(?P<model>[^/:]+):(?P<method>generateContent|streamGenerateContent)$"
)


@dataclass(frozen=True)
class ModelRequest:
    """One request to a model. ``number`` counts from 1 in the order of arrival, ``candidate`` from 0 in each."""

    number: int
    model: str
    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    candidate: int = 0

    @property
    def candidates(self) -> int:
        """How many are wanted."""
        return (self.body.get("generationConfig") or {}).get("candidateCount", 1)

    @cached_property
    def instruction(self) -> str:
        """The system instruction's text."""
        return "\n".join(_texts(self.body.get("systemInstruction") or {}))

    @cached_property
    def user_text(self) -> str:
        """The user's newest message that has text."""
        return " ".join(_texts(self._contents[self._start])) if self._contents else ""

    @cached_property
    def tool_responses(self) -> list[dict[str, Any]]:
        """``{name, response}`` of every tool answer since that message."""
        parts = (part for content in self._contents[self._start :] for part in content.get("parts") or [])
        return [part["functionResponse"] for part in parts if "functionResponse" in part]

    @property
    def _contents(self) -> list[dict[str, Any]]:
        return self.body.get("contents") or []

    @cached_property
    def _start(self) -> int:
        contents = self._contents
        users = (i for i, content in enumerate(contents) if content.get("role") != "model" and any(_texts(content)))
        return max(users, default=0)


@dataclass(frozen=True)
class Reply:
    """What the model says; with neither text, calls nor thought, a candidate without content."""

    text: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    thought: str = ""
    finish_reason: str = "STOP"

    def parts(self) -> list[dict[str, Any]]:
        """Gemini's parts, the thought first."""
        thought = [{"text": self.thought, "thought": True}] if self.thought else []
        text = [{"text": self.text}] if self.text else []
        return [*thought, *text, *({"functionCall": call} for call in self.calls)]


def response_body(request: ModelRequest, parts: list[dict[str, Any]], finish_reason: str | None) -> dict[str, Any]:
    """A GenerateContentResponse. Tokens are counted as words of the request and of the parts, thoughts apart."""
    candidate: dict[str, Any] = {"index": 0}
    if parts:
        candidate["content"] = {"role": "model", "parts": parts}
    if finish_reason:
        candidate["finishReason"] = finish_reason
    prompt = _words(request.body.get("contents")) + len(request.instruction.split())
    thoughts = _words([part for part in parts if part.get("thought")])
    out = _words([part for part in parts if not part.get("thought")])
    usage = {"promptTokenCount": prompt, "candidatesTokenCount": out, "totalTokenCount": prompt + thoughts + out}
    if thoughts:
        usage["thoughtsTokenCount"] = thoughts
    return {
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": request.model,
        "responseId": f"response-{request.number}",
    }


def error_body(code: int, message: str, details: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Google's error envelope."""
    status = {400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED"}
    default = "UNAVAILABLE" if code == 503 else "INTERNAL"
    error: dict[str, Any] = {"code": code, "message": message, "status": status.get(code, default)}
    if details:
        error["details"] = details
    return {"error": error}


def _texts(content: dict[str, Any]) -> Iterator[str]:
    return (part["text"] for part in content.get("parts") or [] if part.get("text"))


def _words(value: Any) -> int:
    return len(json.dumps(value).split()) if value else 0
