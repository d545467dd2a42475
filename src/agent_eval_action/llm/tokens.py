"""How many tokens a request takes: as reported, or, before and without a report, from the length of its text."""

from __future__ import annotations

import json

from agent_eval_action.llm.base import LlmReply, LlmRequest, LlmUsage

_CHARACTERS = 4  # of a token of English text, says Google (ai.google.dev/gemini-api/docs/tokens)
_ANSWER = 400  # tokens of a judge's answer with its rationale
_THINKING = 800  # what a model that thinks adds to it, and bills as output


def tokens_of_bytes(count: int) -> int:
    """About how many tokens so many bytes of UTF-8 are: other scripts than Latin take more of both."""
    return -(-count // _CHARACTERS)


def _tokens(text: str) -> int:
    return tokens_of_bytes(len(text.encode("utf-8", "replace")))


def estimated_input(request: LlmRequest) -> int:
    """Tokens of what is sent."""
    texts = [request.system, *(message.text for message in request.messages)]
    if request.schema is not None:
        texts.append(json.dumps(request.schema))
    return sum(map(_tokens, texts))


def estimated_output(request: LlmRequest) -> int:
    """Tokens of an answer nobody has seen yet; the request's own bound where that is lower."""
    bound = request.options.get("max_output_tokens")
    likely = _ANSWER + _THINKING
    return min(likely, bound) if isinstance(bound, int) and not isinstance(bound, bool) else likely


def estimated_tokens(request: LlmRequest) -> int:
    """Both."""
    return estimated_input(request) + estimated_output(request)


def total_tokens(usage: LlmUsage) -> int | None:
    """Input and output as reported; None when either is missing."""
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    return usage.input_tokens + usage.output_tokens


def filled(usage: LlmUsage, request: LlmRequest, reply: LlmReply | None = None) -> LlmUsage:
    """The usage with what was not reported put in from the length of the texts."""
    if usage.input_tokens is not None and usage.output_tokens is not None:
        return usage
    said = estimated_output(request)
    if reply is not None:
        said = max(1, _tokens(reply.text))
    return LlmUsage(
        estimated_input(request) if usage.input_tokens is None else usage.input_tokens,
        said if usage.output_tokens is None else usage.output_tokens,
        usage.cached_input_tokens,
    )
