"""The measured agent: Gemini's model class and one tool. Its model is the local server of the tests."""

from typing import Any

from google.adk.agents import LlmAgent


def look_up_price(item: str) -> dict[str, Any]:
    """Look up what an item of the shop costs.

    Args:
        item: The item's code.
    """
    return {"item": item, "price": 3 * int(item[1:]) + 1}


root_agent = LlmAgent(
    name="price_agent",
    model="gemini-2.5-flash",
    instruction="You work in a shop. Look up prices with look_up_price; never guess one.",
    tools=[look_up_price],
)
