"""HTTP/1.1 as a client of an API speaks it: keep-alive, Content-Length or chunked requests. Standard library only."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

MAX_HEAD = 64 * 1024


@dataclass(frozen=True)
class HttpRequest:
    """One request as read from the connection; header names in lower case."""

    verb: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class HttpResponse:
    """One response. ``chunks`` makes it chunked; ``cut`` ends the connection after that many bytes of the body."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    chunks: tuple[bytes, ...] = ()
    cut: int | None = None


class ResetConnection(Exception):  # noqa: N818 - raised to end a connection, not to report an error
    """Raised by a handler: end the connection with a TCP reset."""


class HangConnection(Exception):  # noqa: N818 - raised to say nothing more, not to report an error
    """Raised by a handler: say nothing until the client leaves."""


Handler = Callable[[HttpRequest], Awaitable[HttpResponse]]


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> HttpResponse:
    """A response with a JSON body."""
    return HttpResponse(status, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})


async def serve(handler: Handler, host: str, port: int, tls: ssl.SSLContext | None = None) -> asyncio.Server:
    """Listen; one task per connection."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read(reader)) is not None:
                if not await _answer(handler, request, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away; its next request comes on a new connection
        except ResetConnection:
            _reset(writer)
        except HangConnection:
            with contextlib.suppress(ConnectionError):
                await reader.read()
        except asyncio.CancelledError:
            writer.transport.abort()  # the server ends: what was not sent yet must not keep the socket open
            raise
        finally:
            writer.close()

    return await asyncio.start_server(connected, host, port, limit=MAX_HEAD, backlog=1024, ssl=tls)


async def _read(reader: asyncio.StreamReader) -> HttpRequest | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    verb, target, _ = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    url = urlsplit(target)
    return HttpRequest(verb, url.path, url.query, headers, await _read_body(reader, headers))


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = bytearray()
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return bytes(body)


async def _answer(handler: Handler, request: HttpRequest, writer: asyncio.StreamWriter) -> bool:
    response = await handler(request)
    length = {"Transfer-Encoding": "chunked"} if response.chunks else {"Content-Length": str(len(response.body))}
    fields = "".join(f"{name}: {value}\r\n" for name, value in {**response.headers, **length}.items())
    head = f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}\r\n{fields}\r\n".encode("latin-1")
    framed = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in response.chunks)
    body = framed + b"0\r\n\r\n" if response.chunks else response.body
    writer.write(head + (body if response.cut is None else body[: response.cut]))
    await writer.drain()
    return response.cut is None and request.headers.get("connection", "").lower() != "close"


def _reset(writer: asyncio.StreamWriter) -> None:
    # Closing with linger 0 sends RST instead of FIN.
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
