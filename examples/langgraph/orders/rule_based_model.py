"""The model of the example: no language model, but rules that obey the instruction. Deterministic, and needs no key."""

import json
import re
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class RuleBasedOrdersModel(BaseChatModel):
    """Calls the tools that a line of the instruction names for the customer's wish, in that order, and reports."""

    declared: tuple[str, ...] = ()

    @property
    def _llm_type(self) -> str:
        return "rules"

    def bind_tools(self, tools: Any, **kwargs: Any) -> "RuleBasedOrdersModel":
        return self.model_copy(update={"declared": tuple(tool.name for tool in tools)})

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        return ChatResult(generations=[ChatGeneration(message=self._next(messages))])

    def _next(self, messages: list[BaseMessage]) -> AIMessage:
        asked = max(at for at, message in enumerate(messages) if message.type == "human")
        results = {m.name: json.loads(m.content) for m in messages[asked:] if isinstance(m, ToolMessage)}
        wish = "refund" if re.search(r"refund|money back", messages[asked].text, re.IGNORECASE) else "where"
        order_id = _order_id(messages[: asked + 1])
        if order_id is None:
            return AIMessage("Which order is it? Please tell me its number.")
        order = results.get("find_order", {})
        if wish == "refund" and order.get("status", "delivered") != "delivered" and "not delivered" in messages[0].text:
            return AIMessage(f"Order {order_id} is not delivered yet, so I cannot refund it.")
        if "error" not in order:
            for tool in self._ordered(messages[0].text, wish):
                if tool not in results:
                    arguments = {"order_id": order_id} | ({"amount": order.get("price", 0)} if tool == "refund" else {})
                    return AIMessage("", tool_calls=[{"name": tool, "args": arguments, "id": f"{tool}-{asked}"}])
        return AIMessage(_report(order_id, order, results.get("refund", {})))

    def _ordered(self, instruction: str, wish: str) -> list[str]:
        """Return the tools that the instruction's line about the wish names, in their order."""
        line = next((line for line in instruction.splitlines() if line.startswith("- To") and wish in line), "")
        return [word for word in re.findall(r"\w+", line.partition(",")[2]) if word in self.declared]


def _order_id(messages: list[BaseMessage]) -> str | None:
    """Return the number that the customer named last."""
    said = [re.findall(r"\b\d{4}\b", message.text) for message in messages if message.type == "human"]
    return next((numbers[-1] for numbers in reversed(said) if numbers), None)


def _report(order_id: str, order: dict[str, Any], refund: dict[str, Any]) -> str:
    if "error" in order or "error" in refund:
        return f"I am sorry: {order.get('error') or refund['error']} ({order_id})."
    if "refunded" in refund:
        return f"I have refunded {refund['refunded']:.2f} euros for order {order_id}."
    return f"Order {order_id}, the {order.get('item', 'item')}, is {order.get('status', 'somewhere')}."
