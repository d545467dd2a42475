"""The model of the example: no language model, but rules that obey the instruction. Deterministic, and needs no key."""

import re
from collections.abc import AsyncGenerator

from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.genai import types

WISHES = {"price": r"price|cost|fare|how much", "departure": r"train|leave|depart|when"}
COUNTS = {"two": 2, "three": 3, "four": 4}


class RuleBasedTripsModel(BaseLlm):
    """Calls the tool that a line of the instruction names for the traveller's wish, and reports what it returns."""

    model: str = "rule-based-trips-model"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        part = _next_part(str(llm_request.config.system_instruction), llm_request.contents)
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def _next_part(instruction: str, contents: list[types.Content]) -> types.Part:
    parts = [part for content in contents for part in content.parts or []]
    text = next(part.text for part in reversed(parts) if part.text).lower()
    cities = re.findall(r"\b(bern|basel|geneva|zurich)\b", text)
    wish = next((wish for wish, words in WISHES.items() if re.search(words, text)), None)
    if wish is None or len(cities) < 2:
        return types.Part(text="I help with trains: tell me from where to where.")
    origin, destination = cities[:2]
    line = next((line for line in instruction.splitlines() if f"a {wish}," in line), "")
    if (result := parts[-1].function_response) is not None:
        way = f"from {origin.title()} to {destination.title()}"
        travellers = next((count for word, count in COUNTS.items() if word in text), 1) if "together" in line else 1
        return types.Part(text=_report(wish, way, travellers, result.response))
    if tool := re.search(r"call (\w+)", line):
        call = types.FunctionCall(name=tool[1], args={"origin": origin, "destination": destination})
        return types.Part(function_call=call)
    return types.Part(text="I cannot look that up.")


def _report(wish: str, way: str, travellers: int, result: dict) -> str:
    if wish == "departure":
        times = result["departures"]
        return f"Trains {way} leave at {' and '.join(times)}." if times else f"No train {way} leaves this morning."
    return f"The price {way} is {result['fare'] * travellers:.2f} francs."
