"""An agent of the OpenAI Agents SDK, instrumented by OpenInference. Its answer is only text."""

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
from openai import AsyncOpenAI
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

import tools

OpenAIAgentsInstrumentor().instrument()


async def reply(message):
    agent = Agent(
        name="shop",
        model=OpenAIChatCompletionsModel("local", AsyncOpenAI()),
        tools=[function_tool(tools.roll), function_tool(tools.place_order, strict_mode=False)],
    )
    return (await Runner.run(agent, message)).final_output
