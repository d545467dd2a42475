"""The tools: real functions over a small book of orders."""

from langchain_core.tools import tool

ORDERS = {
    "1042": {"item": "desk lamp", "price": 39.5, "status": "shipped"},
    "1043": {"item": "oak shelf", "price": 120.0, "status": "delivered"},
    "1044": {"item": "linen sheets", "price": 64.0, "status": "delivered"},
}


@tool
def find_order(order_id: str) -> dict:
    """Look up an order's item, price in euros and status."""
    return ORDERS.get(order_id, {"error": "no such order"})


@tool
def refund(order_id: str, amount: float) -> dict:
    """Refund an amount in euros of an order."""
    order = ORDERS.get(order_id)
    if order is None or amount > order["price"]:
        return {"error": "this cannot be refunded"}
    return {"refunded": amount}
