"""An agent of Pydantic AI, instrumented by itself. Its answer is only text."""

from pydantic_ai import Agent

import tools

Agent.instrument_all()
AGENT = Agent("openai-chat:local", tools=[tools.roll, tools.place_order])


async def reply(message):
    return (await AGENT.run(message)).output
