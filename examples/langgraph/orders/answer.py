"""The agent: a LangGraph of a model and its tools, with a memory for each conversation."""

import os

from langchain_core.messages import SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from rule_based_model import RuleBasedOrdersModel

from tools import find_order, refund

INSTRUCTION = """\
You help customers of a furniture shop with their orders.
- To say where an order is, call find_order.
- To refund an order, call find_order first, and then refund with the order's price.
- Never refund an order that is not delivered.
"""
TOOLS = [find_order, refund]


def _model():
    """ORDERS_MODEL=gpt-4.1-mini swaps the rules for the real thing; nothing else changes."""
    if name := os.environ.get("ORDERS_MODEL"):
        from langchain_openai import ChatOpenAI

        return ChatOpenAI(model=name)
    return RuleBasedOrdersModel()


async def _ask_model(state: MessagesState) -> dict:
    model = _model().bind_tools(TOOLS)
    return {"messages": [await model.ainvoke([SystemMessage(INSTRUCTION), *state["messages"]])]}


def _graph():
    graph = StateGraph(MessagesState)
    graph.add_node("model", _ask_model)
    graph.add_node("tools", ToolNode(TOOLS))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=InMemorySaver())


GRAPH = _graph()


async def reply(message, session):
    """Answer one message with the conversation: its calls and their results are read after the newest message."""
    config = {"configurable": {"thread_id": session.id}}
    return (await GRAPH.ainvoke({"messages": [("user", message)]}, config))["messages"]
