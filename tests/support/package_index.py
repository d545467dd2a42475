"""A private package index on a local socket: PEP 503 pages and wheels, for those who know the password only."""

from __future__ import annotations

import base64
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from support.serving import serving


@dataclass
class PackageIndex:
    """``refused`` and ``served`` are the paths that were asked for without and with the password."""

    folder: Path
    user: str
    password: str
    port: int = 0
    refused: list[str] = field(default_factory=list)
    served: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Without the login."""
        return f"http://127.0.0.1:{self.port}/simple"

    def login(self, quoted: str = "") -> str:
        """With it; ``quoted`` is the password as an address writes it."""
        return f"http://{self.user}:{quoted or self.password}@127.0.0.1:{self.port}/simple"


def wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> Path:
    """The smallest wheel that an installer takes."""
    plain = name.replace("-", "_")
    info = f"{plain}-{version}.dist-info"
    path = folder / f"{plain}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for place, text in files.items():
            archive.writestr(place, text)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{info}/WHEEL", tags)
        archive.writestr(f"{info}/RECORD", "")
    return path


@contextmanager
def running(folder: Path, user: str, password: str) -> Iterator[PackageIndex]:
    """Serve the wheels of a folder until the block ends."""
    index = PackageIndex(folder, user, password)
    expected = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.headers.get("Authorization") != expected:
                index.refused.append(self.path)
                self._answer(401, b"", "text/plain")
                return
            index.served.append(self.path)
            *_, where, name = self.path.strip("/").split("/")
            if where == "files" and (folder / name).is_file():
                self._answer(200, (folder / name).read_bytes(), "application/octet-stream")
                return
            found = [one.name for one in folder.glob("*.whl") if one.name.split("-")[0] == name.replace("-", "_")]
            links = "".join(f'<a href="/files/{one}">{one}</a>\n' for one in found)
            self._answer(
                200 if found else 404, f"<!DOCTYPE html><html><body>{links}</body></html>".encode(), "text/html"
            )

        def do_HEAD(self) -> None:
            self.do_GET()

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            if status == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="private"')
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    with serving(Handler) as index.port:
        yield index
