"""The tests' servers in threads of their own, so that a test can run commands and look at the server between."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from support.model_server import wire


@contextlib.contextmanager
def listening(handle: wire.Handler, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve while the block runs; yields the URL."""
    loop, ready = asyncio.new_event_loop(), threading.Event()
    loop.set_exception_handler(lambda *_: None)  # connections are cut at the end, which asyncio reports
    ended: asyncio.Event
    url = ""

    async def main() -> None:
        nonlocal ended, url
        ended = asyncio.Event()
        listener = await wire.serve(handle, "127.0.0.1", 0, tls)
        url = f"http{'s' if tls else ''}://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        ready.set()
        async with listener:
            await ended.wait()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.01)  # transports close in the loop's next rounds

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),), name="server-of-tests")
    thread.start()
    ready.wait()
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


@dataclass
class Address:
    """Where the servers of many tests are, one after the other: their agents are then started alike."""

    url: str
    handler: wire.Handler

    @classmethod
    @contextlib.contextmanager
    def open(cls) -> Iterator[Address]:
        """Serve while the block runs."""

        async def refuse(_: wire.HttpRequest) -> wire.HttpResponse:
            raise wire.ResetConnection

        async def handle(request: wire.HttpRequest) -> wire.HttpResponse:
            return await address.handler(request)

        address = cls("", refuse)
        with listening(handle) as address.url:
            yield address


class _Server(ThreadingHTTPServer):
    """Waits for its request threads when it closes; the class of the standard library leaves them their sockets."""

    daemon_threads = False


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler], port: int = 0) -> Iterator[int]:
    """Serve in plain threads while the block runs; yields the port, a free one for 0.

    At the end no thread and no socket is left.
    """
    with _Server(("127.0.0.1", port), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="http-server-of-tests")
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
