"""What the agent can do: roll a die of the session's own stream, and test numbers for being prime."""

import random
from typing import Any

from google.adk.tools import ToolContext

MIN_SIDES = 2
DEFAULT_SEED = 7


def roll_die(sides: int, tool_context: ToolContext) -> dict[str, Any]:
    """Roll one die.

    Args:
        sides: How many sides the die has, at least 2.
    """
    if sides < MIN_SIDES:
        return {"error": f"A die needs at least {MIN_SIDES} sides, not {sides}."}
    state = tool_context.state
    rolls = list(state.get("rolls", []))
    # The n-th roll of a session depends on the session's seed alone, so that an eval case can expect it.
    stream = random.Random(f"{state.get('seed', DEFAULT_SEED)}/{len(rolls)}")  # noqa: S311 - dice, not secrets
    result = stream.randint(1, sides)
    state["rolls"] = [*rolls, result]
    return {"sides": sides, "result": result}


def check_prime(numbers: list[int]) -> dict[str, Any]:
    """Say which of the numbers are prime.

    Args:
        numbers: The numbers to check.
    """
    return {"checked": numbers, "primes": [number for number in numbers if _is_prime(number)]}


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))
