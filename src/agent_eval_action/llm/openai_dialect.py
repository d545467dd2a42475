"""How a request is said on OpenAI's wire, where servers differ, and how an answer's text is read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from agent_eval_action.llm.base import LlmRequest
from agent_eval_action.llm.text import sendable, sendable_json

# Google's name of an option, OpenAI's, and what it must be.
_OPTIONS: Final[dict[str, tuple[str, tuple[type, ...]]]] = {
    "temperature": ("temperature", (int, float)),
    "top_p": ("top_p", (int, float)),
    "max_output_tokens": ("", (int,)),  # its name is the dialect's
    "seed": ("seed", (int,)),
    "stop_sequences": ("stop", (list, tuple)),
    "presence_penalty": ("presence_penalty", (int, float)),
    "frequency_penalty": ("frequency_penalty", (int, float)),
    "thinking_config": ("reasoning_effort", (dict,)),
}
_EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh")
_FORM_NAMES: Final = re.compile(r"response[_ ]format|json[_ ]schema|json[_ ]object|structured[_ ]output", re.IGNORECASE)
_LENGTH_NAMES: Final = re.compile(r"\bmax_(?:completion_)?tokens\b")
_BAD_REQUESTS: Final = frozenset({400, 404, 415, 422, 501})
_THOUGHT: Final = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
_FENCED: Final = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", re.DOTALL | re.IGNORECASE)

Part = Literal["form", "length", ""]


class Form(Enum):
    """How a server is asked for JSON, from the strictest."""

    SCHEMA = "json_schema"
    OBJECT = "json_object"
    PROMPT = "prompt"


@dataclass(frozen=True)
class Dialect:
    """What one server understands; ``length`` is its name for the answer's largest length."""

    form: Form = Form.SCHEMA
    length: str = "max_tokens"

    @classmethod
    def of(cls, base_url: str) -> Dialect:
        """What is tried first: OpenAI's reasoning models know only the newer name, others mostly the older."""
        host = urlsplit(base_url).hostname or ""
        newer = host.endswith(("openai.com", "openai.azure.com"))
        return cls(length="max_completion_tokens" if newer else "max_tokens")

    def without(self, part: Part, request: LlmRequest) -> Dialect | None:
        """The next to try where ``part`` was refused; None where there is none, or it was not asked for."""
        if part == "form" and request.schema is not None:
            weaker = {Form.SCHEMA: Form.OBJECT, Form.OBJECT: Form.PROMPT}.get(self.form)
            return replace(self, form=weaker) if weaker else None
        if part == "length" and "max_output_tokens" in _named(request.options):
            other = "max_completion_tokens" if self.length == "max_tokens" else "max_tokens"
            return replace(self, length=other)
        return None


def check_options(options: Mapping[str, Any]) -> str:
    """What is wrong with options in Google's names, in one sentence; "" if nothing."""
    for name, value in _named(options).items():
        if name not in _OPTIONS:
            return f"the option `{name}` does not exist on OpenAI's wire: known are {', '.join(_OPTIONS)}"
        kinds = _OPTIONS[name][1]
        if not isinstance(value, kinds) or isinstance(value, bool):
            return f"the option `{name}` must be {_kind(kinds)}"
    effort = _named(options).get("thinking_config")
    if effort is not None and _effort(effort) not in _EFFORTS:
        return "of `thinking_config` OpenAI's wire knows only thinking_level: " + ", ".join(_EFFORTS)
    return ""


def body(name: str, request: LlmRequest, dialect: Dialect) -> dict[str, Any]:
    """The arguments of chat.completions.create."""
    system = sendable(request.system)
    asked: dict[str, Any] = {"model": name}
    if request.schema is not None:
        schema = sendable_json(request.schema)
        if dialect.form is Form.SCHEMA:
            answer = {"name": "answer", "strict": True, "schema": schema}
            asked["response_format"] = {"type": "json_schema", "json_schema": answer}
        else:
            system = f"{system}\n\n{_in_words(schema)}".strip()
        if dialect.form is Form.OBJECT:
            asked["response_format"] = {"type": "json_object"}
    turns = [{"role": _role(m.role), "content": sendable(m.text)} for m in request.messages]
    asked["messages"] = [{"role": "system", "content": system}, *turns] if system else turns
    for option, value in _named(request.options).items():
        if option == "thinking_config":
            asked["reasoning_effort"] = _effort(value)
        else:
            asked[_OPTIONS[option][0] or dialect.length] = sendable_json(value)
    return asked


def refused_part(status: int, said: object) -> Part:
    """Which part of a request a server's error names as one it does not know."""
    if status not in _BAD_REQUESTS:
        return ""
    words = json.dumps(said, default=str)[:4000]
    if _FORM_NAMES.search(words):
        return "form"
    return "length" if _LENGTH_NAMES.search(words) else ""


def answer_text(content: str) -> str:
    """The answer without what some servers leave in it: thoughts before it, a Markdown fence around it."""
    content = _THOUGHT.sub("", content, count=1) if content.lstrip().startswith("<think>") else content
    fenced = _FENCED.fullmatch(content)
    return (fenced[1] if fenced else content).strip()


def _in_words(schema: Any) -> str:
    return (
        "Answer with one JSON object and nothing else: no text around it, no Markdown. "
        f"It must fit this JSON Schema:\n{json.dumps(schema, ensure_ascii=False)}"
    )


def _named(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options in snake_case, those said to be nothing left out."""
    named = {re.sub(r"(?<=[a-z])[A-Z]", lambda m: f"_{m[0].lower()}", key): value for key, value in options.items()}
    return {key: value for key, value in named.items() if value is not None}


def _effort(thinking: Mapping[str, Any]) -> str:
    said = _named(thinking)
    return str(said.get("thinking_level", "")).lower() if set(said) == {"thinking_level"} else ""


def _role(role: str) -> str:
    return "assistant" if role == "model" else role


def _kind(kinds: tuple[type, ...]) -> str:
    words = {float: "a number", int: "a whole number", list: "a list", dict: "a mapping"}
    return next(words[kind] for kind in (float, int, list, dict) if kind in kinds)
