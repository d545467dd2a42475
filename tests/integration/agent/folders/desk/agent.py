"""Agents that are called as tools, two deep: the desk asks clerks, and a clerk asks the archivist."""

import json

from google.adk.agents import Agent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.agent_tool import AgentTool
from google.genai import types


class Caller(BaseLlm):
    """Rule-based: makes the calls that are written down as ``[[tool, arguments], …]``, then says what they answered."""

    async def generate_content_async(self, llm_request, stream=False):
        parts = llm_request.contents[-1].parts
        answers = [part.function_response.response for part in parts if part.function_response]
        if answers:
            made = [types.Part(text=json.dumps(answers))]
        else:
            calls = json.loads(parts[0].text)
            made = [types.Part(function_call=types.FunctionCall(name=name, args=args)) for name, args in calls]
        yield LlmResponse(content=types.Content(role="model", parts=made))


def look(shelf: str) -> dict:
    """Looks."""
    return {"found": shelf.upper()}


def agent(name, *tools):
    return Agent(name=name, model=Caller(model="caller"), instruction="Ask.", description="Answers.", tools=[*tools])


archivist = agent("archivist", look)
clerk = agent("clerk", look, AgentTool(archivist))
root_agent = agent("desk", look, AgentTool(clerk))
