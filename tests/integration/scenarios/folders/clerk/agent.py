"""An agent with a tool and a model over the wire: the server of the test answers for it."""

from google.adk.agents import Agent


def look_up(city: str) -> dict:
    """The temperature of a city."""
    return {"city": city, "degrees": 31}


root_agent = Agent(name="clerk", model="gemini-2.5-flash", instruction="You are the clerk.", tools=[look_up])
