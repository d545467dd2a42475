"""A LangGraph agent that nobody instrumented: LangSmith's client makes its spans where variables say so."""

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

import tools

AGENT = create_react_agent(ChatOpenAI(model="local"), [tool(tools.roll), tool(tools.place_order)])


async def reply(message):
    state = await AGENT.ainvoke({"messages": [("user", message)]})
    return state["messages"][-1].content
