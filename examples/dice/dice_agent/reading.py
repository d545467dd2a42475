"""What the rule-based model understands: of its instruction, of the user's words, of the conversation so far."""

import re
from dataclasses import dataclass
from typing import Any

from google.genai import types

COUNTS = {"a": 1, "an": 1, "one": 1, "my": 1, "the": 1, "two": 2, "three": 3, "four": 4, "five": 5}
PLAIN_DIE = 6
MAX_DICE = 20
DICE = re.compile(
    r"(?:(?P<count>\d+|a|an|one|my|the|two|three|four|five)\s+)?(?:(?P<sides>\d+)-sided\s+)?\b(?:die|dice)\b"
    r"|(?:(?P<times>\d+)|\b)d(?P<die>\d+)\b"
)


@dataclass(frozen=True)
class Orders:
    """What the instruction orders: which tool for which wish. None: no tool was ordered for it."""

    roll_tool: str | None
    roll_argument: str
    prime_tool: str | None
    prime_argument: str
    one_list: bool
    own_die: int | None
    declines: tuple[str, ...]


@dataclass(frozen=True)
class Request:
    """What the user asks for: dice by their sides, primes (of these numbers, or of what was rolled)."""

    dice: tuple[int, ...] = ()
    primes: bool = False
    numbers: tuple[int, ...] = ()
    declined: str | None = None


@dataclass(frozen=True)
class Step:
    """A tool call of this turn and what came back."""

    tool: str
    response: dict[str, Any]


def read_orders(instruction: str, tools: dict[str, list[str]]) -> Orders:
    """Follow each line that says "... call <tool> ..." when that tool is declared."""
    lines = [line.strip().lower() for line in instruction.splitlines()]
    roll_tool, _ = _ordered_tool(lines, "to roll", tools)
    prime_tool, prime_line = _ordered_tool(lines, "prime", tools)
    own_die = re.search(r"own die has this many sides: (\d+)", instruction)
    declines = [line.partition(":")[2] for line in lines if "decline" in line]
    return Orders(
        roll_tool=roll_tool,
        roll_argument=_first_argument(tools, roll_tool),
        prime_tool=prime_tool,
        prime_argument=_first_argument(tools, prime_tool),
        one_list="one list" in prime_line,
        own_die=int(own_die[1]) if own_die else None,
        declines=tuple(re.findall(r"[a-z]+", " ".join(declines))),
    )


def _ordered_tool(lines: list[str], wish: str, tools: dict[str, list[str]]) -> tuple[str | None, str]:
    for line in lines:
        order = re.search(r"\bcall (\w+)", line)
        if wish in line and order and order[1] in tools:
            return order[1], line
    return None, ""


def _first_argument(tools: dict[str, list[str]], tool: str | None) -> str:
    return next(iter(tools.get(tool or "", [])), "")


def read_request(text: str, orders: Orders) -> Request:
    """Read the user's words; what the instruction declines comes first."""
    text = text.lower()
    declined = next((word for word in orders.declines if re.search(rf"\b{word}\b", text)), None)
    if declined:
        return Request(declined=declined)
    dice = tuple(side for match in DICE.finditer(text) for side in _dice_of(match, orders)) if "roll" in text else ()
    numbers = tuple(int(number) for number in re.findall(r"\b\d+\b", DICE.sub(" ", text)))
    return Request(dice=dice, primes="prime" in text, numbers=numbers)


def _dice_of(match: re.Match[str], orders: Orders) -> list[int]:
    if match["die"]:
        return [int(match["die"])] * min(int(match["times"] or 1), MAX_DICE)
    count = match["count"] or "a"
    plain = orders.own_die if count == "my" and orders.own_die else PLAIN_DIE
    times = int(count) if count.isdigit() else COUNTS[count]
    return [int(match["sides"] or plain)] * min(times, MAX_DICE)


def last_user_text(contents: list[types.Content]) -> str:
    """The words of the newest message that is the user's own, not a tool's answer."""
    start = _start_of_turn(contents)
    return " ".join(part.text for part in contents[start].parts or [] if part.text) if contents else ""


def steps_of_turn(contents: list[types.Content]) -> list[Step]:
    """Tool answers since the user's newest message."""
    return _steps(contents[_start_of_turn(contents) :])


def last_results(contents: list[types.Content]) -> list[int]:
    """Results of the newest earlier turn that rolled: what "it" and "them" mean."""
    for start in range(len(contents) - 1, -1, -1):
        results = results_of(_steps(contents[start:]))
        if _is_users(contents[start]) and results:
            return results
    return []


def results_of(steps: list[Step]) -> list[int]:
    """The numbers that were rolled."""
    return [step.response["result"] for step in steps if "result" in step.response]


def _steps(contents: list[types.Content]) -> list[Step]:
    answers = (part.function_response for content in contents for part in content.parts or [])
    return [Step(tool=answer.name or "", response=answer.response or {}) for answer in answers if answer]


def _start_of_turn(contents: list[types.Content]) -> int:
    return max((index for index, content in enumerate(contents) if _is_users(content)), default=0)


def _is_users(content: types.Content) -> bool:
    return content.role == "user" and any(part.text for part in content.parts or [])
