"""A stand-in for a language model, made of rules: the example then runs offline, free, and the same each time.

It sees exactly what a model would see (instruction, tool declarations, conversation) and obeys the instruction as
far as its rules go, so a changed instruction or tool changes what the agent does. What it understands: ``reading.py``.
"""

from collections.abc import AsyncGenerator, Iterable
from typing import Any

from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.genai import types

from . import reading, wording
from .reading import Orders, Request, Step


class RuleBasedDiceModel(BaseLlm):
    """Rule-based and deterministic; no language model. Set DICE_MODEL to use a real one instead.

    The usage it reports counts words, there being no tokens.
    """

    model: str = "rule-based-dice-model"

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,
    ) -> AsyncGenerator[LlmResponse, None]:
        instruction = _text_of(llm_request.config.system_instruction)
        orders = reading.read_orders(instruction, _declared_tools(llm_request))
        asked = reading.read_request(reading.last_user_text(llm_request.contents), orders)
        parts = _next_parts(asked, orders, llm_request.contents)
        words_in = len(instruction.split()) + sum(len(_words(content)) for content in llm_request.contents)
        words_out = len(_words(types.Content(parts=parts)))
        yield LlmResponse(
            content=types.Content(role="model", parts=parts),
            usage_metadata=types.GenerateContentResponseUsageMetadata(
                prompt_token_count=words_in,
                candidates_token_count=words_out,
                total_token_count=words_in + words_out,
            ),
        )


def _next_parts(asked: Request, orders: Orders, contents: list[types.Content]) -> list[types.Part]:
    """The next move of the turn: roll, then check, then answer."""
    if asked.declined:
        return [types.Part(text=wording.decline(asked.declined))]
    steps = reading.steps_of_turn(contents)
    rolls = [step for step in steps if step.tool == orders.roll_tool]
    checks = [step for step in steps if step.tool == orders.prime_tool]
    if asked.dice and orders.roll_tool and not rolls:
        return [_call(orders.roll_tool, {orders.roll_argument: sides}) for sides in asked.dice]
    numbers = _numbers_to_check(asked, rolls, contents)
    if numbers and orders.prime_tool and not checks:
        lists = [numbers] if orders.one_list else [[number] for number in numbers]
        return [_call(orders.prime_tool, {orders.prime_argument: some}) for some in lists]
    return [types.Part(text=wording.answer(asked, rolls, checks, numbers))]


def _numbers_to_check(asked: Request, rolls: list[Step], contents: list[types.Content]) -> list[int]:
    if not asked.primes:
        return []
    if asked.numbers:
        return list(asked.numbers)
    return reading.results_of(rolls) if asked.dice else reading.last_results(contents)


def _call(tool: str, arguments: dict[str, Any]) -> types.Part:
    return types.Part(function_call=types.FunctionCall(name=tool, args=arguments))


def _declared_tools(request: LlmRequest) -> dict[str, list[str]]:
    """Argument names by tool name; google-adk 1.x and 2.x declare them in different fields."""
    declared: dict[str, list[str]] = {}
    for tool in request.config.tools or []:
        for function in getattr(tool, "function_declarations", None) or []:
            schema = getattr(function, "parameters_json_schema", None) or {}
            typed = function.parameters.properties if function.parameters else None
            declared[function.name] = list(typed or schema.get("properties") or {})
    return declared


def _text_of(instruction: Any) -> str:
    if isinstance(instruction, str):
        return instruction
    parts: Iterable[types.Part] = getattr(instruction, "parts", None) or []
    return "\n".join(part.text for part in parts if part.text)


def _words(content: types.Content) -> list[str]:
    return [word for part in content.parts or [] for word in str(_said(part)).split()]


def _said(part: types.Part) -> Any:
    return part.text or part.function_call or part.function_response
