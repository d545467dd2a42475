"""An ADK agent behind google-adk's own A2A server, with a model that needs no network. Runs where google-adk is."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import uvicorn
from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types

USAGE = types.GenerateContentResponseUsageMetadata(prompt_token_count=5, candidates_token_count=2, total_token_count=7)


class Model(BaseLlm):
    """Calls the tool for "roll", breaks for "break", and else says how many messages it was shown."""

    model: str = "fixed"

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        del stream
        last = llm_request.contents[-1].parts[-1]
        if last.function_response:
            part = types.Part(text=f"a {last.function_response.response['result']}")
        elif last.text == "break":
            raise RuntimeError("the model broke")
        elif last.text == "roll":
            part = types.Part(function_call=types.FunctionCall(id="c1", name="roll", args={"sides": 6}))
        else:
            part = types.Part(text=f"{len(llm_request.contents)} messages")
        yield LlmResponse(content=types.Content(role="model", parts=[part]), usage_metadata=USAGE)


def roll(sides: int) -> dict[str, int]:
    """Roll a die."""
    return {"result": sides - 2}


if __name__ == "__main__":
    # The card says port 8000, to_a2a's default, wherever the server listens.
    app = to_a2a(LlmAgent(name="dice", model=Model(), tools=[roll], instruction="Roll."))
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
