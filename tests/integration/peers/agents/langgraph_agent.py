"""A LangGraph agent, instrumented by OpenInference. Its answer is only text."""

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent
from openinference.instrumentation.langchain import LangChainInstrumentor

import tools

LangChainInstrumentor().instrument()
AGENT = create_react_agent(ChatOpenAI(model="local"), [tool(tools.roll), tool(tools.place_order)])


async def reply(message):
    state = await AGENT.ainvoke({"messages": [("user", message)]})
    return state["messages"][-1].content
