"""A server that speaks as much of Cloud Storage's REST as its client needs to read and write objects."""

from __future__ import annotations

import base64
import hashlib
import json
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit


class Bucket(BaseHTTPRequestHandler):
    """The bucket ``bkt``: its objects are listed by prefix, read and written. ``closed`` may not be read."""

    objects: ClassVar[dict[str, bytes]] = {}

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        parts = address.path.removeprefix("/download").split("/")[4:]  # /storage/v1/b/BUCKET[/o[/NAME]]
        bucket, name = unquote(parts[0]), unquote("/".join(parts[2:]))
        if bucket == "closed":
            self._answer(403, {"error": {"code": 403, "message": "no storage.objects.list"}})
        elif bucket != "bkt" or (name and name not in self.objects):
            self._answer(404, {"error": {"code": 404, "message": "none"}})
        elif len(parts) == 1:
            self._answer(200, {"name": bucket})
        elif not name:
            prefix = parse_qs(address.query).get("prefix", [""])[0]
            self._answer(200, {"items": [self._fields(found) for found in self.objects if found.startswith(prefix)]})
        elif address.path.startswith("/download"):
            self._send(200, self.objects[name])
        else:
            self._answer(200, self._fields(name))

    def do_POST(self) -> None:
        """Take an upload in one request: its name and its data are the two parts of the body."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        message = message_from_bytes(b"Content-Type: " + self.headers["Content-Type"].encode() + b"\r\n\r\n" + body)
        named, content = (part.get_payload(decode=True) for part in message.get_payload())  # type: ignore[union-attr]  # of a multipart message
        name = json.loads(named)["name"]
        self.objects[name] = content
        self._answer(200, self._fields(name))

    def _fields(self, name: str) -> dict[str, str]:
        return {"name": name, "bucket": "bkt", "size": str(len(self.objects[name]))}

    def _answer(self, status: int, value: object) -> None:
        self._send(status, json.dumps(value).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        checksum = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        self.send_header("X-Goog-Hash", f"md5={checksum}")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
