"""What is asked of a model and what comes back, prompt files, and text on its way to a model or to a person."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final, Literal, Protocol

from agent_eval_action.config.models import TRY_SECONDS
from agent_eval_action.diagnostics.suggestions import clip

# What a server says may repeat what it was sent: keys of Google, of OpenAI and its like, tokens, headers.
_SECRET: Final = re.compile(
    r"AIza[\w-]{20,}|AQ\.[\w-]{20,}|ya29\.[\w.-]+|\bsk-[\w*.-]{8,}|\beyJ[\w-]{8,}(?:\.[\w-]*){0,2}|\bgh[opsu]_\w{20,}"
    r"|(?i:bearer\s+)\S+|(?i:(?:x-goog-)?api[-_ ]?key\b[\"']?\s*[:=]\s*[\"']?)[^\s\"',;}]{6,}"
    r"|(?<=[?&])(?i:key|access_token)=[^\s&\"']+"
)
_ESCAPES: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_SHORTEST_SECRET: Final = 6
_READ: Final = 4000


def sendable(text: str) -> str:
    """The text with surrogate pairs joined and lone ones as U+FFFD: half a pair is no UTF-8, and clients fail on it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def sendable_json(value: Any) -> Any:
    """A JSON value whose strings are all ``sendable``."""
    if isinstance(value, str):
        return sendable(value)
    if isinstance(value, dict):
        return {sendable(str(key)): sendable_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sendable_json(item) for item in value]
    return value


def quoted(text: object, secrets: Iterable[str] = (), limit: int = 300) -> str:
    """Another party's text as one printable line: no secret, no escape sequence, at most ``limit`` characters."""
    line = text if isinstance(text, str) else ""
    # Bounded before anything else: a body may have megabytes. A secret cut by the bound is past ``limit`` anyway.
    line = sendable(line[:_READ])
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            line = line.replace(secret, "***")
    line = "".join(letter if letter.isprintable() else " " for letter in _ESCAPES.sub("", line))
    line = " ".join(_SECRET.sub("***", line).split())
    return clip(line, limit)


def read_prompt(package: str, name: str) -> tuple[str, str]:
    """Return the version and the text of ``<name>.md``, whose first line is ``version: N``: other words, another N.

    Raises ValueError where the first line is no version.
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
    # Its base_url and headers would send our key wherever a pull request's criteria file says.
    "http_options": "retries, times and addresses are agent-eval's own (llm.*, GOOGLE_GEMINI_BASE_URL)",
    "should_return_http_response": "an answer has to be read",
    "tools": "a judge has no tools",
    "tool_config": "a judge has no tools",
    "automatic_function_calling": "a judge has no tools",
    "continuation_token": "a judge is asked once",
    "automatic_continuation": "a judge is asked once",
}
"""Fields of google-genai's GenerateContentConfig that nobody may set for a judge, and why."""


@dataclass(frozen=True)
class ProviderConfig:
    """``environ``: the variables judges may use (``credentials.judge_environ``). ``timeout``: seconds of one try.

    ``openai_base_url`` is the configuration's (``llm.openai_base_url``) and wins over the environment's.
    """

    environ: Mapping[str, str] = field(repr=False)  # keys: a repr must not show them
    timeout: float = TRY_SECONDS
    openai_base_url: str = ""

    def value(self, *names: str) -> str:
        """The first of these variables that is set; a secret that is not given to a job arrives as an empty one."""
        return next((value for name in names if (value := self.environ.get(name, "").strip())), "")


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the conversation with the model."""

    role: Literal["user", "model"]
    text: str


@dataclass(frozen=True, slots=True)
class LlmRequest:
    """What a model is asked, and everything that tells this request from another.

    ``model`` is as configured (``openai/gpt-4.1-mini``). ``schema``: a JSON Schema that the answer, then JSON text,
    must have. ``options`` are the user's (``judge_model_config``), in the names of google-genai's
    GenerateContentConfig, snake_case. ``purpose`` is the criterion, or ``user_simulator``: what use and cost are
    reported under. ``sample`` and ``repeat`` tell equal questions apart. ``candidates``: how many answers are wanted;
    a provider may give fewer.
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


@dataclass(frozen=True, slots=True)
class LlmUsage:
    """Tokens of one call as reported; None: not reported, which is not zero. ``cached_input`` is inside ``input``."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None

    @property
    def total(self) -> int | None:
        """Input and output; None when either was not reported."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens

    def or_else(self, other: LlmUsage) -> LlmUsage:
        """A copy with missing counts taken from ``other``."""
        return LlmUsage(
            other.input_tokens if self.input_tokens is None else self.input_tokens,
            other.output_tokens if self.output_tokens is None else self.output_tokens,
            self.cached_input_tokens,
        )

    def __add__(self, other: LlmUsage) -> LlmUsage:
        """Missing counts stay unknown; missing cached tokens count as none."""
        inputs, outputs = (self.input_tokens, other.input_tokens), (self.output_tokens, other.output_tokens)
        return LlmUsage(
            None if None in inputs else sum(filter(None, inputs)),
            None if None in outputs else sum(filter(None, outputs)),
            (self.cached_input_tokens or 0) + (other.cached_input_tokens or 0),
        )


@dataclass(frozen=True, slots=True)
class LlmReply:
    """What the model answered, and ``more``: the texts of further candidates.

    ``usage`` is of all candidates and tries; ``cached``: it comes from the cache.
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
    EMPTY = "empty"  # an answer without text, or one that was cut
    BLOCKED = "blocked"  # the provider's safety filter
    REFUSED = "refused"  # 4xx: the request, the model's name or the credentials are wrong
    BUDGET = "budget"  # the run may not spend more


@dataclass(frozen=True, slots=True)
class LlmError:
    """Why there is no reply, in one sentence without secrets. ``retry_after`` in seconds, where the server said it.

    ``seconds`` the try took on the wire, without waiting for its turn. ``usage``: tokens it cost all the same (an
    answer that was cut). After retries ``seconds`` and ``usage`` are of all tries, waits included.
    """

    kind: LlmErrorKind
    message: str
    retry_after: float | None = None
    status: int | None = None
    seconds: float = 0.0
    usage: LlmUsage | None = None


class Llm(Protocol):
    """A model that can be asked. Any number of requests at once."""

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        """Return one reply. Raises only CancelledError."""
        ...
