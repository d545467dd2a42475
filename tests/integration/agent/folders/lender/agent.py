"""An agent that is made asynchronously, and cleaned up in the task that made it."""

import asyncio
import contextlib
import os

from google.adk.agents import BaseAgent
from google.adk.events.event import Event
from google.genai import types


class Echo(BaseAgent):
    async def _run_async_impl(self, ctx):
        if "quiet" not in ctx.user_content.parts[0].text:
            yield Event(author=self.name, content=types.Content(role="model", parts=[types.Part(text="lent")]))


@contextlib.asynccontextmanager
async def _library():
    task = asyncio.current_task()
    try:
        yield
    finally:
        with open(os.path.join(os.environ["HOME"], "returned"), "w") as file:
            file.write(str(asyncio.current_task() is task))


async def get_agent_async():
    stack = contextlib.AsyncExitStack()
    await stack.enter_async_context(_library())
    return Echo(name="lender"), stack
