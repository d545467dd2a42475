"""Requests to models and their replies, prompt files, and text cleaned for models and for people."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final, Literal, Protocol

from pydantic.alias_generators import to_camel

from agent_eval_action.config.models import TRY_SECONDS
from agent_eval_action.diagnostics.suggestions import clip

# Servers may echo what they were sent: keys (Google's, OpenAI's and similar), tokens, headers.
_SECRET: Final = re.compile(
    r"AIza[\w-]{20,}|AQ\.[\w-]{20,}|ya29\.[\w.-]+|\bsk-[\w*.-]{8,}|\beyJ[\w-]{8,}(?:\.[\w-]*){0,2}|\bgh[opsu]_\w{20,}"
    r"|(?i:bearer\s+)\S+|(?i:(?:x-goog-)?api[-_ ]?key\b[\"']?\s*[:=]\s*[\"']?)[^\s\"',;}]{6,}"
    r"|(?<=[?&])(?i:key|access_token)=[^\s&\"']+"
)
_ESCAPES: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_SHORTEST_SECRET: Final = 6
_READ: Final = 4000


def sendable(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates by U+FFFD: UTF-8 cannot encode them, and clients fail."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def sendable_json(value: Any) -> Any:
    """Apply ``sendable`` to all strings in a JSON value."""
    if isinstance(value, str):
        return sendable(value)
    if isinstance(value, dict):
        return {sendable(str(key)): sendable_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sendable_json(item) for item in value]
    return value


def quoted(text: object, secrets: Iterable[str] = (), limit: int = 300) -> str:
    """A third party's text as one printable line without secrets and escapes, at most ``limit`` characters."""
    line = text if isinstance(text, str) else ""
    # Cut first: a body may have megabytes. A secret that this cuts lies past ``limit`` anyway.
    line = sendable(line[:_READ])
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            line = line.replace(secret, "***")
    line = "".join(letter if letter.isprintable() else " " for letter in _ESCAPES.sub("", line))
    line = " ".join(_SECRET.sub("***", line).split())
    return clip(line, limit)


def read_prompt(package: str, name: str) -> tuple[str, str]:
    """Return version and text of ``<name>.md``. Its first line is ``version: N``; N changes with the text.

    Raises ValueError if the first line is not a version.
    """
    first, _, text = files(package).joinpath(f"{name}.md").read_text("utf-8").partition("\n")
    label, _, version = first.partition(":")
    if label != "version" or not version.strip().isdigit():
        raise ValueError(f"{name}.md does not begin with its version")
    return version.strip(), text.strip()


RESERVED_OPTIONS: Final = {
    "system_instruction": "the judge's own prompt says it",
    "response_schema": "the judge's own question says it",
    "response_json_schema": "the judge's own question says it",
    "response_mime_type": "the judge's own question says it",
    "candidate_count": "num_samples says how often a judge is asked",
    # base_url and headers would let a pull request's criteria file send our key anywhere
    "http_options": "retries, times and addresses are agent-eval's own (llm.*, GOOGLE_GEMINI_BASE_URL)",
    "should_return_http_response": "an answer has to be read",
    "tools": "a judge has no tools",
    "tool_config": "a judge has no tools",
    "automatic_function_calling": "a judge has no tools",
    "continuation_token": "a judge is asked once",
    "automatic_continuation": "a judge is asked once",
}
"""Fields of google-genai's GenerateContentConfig that must not be set for a judge, and why."""


@dataclass(frozen=True)
class ProviderConfig:
    """Settings of providers. ``environ``: the variables that judges may use (``credentials.judge_environ``).

    ``timeout``: seconds of one try. ``openai_base_url`` (``llm.openai_base_url``) wins over the environment's.
    """

    environ: Mapping[str, str] = field(repr=False)  # keys: a repr must not show them
    timeout: float = TRY_SECONDS
    openai_base_url: str = ""

    def value(self, *names: str) -> str:
        """The first of these variables that is not empty; CI passes missing secrets as empty variables."""
        return next((value for name in names if (value := self.environ.get(name, "").strip())), "")


@dataclass(frozen=True, slots=True)
class Message:
    """A message of the conversation with the model."""

    role: Literal["user", "model"]
    text: str


@dataclass(frozen=True, slots=True)
class LlmRequest:
    """A request to a model.

    ``model`` is as configured (``openai/gpt-4.1-mini``). ``schema``: the JSON Schema of the answer, if that is to be
    JSON. ``options`` are the user's (``judge_model_config``), named like fields of google-genai's
    GenerateContentConfig, in snake_case. ``purpose`` is the criterion or ``user_simulator``; usage and cost are
    reported by it. ``sample`` and ``repeat`` distinguish equal questions. ``candidates``: the number of answers wanted;
    a provider may return fewer.
    """

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    schema: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    purpose: str = ""
    prompt_version: str = ""
    sample: int = 0
    repeat: int = 0
    candidates: int = 1
    usable: Callable[[str], bool] = field(default=bool, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class LlmUsage:
    """Tokens of a call as reported; None: not reported. ``input_tokens`` includes ``cached_input_tokens``."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None

    @property
    def total(self) -> int | None:
        """Input and output tokens; None if either was not reported."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens

    def or_else(self, other: LlmUsage) -> LlmUsage:
        """Fill missing counts from ``other``."""
        return LlmUsage(
            other.input_tokens if self.input_tokens is None else self.input_tokens,
            other.output_tokens if self.output_tokens is None else self.output_tokens,
            self.cached_input_tokens,
        )

    def __add__(self, other: LlmUsage) -> LlmUsage:
        """Add counts: unreported ones stay unreported, except that cached tokens then count as 0."""
        inputs, outputs = (self.input_tokens, other.input_tokens), (self.output_tokens, other.output_tokens)
        return LlmUsage(
            None if None in inputs else sum(filter(None, inputs)),
            None if None in outputs else sum(filter(None, outputs)),
            (self.cached_input_tokens or 0) + (other.cached_input_tokens or 0),
        )


def token_count(report: Mapping[str, Any], name: str) -> int | None:
    """A count in Gemini's usage metadata (snake_case or camelCase); None if absent or not a whole number."""
    value = report.get(to_camel(name)) if report.get(name) is None else report[name]
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 and value == value // 1:
        return int(value)
    return None


def reported_usage(report: Mapping[str, Any]) -> LlmUsage:
    """Read Gemini's usage metadata. Thoughts are billed as output, built-in tools' prompts as input."""

    def total(*names: str) -> int | None:
        counts = [count for name in names if (count := token_count(report, name)) is not None]
        return sum(counts) if counts else None

    sent = total("prompt_token_count", "tool_use_prompt_token_count")
    out = total("candidates_token_count", "thoughts_token_count")
    both = total("total_token_count")
    if out is None and sent is not None and both is not None:
        out = max(0, both - sent)
    return LlmUsage(sent, out, total("cached_content_token_count"))


@dataclass(frozen=True, slots=True)
class LlmReply:
    """A model's answer; ``more`` holds the texts of further candidates.

    ``usage`` covers all candidates and tries; ``cached``: the answer is from the cache.
    """

    text: str
    usage: LlmUsage = LlmUsage()
    cached: bool = False
    more: tuple[str, ...] = ()


class LlmErrorKind(enum.StrEnum):
    """Why there is no reply."""

    RATE_LIMITED = "rate_limited"  # 429, and the deadline passed
    UNAVAILABLE = "unavailable"  # 5xx, or the connection failed
    TIMEOUT = "timeout"  # no answer in time
    EMPTY = "empty"  # an answer without text, or a truncated one
    BLOCKED = "blocked"  # the provider's safety filter
    REFUSED = "refused"  # 4xx: the request, the model's name or the credentials are wrong
    BUDGET = "budget"  # the run may not spend more


@dataclass(frozen=True, slots=True)
class LlmError:
    """Why there is no reply, in a sentence without secrets. ``retry_after``: seconds that the server asks to wait.

    ``seconds``: duration of the call, without waiting in the queue. ``usage``: tokens it cost anyway (a truncated
    answer). After retries ``seconds`` and ``usage`` cover all tries and the waits between them.
    """

    kind: LlmErrorKind
    message: str
    retry_after: float | None = None
    status: int | None = None
    seconds: float = 0.0
    usage: LlmUsage | None = None


class Llm(Protocol):
    """A client for models; takes any number of concurrent requests."""

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        """Return a reply or an error. Raises only CancelledError."""
        ...
