"""Google's models: the Gemini API by key, and Vertex AI by project, through google-genai."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from agent_eval_action.llm.base import LlmError, LlmReply, LlmRequest, LlmUsage
from agent_eval_action.llm.google_client import Address, address, new_client
from agent_eval_action.llm.google_clients import Clients
from agent_eval_action.llm.google_errors import from_exception, no_answer
from agent_eval_action.llm.setup import Setup
from agent_eval_action.llm.text import quoted, sendable, sendable_json
from agent_eval_action.source.naming import did_you_mean

if TYPE_CHECKING:
    from google.genai import Client
    from google.genai.types import GenerateContentConfig, GenerateContentResponse

# Options a user may not set, and why.
_OURS: Final = {
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


@dataclass
class GoogleProvider:
    """Each request one call: no retry of its own. Lives in one event loop."""

    setup: Setup
    _clients: Clients[Client] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._clients = Clients(partial(new_client, self.setup))

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> str:
        """What is wrong with these fields of GenerateContentConfig, in one sentence; "" if nothing."""
        if not options:
            return ""
        from google.genai.types import GenerateContentConfig  # noqa: PLC0415 - most of a second
        from pydantic import ValidationError  # noqa: PLC0415 - see above
        from pydantic.alias_generators import to_snake  # noqa: PLC0415 - see above

        for name in options:
            if why := _OURS.get(to_snake(name)):
                return f"`{name}` cannot be set for a judge: {why}"
            if to_snake(name) not in GenerateContentConfig.model_fields:
                hint = did_you_mean(name, GenerateContentConfig.model_fields)
                return f"unknown option `{name}` of a Google model{f': {hint}' if hint else ''}"
        try:
            GenerateContentConfig.model_validate(dict(options))
        except ValidationError as wrong:
            first = wrong.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(step) for step in first["loc"])
            return f"the option `{quoted(place, limit=80)}` of a Google model is wrong: {quoted(first['msg'])}"
        return ""

    async def warm_up(self, model: str) -> str:
        """Load the library and make the client while something else is waited for; what fails, in one sentence.

        On Vertex it finds missing credentials before anything is asked.
        """
        try:
            await self._clients.of(address(self.setup, model))
        except Exception as error:  # noqa: BLE001 - whatever the client raises is told as a sentence
            return self._failed(error, address(self.setup, model)).message
        return ""

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        """One call; never raises but when it is cancelled."""
        where = address(self.setup, request.model)
        started = time.monotonic()
        try:
            # Around everything, the renewal of a token included.
            async with asyncio.timeout(self.setup.timeout):
                client = await self._clients.of(where)
                started = time.monotonic()
                response = await client.aio.models.generate_content(
                    model=request.model, contents=_contents(request), config=_config(request)
                )
            said = _read(response)
        except Exception as error:  # noqa: BLE001 - errors of a part are values
            said = self._failed(error, where)
        return replace(said, seconds=time.monotonic() - started) if isinstance(said, LlmError) else said

    async def close(self) -> None:
        """Give the connections back."""
        await self._clients.close()

    def _failed(self, error: Exception, where: Address) -> LlmError:
        return from_exception(error, vertex=where.vertex, secrets=[where.key] if where.key else [])


def _contents(request: LlmRequest) -> list[Any]:
    from google.genai.types import Content, Part  # noqa: PLC0415 - loaded by now

    return [Content(role=m.role, parts=[Part(text=sendable(m.text))]) for m in request.messages]


def _config(request: LlmRequest) -> GenerateContentConfig:
    from google.genai.types import AutomaticFunctionCallingConfig, GenerateContentConfig  # noqa: PLC0415 - loaded by now

    asked: dict[str, Any] = sendable_json(dict(request.options))
    if request.system:
        asked["system_instruction"] = sendable(request.system)
    if request.schema is not None:
        asked["response_mime_type"] = "application/json"
        asked["response_json_schema"] = sendable_json(request.schema)
    return GenerateContentConfig(**asked, automatic_function_calling=AutomaticFunctionCallingConfig(disable=True))


def _read(response: GenerateContentResponse) -> LlmReply | LlmError:
    """The first candidate's text without its thoughts, if it is whole."""
    usage = _usage(response)
    feedback = response.prompt_feedback
    candidate = next(iter(response.candidates or ()), None)
    block = getattr(feedback, "block_reason", None)
    finish = str(getattr(candidate.finish_reason, "value", "") or "") if candidate else ""
    parts = (candidate.content.parts if candidate and candidate.content else None) or []
    text = "".join(part.text for part in parts if part.text and not part.thought)
    if not text or finish not in ("", "STOP", "FINISH_REASON_UNSPECIFIED"):
        return no_answer(finish, str(getattr(block, "value", "") or ""), usage)
    return LlmReply(sendable(text), usage, model_version=quoted(response.model_version, limit=100))


def _usage(response: GenerateContentResponse) -> LlmUsage:
    """Thoughts are paid for as output and reported apart from it."""
    said = response.usage_metadata
    if said is None:
        return LlmUsage()
    answer, thoughts = said.candidates_token_count, said.thoughts_token_count
    output = None if answer is None and thoughts is None else (answer or 0) + (thoughts or 0)
    return LlmUsage(said.prompt_token_count, output, said.cached_content_token_count)
