"""An agent whose tools wait for the user: payments for a confirmation, a question to the boss for an answer."""

import json

from google.adk.agents import Agent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.tools import FunctionTool, LongRunningFunctionTool
from google.genai import types


class Teller(BaseLlm):
    """Rule-based: pays, or calls what the user writes down as ``[[tool, arguments], …]``; says what tools answered."""

    async def generate_content_async(self, llm_request, stream=False):
        parts = llm_request.contents[-1].parts
        answers = [part.function_response.response for part in parts if part.function_response]
        if answers:
            paid = [answer["paid"] for answer in answers if "paid" in answer]
            made = [types.Part(text=f"Paid {paid[0]}." if paid else json.dumps(answers))]
        else:
            said = parts[0].text
            calls = [["pay", {"amount": int(said.split()[1])}]] if said.startswith("Pay ") else json.loads(said)
            made = [types.Part(function_call=types.FunctionCall(name=name, args=args)) for name, args in calls]
        yield LlmResponse(content=types.Content(role="model", parts=made))


def pay(amount: int, tool_context) -> dict:
    """Pays."""
    tool_context.state["paid"] = tool_context.state.get("paid", 0) + amount
    return {"paid": amount}


def ask_boss(question: str) -> dict:
    """Asks the boss, who answers some day."""
    return {"status": "asked", "question": question}


TOOLS = [FunctionTool(pay, require_confirmation=True), LongRunningFunctionTool(ask_boss)]
root_agent = Agent(name="bank", model=Teller(model="teller"), instruction="Pay.", tools=TOOLS)
