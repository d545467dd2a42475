"""What an agent's turns say about its calls of models: whose, and how many tokens, reported or estimated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_eval_action.llm.base import LlmUsage
from agent_eval_action.llm.tokens import tokens_of_bytes
from agent_eval_action.model.evalset import Invocation, InvocationEvents


@dataclass(frozen=True, slots=True)
class AgentCall:
    """One call an agent made of a model. ``model`` "" where its event does not say which.

    ``estimate`` is the usage with what was not reported put in from the length of what was said.
    """

    model: str
    usage: LlmUsage
    estimate: LlmUsage


def agent_calls(turns: Sequence[Invocation]) -> Iterator[AgentCall]:
    """The calls in these turns: events with usage or a model version.

    Thoughts are billed as output, the prompts of built-in tools as input.
    """
    said = 0
    for turn in turns:
        said += _size(turn.user_content)
        data = turn.intermediate_data
        for event in data.invocation_events if isinstance(data, InvocationEvents) else ():
            size = _size(event.content)
            if event.usage_metadata is not None or event.model_version is not None:
                usage = usage_of_report(event.usage_metadata or {})
                # the answer is not among the events: it is the turn's final response
                size = size or _size(turn.final_response)
                yield AgentCall(event.model_version or "", usage, _filled(usage, said, size))
            said += size


def usage_of_report(report: Mapping[str, Any]) -> LlmUsage:
    """Gemini's usage metadata, in either case; what is absent or no number is not reported."""
    sent = _sum(_count(report, "prompt_token_count"), _count(report, "tool_use_prompt_token_count"))
    out = _sum(_count(report, "candidates_token_count"), _count(report, "thoughts_token_count"))
    total = _count(report, "total_token_count")
    if out is None and sent is not None and total is not None:
        out = max(0, total - sent)
    return LlmUsage(sent, out, _count(report, "cached_content_token_count"))


def _filled(usage: LlmUsage, before: int, answer: int) -> LlmUsage:
    return LlmUsage(
        tokens_of_bytes(before) if usage.input_tokens is None else usage.input_tokens,
        tokens_of_bytes(answer) if usage.output_tokens is None else usage.output_tokens,
        usage.cached_input_tokens,
    )


def _size(content: Any) -> int:
    return 0 if content is None else len(content.model_dump_json(exclude_none=True).encode())


def _sum(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else one + other


def _count(report: Mapping[str, Any], name: str) -> int | None:
    head, *rest = name.split("_")
    value = report.get(name, report.get(head + "".join(word.capitalize() for word in rest)))
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
