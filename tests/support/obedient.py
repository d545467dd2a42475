"""The agent of the driver contract without a framework: it does what ``say TEXT`` or ``TOOL JSON-ARGUMENTS`` asks for.

As a program it is a server of chat completions: ``python -m support.obedient PORT``. ``act`` is it as a function.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.error import HTTPError

from support.serving import serving


class Failure(Exception):  # noqa: N818 - what the agent's server answers, no mistake of the test
    """The status that a server answers."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Reply:
    """An answer, after a tool's call if there is one, after a while."""

    text: str
    tool: str = ""
    args: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    seconds: float = 0.0


def obey(conversation: list[str], state: dict[str, Any]) -> Reply:
    """Answer the last message of a conversation."""
    name, _, rest = conversation[-1].partition(" ")
    if name == "say":
        return Reply(rest)
    if name == "conversation":
        return Reply(json.dumps(conversation))
    if name == "recall":
        return Reply(json.dumps(state))
    if name == "rate_limit":
        raise Failure(429, rest or name)
    args = json.loads(rest or "{}")
    if name == "add":
        result = {"sum": args["a"] + args["b"]}
        return Reply(json.dumps(result), name, args, result)
    if name == "hang":
        return Reply("late", seconds=args["seconds"])
    status = {"unavailable": 503}.get(name, 500)
    raise Failure(status, args.get("text", name))


async def act(message: str, session: Any) -> list[dict[str, Any]]:
    """Answer as a function of the ``python`` driver does."""
    try:
        reply = obey([*(kept["content"] for kept in session.messages), message], session.state)
    except Failure as failure:
        if failure.status not in (429, 503):
            raise
        # as the standard library's client raises a model server's refusal
        raise HTTPError("http://model", failure.status, str(failure), Message(), None) from failure
    await asyncio.sleep(reply.seconds)
    made: list[dict[str, Any]] = []
    if reply.tool:
        made.append({"role": "assistant", "tool_calls": [{"id": "c1", "name": reply.tool, "args": reply.args}]})
        made.append({"role": "tool", "tool_call_id": "c1", "content": json.dumps(reply.result)})
    usage = {"usage": {"input_tokens": 5, "output_tokens": 2}, "response_metadata": {"model_name": "obedient-1"}}
    return [*made, {"role": "assistant", "content": reply.text, **usage}]


class Handler(BaseHTTPRequestHandler):
    """Chat completions with what the agent did as ``messages``. ``rate_limit once`` is refused at first."""

    refused = False

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        conversation = [message["content"] for message in asked["messages"] if message["role"] != "tool"]
        state = json.loads(asked.get("metadata", {}).get("session_state", "{}"))
        try:
            reply = obey(conversation, state)
        except Failure as failure:
            if str(failure) == "once":
                self.refuse_once()
                return
            # a code for which no client asks again
            self.answer(failure.status, {"error": {"message": str(failure), "code": "insufficient_quota"}})
            return
        time.sleep(reply.seconds)
        made: list[dict[str, Any]] = []
        if reply.tool:
            function = {"name": reply.tool, "arguments": json.dumps(reply.args)}
            made.append({"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]})
            made.append({"role": "tool", "tool_call_id": "c1", "content": json.dumps(reply.result)})
        message = {"role": "assistant", "content": reply.text}
        choices = [{"message": message, "finish_reason": "stop", "messages": [*made, message]}]
        usage = {"prompt_tokens": 5, "total_tokens": 7}
        self.answer(200, {"model": "obedient-1", "choices": choices, "usage": usage})

    def refuse_once(self) -> None:
        if Handler.refused:
            self.answer(200, {"choices": [{"message": {"role": "assistant", "content": "at last"}}]})
        else:
            Handler.refused = True
            self.answer(429, {"error": {"message": "slow down"}}, retry_after="0.05")

    def answer(self, status: int, value: Any, retry_after: str = "") -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if retry_after:
            self.send_header("Retry-After", retry_after)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing of requests."""


if __name__ == "__main__":
    with serving(Handler, int(sys.argv[1])):
        threading.Event().wait()
