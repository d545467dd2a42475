"""A crew of CrewAI, instrumented by OpenInference. Its answer is only text."""

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from openinference.instrumentation.crewai import CrewAIInstrumentor
from openinference.instrumentation.openai import OpenAIInstrumentor

import tools

CrewAIInstrumentor().instrument()
OpenAIInstrumentor().instrument()  # tools run side by side, and only the model's span has their order


def reply(message):
    shopper = Agent(
        role="shopper",
        goal="answer",
        backstory="none",
        llm=LLM(model="openai/gpt-4o-mini"),
        tools=[tool("roll")(tools.roll), tool("place_order")(tools.place_order)],
    )
    task = Task(description=message, expected_output="a sentence", agent=shopper)
    return Crew(agents=[shopper], tasks=[task]).kickoff().raw
