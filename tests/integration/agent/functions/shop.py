"""Functions as agents. Each does one thing that the tests look at."""

import asyncio
import os
import sys
import threading
import time

print("printed while it is imported")


def echo(message):
    print("printed in a turn")
    return f"heard: {message}"


async def remember(message, session):
    said = [kept["content"] for kept in session.messages if kept["role"] == "user"]
    session.state["turns"] = session.state.get("turns", 0) + 1
    await asyncio.sleep(0.01)
    return {"text": f"{session.user_id} said {said} and {message}", "state": {"last": message}}


def meet(message, session):
    """Answer once two threads are here: one that blocks must not hold up the other."""
    BARRIER.wait(20)
    return f"{message} met"


BARRIER = threading.Barrier(2)


async def behave(message, session):
    match message:
        case "raise":
            raise LookupError("no such order")
        case "exit":
            sys.exit(3)
        case "die":
            os._exit(1)
        case "sleep":
            await asyncio.sleep(60)
        case "block":
            time.sleep(60)
        case "nothing":
            return None
        case "large":
            return "x" * (70 << 20)
        case "hostile":
            return "a\0b\x1b[31m\udc80\u202e<script>"
    return "well"


class Callable:
    async def __call__(self, message):
        return f"called with {message}"


called = Callable()
NO_FUNCTION = 3
