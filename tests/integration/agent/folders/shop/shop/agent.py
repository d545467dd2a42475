"""An App with a plugin, two agents, data of the module's own, and imports in every way there is."""

import os

from google.adk.agents import Agent
from google.adk.apps.app import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.genai import types

import shop.tools
from shop.tools import STOCK

from . import tools

DATA = {"orders": 0}


def reset_data():
    DATA["orders"] = 0


class Counter(BaseLlm):
    """Rule-based: one word, one call."""

    async def generate_content_async(self, llm_request, stream=False):
        parts = llm_request.contents[-1].parts
        if any(part.function_response for part in parts):
            part = types.Part(text=f"orders: {DATA['orders']}")
        elif "clerk" in parts[0].text:
            part = types.Part(function_call=types.FunctionCall(name="transfer_to_agent", args={"agent_name": "clerk"}))
        else:
            part = types.Part(function_call=types.FunctionCall(name="order", args={}))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def order() -> dict:
    """Orders."""
    assert shop.tools is tools
    DATA["orders"] += 1
    return {
        "cwd": os.getcwd(),
        "currency": os.environ.get("SHOP_CURRENCY"),
        "name": os.environ.get("SHOP_NAME"),
        "seen": sorted(os.environ),
        "stock": STOCK,
    }


class Stamp(BasePlugin):
    """The App's own plugin: changes what the model is told, after others have seen the request."""

    async def before_model_callback(self, *, callback_context, llm_request):
        llm_request.append_instructions(["Be polite."])


clerk = Agent(name="clerk", model=Counter(model="counter-2"), instruction="Serve.", tools=[order])
_agent = Agent(name="shop", model=Counter(model="counter-1"), instruction="Sell.", tools=[order], sub_agents=[clerk])
app = App(name="shop", root_agent=_agent, plugins=[Stamp(name="stamp")])
root_agent = Agent(name="not_the_one", model=Counter(model="counter-3"))
