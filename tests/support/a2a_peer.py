"""An agent behind a2a-sdk's own server. What it does follows from the first word of the message."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from a2a.helpers import new_data_part, new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, TaskState
from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette

from support.obedient import Failure, obey


@dataclass
class Peer:
    """A server that runs. ``seen`` are the headers of its requests, ``cancelled`` counts cancelled tasks."""

    url: str = ""
    seen: list[dict[str, str]] = field(default_factory=list)
    cancelled: int = 0
    hanging: bool = False
    refused: bool = False


def tool(kind: str, **data: Any) -> Part:
    part = new_data_part(data)
    part.metadata.update({"adk_type": kind})
    return part


class Executor(AgentExecutor):
    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.contexts: Counter[str] = Counter()
        self.conversations: dict[str, list[str]] = {}
        self.states: dict[str, Any] = {}

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        words = context.get_user_input().split() or ["data"]
        self.contexts[context.context_id] += 1
        if words[0] == "plain":
            text = new_text_part(f"message {self.contexts[context.context_id]}")
            updater = TaskUpdater(event_queue, "", context.context_id)
            message = updater.new_agent_message([text])
            message.task_id = ""
            await event_queue.enqueue_event(message)
            return
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await getattr(self, f"do_{words[0]}", self.obey)(updater, words[1:], context)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        self.peer.cancelled += 1
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()

    async def say(self, updater: TaskUpdater, *parts: Part) -> None:
        await updater.start_work(updater.new_agent_message(list(parts)))

    async def obey(self, updater: TaskUpdater, _: list[str], context: RequestContext) -> None:
        """Do what the driver contract asks for."""
        conversation = self.conversations.setdefault(context.context_id, [])
        conversation.append(context.get_user_input())
        given = MessageToDict(context.message.metadata).get("session_state", {})
        state = self.states.setdefault(context.context_id, given)
        if self.peer.refused and conversation[-1] == "rate_limit once":
            await updater.complete(updater.new_agent_message([new_text_part("at last")]))
            return
        try:
            reply = obey(conversation, state)
        except Failure as failure:
            code = {"adk_error_code": str(failure.status)}
            message = updater.new_agent_message([new_text_part(str(failure))])
            message.metadata.update(code)
            await updater.failed(message)
            return
        await asyncio.sleep(reply.seconds)
        if reply.tool:
            await self.say(updater, tool("function_call", id="c1", name=reply.tool, args=reply.args))
            await self.say(updater, tool("function_response", id="c1", name=reply.tool, response=reply.result))
        conversation.append(reply.text)
        usage = {"adk_usage_metadata": {"promptTokenCount": 5, "totalTokenCount": 7}}
        message = updater.new_agent_message([new_text_part(reply.text)])
        await updater.update_status(TaskState.TASK_STATE_COMPLETED, message, metadata=usage)

    async def do_roll(self, updater: TaskUpdater, words: list[str], _: RequestContext) -> None:
        args = {"sides": int(words[0]), "weights": [0.5, 1.0]}
        await self.say(updater, tool("function_call", id="c1", name="roll", args=args))
        await self.say(updater, tool("function_response", id="c1", name="roll", response={"result": 4}))
        await self.say(updater, new_text_part("a four"))
        await updater.add_artifact([new_text_part("a four")])
        await updater.complete()

    async def do_chunks(self, updater: TaskUpdater, words: list[str], _: RequestContext) -> None:
        for number, word in enumerate(words):
            parts = [new_text_part(word)]
            await updater.add_artifact(parts, artifact_id="a", append=number > 0, last_chunk=number == len(words) - 1)
        await updater.complete()

    async def do_ask(self, updater: TaskUpdater, _: list[str], __: RequestContext) -> None:
        await updater.requires_input(updater.new_agent_message([new_text_part("which one?")]))

    async def do_answer(self, updater: TaskUpdater, words: list[str], context: RequestContext) -> None:
        told = "the same task" if context.current_task else "another task"
        await updater.complete(updater.new_agent_message([new_text_part(f"{words[0]} in {told}")]))

    async def do_confirm(self, updater: TaskUpdater, _: list[str], __: RequestContext) -> None:
        call = tool("function_call", id="c1", name="adk_request_confirmation", args={})
        call.metadata.update({"adk_is_long_running": True})
        await updater.requires_input(updater.new_agent_message([call]))

    async def do_data(self, updater: TaskUpdater, _: list[str], context: RequestContext) -> None:
        given = MessageToDict(context.message.parts[0])["data"]
        await updater.complete(updater.new_agent_message([new_text_part(given["id"])]))

    async def do_state(self, updater: TaskUpdater, _: list[str], context: RequestContext) -> None:
        metadata = MessageToDict(context.message.metadata)
        await updater.complete(updater.new_agent_message([new_data_part(metadata.get("session_state", {}))]))

    async def do_fail(self, updater: TaskUpdater, _: list[str], __: RequestContext) -> None:
        await updater.failed(updater.new_agent_message([new_text_part("the dice are gone")]))

    async def do_reject(self, updater: TaskUpdater, _: list[str], __: RequestContext) -> None:
        await updater.reject()

    async def do_login(self, updater: TaskUpdater, _: list[str], __: RequestContext) -> None:
        await updater.requires_auth(updater.new_agent_message([new_text_part("sign in")]))

    async def do_raise(self, *_: Any) -> None:
        raise RuntimeError("the agent broke")

    async def do_hang(self, updater: TaskUpdater, _: list[str], __: RequestContext) -> None:
        await updater.start_work()
        self.peer.hanging = True
        await asyncio.sleep(60)


def make_app(peer: Peer, *, streaming: bool, versions: tuple[str, ...], binding: str) -> Any:
    interfaces = [
        AgentInterface(url=peer.url, protocol_binding=binding, protocol_version=version) for version in versions
    ]
    card = AgentCard(
        name="dice",
        version="1",
        description="rolls dice",
        supported_interfaces=interfaces,
        capabilities=AgentCapabilities(streaming=streaming),
        skills=[AgentSkill(id="roll", name="roll", description="rolls", tags=["dice"])],
        default_input_modes=["text"],
        default_output_modes=["text"],
    )
    handler = DefaultRequestHandler(Executor(peer), InMemoryTaskStore(), card)
    compat = "0.3" in versions
    routes = (
        create_jsonrpc_routes(handler, "/", enable_v0_3_compat=compat)
        if binding == "JSONRPC"
        else create_rest_routes(handler, enable_v0_3_compat=compat)
    )
    app = Starlette(routes=[*create_agent_card_routes(card), *routes])

    async def noted(scope: Any, receive: Any, send: Any) -> None:
        peer.seen.append({name.decode(): value.decode() for name, value in scope["headers"]})
        body = await receive()

        async def received() -> Any:
            nonlocal body
            first, body = body, None
            return first or await receive()

        if not peer.refused and b"rate_limit once" in body.get("body", b""):
            peer.refused = True
            headers = [(b"retry-after", b"0.05"), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 429, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
        await app(scope, received, send)

    return noted


@contextlib.contextmanager
def a2a_peer(
    *, streaming: bool = True, versions: tuple[str, ...] = ("1.0",), binding: str = "JSONRPC"
) -> Iterator[Peer]:
    """Serve while the block runs."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = Peer(f"http://127.0.0.1:{listener.getsockname()[1]}")
        app = make_app(peer, streaming=streaming, versions=versions, binding=binding)
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1, lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="a2a-peer")
        thread.start()
        try:
            yield peer
        finally:
            server.should_exit = True
            thread.join()


if __name__ == "__main__":
    # The card names another port than the one that is listened on, as a server's default would.
    served = make_app(Peer("http://localhost:8000"), streaming=True, versions=("1.0",), binding="JSONRPC")
    uvicorn.run(served, host="127.0.0.1", port=int(sys.argv[1]), log_level="critical", lifespan="off")
