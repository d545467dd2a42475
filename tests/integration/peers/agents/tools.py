"""The tools of every peer, and their own log of how they were called: what a trajectory is held against."""

import json
import os
from pathlib import Path
from typing import Any


def _log(name: str, arguments: dict[str, Any], result: Any) -> Any:
    line = json.dumps({"name": name, "args": arguments, "result": result})
    with Path(os.environ["CALLS_LOG"]).open("a") as file:
        file.write(line + "\n")
    return result


def roll(sides: int, label: str) -> str:
    """Roll a die with so many sides."""
    return _log("roll", {"sides": sides, "label": label}, f"{label}: {sides // 2}")


def place_order(items: list[dict[str, Any]], urgent: bool, discount: float) -> str:
    """Order items, each with a name and a number."""
    arguments = {"items": items, "urgent": urgent, "discount": discount}
    return _log("place_order", arguments, f"ordered {len(items)} items")
