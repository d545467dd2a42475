"""A remote over HTTP that asks for a token: it is sent, to that host only, and seen nowhere."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from agent_eval_action.git.repository import remote_of
from support.records import everything, record, store_at
from support.repositories import environ, repository, run_git
from support.serving import serving

SHA = "c0ffee" + "0" * 34
TOKEN = "ghs_0123456789secret"  # noqa: S105 - of no account
HEADER = "AUTHORIZATION: basic " + base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()


class Backend(BaseHTTPRequestHandler):
    """git's own http-backend behind a check of the token, and of who may write."""

    root: Path
    may_write = True
    unauthorized = 0

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.answer(b"")

    def do_POST(self) -> None:
        self.answer(self.body())

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        whole = b""
        while size := int(self.rfile.readline(), 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return whole

    def answer(self, body: bytes) -> None:
        if self.headers.get_all("Authorization") != [HEADER.partition(": ")[2]]:
            type(self).unauthorized += 1
            self.plain(401, [("WWW-Authenticate", 'Basic realm="git"')])
            return
        path, _, query = self.path.partition("?")
        if not self.may_write and "receive-pack" in self.path:
            self.plain(403, [])
            return
        given = {
            **environ(),
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "CONTENT_LENGTH": str(len(body)),
            "REMOTE_USER": "bot",
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(["git", "http-backend"], input=body, capture_output=True, env=given, check=True)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = [tuple(line.split(": ", 1)) for line in head.decode().split("\r\n")]
        status = next((int(value.split()[0]) for name, value in headers if name == "Status"), 200)
        self.plain(status, [(name, value) for name, value in headers if name != "Status"], content)

    def plain(self, status: int, headers: list[tuple[str, str]], content: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def served(origin):
    """The checkout of a repository that is served over HTTP."""
    origin.commit("one")
    run_git(origin.path, "config", "http.receivepack", "true")
    handler = type("Own", (Backend,), {"root": origin.root})
    with serving(handler) as port:
        work = origin.clone("work")
        base = f"http://127.0.0.1:{port}"
        run_git(work, "remote", "set-url", "origin", f"{base}/origin.git")
        yield work, base, handler


def test_the_checkouts_own_header_is_used(served):
    work, base, handler = served
    run_git(work, "config", f"http.{base}/.extraheader", HEADER)
    store = store_at(work)
    assert store.add(record(SHA)).stored
    assert [one.commit for one in everything(store).records] == [SHA]
    assert handler.unauthorized == 0


def test_the_header_may_stand_in_a_file_the_configuration_includes(served, tmp_path):
    work, base, _ = served
    extra = tmp_path / "credentials.config"
    extra.write_text(f'[http "{base}/"]\n\textraheader = {HEADER}\n')
    run_git(work, "config", f"includeIf.gitdir:{work}/.git.path", str(extra))
    assert store_at(work).add(record(SHA)).stored


def test_a_token_of_the_environment_goes_to_githubs_host(served):
    work, base, handler = served
    assert store_at(work, GITHUB_TOKEN=TOKEN, GITHUB_SERVER_URL=base).add(record(SHA)).stored
    assert handler.unauthorized == 0


def test_a_token_of_the_environment_goes_nowhere_else(served):
    work, _, handler = served
    assert store_at(work, GITHUB_TOKEN=TOKEN).remote.header == ""
    written = store_at(work, GITHUB_TOKEN=TOKEN).add(record(SHA))
    assert not written.stored
    assert handler.unauthorized > 0


def test_a_password_in_the_address_is_moved_out_of_it(served):
    work, base, _ = served
    run_git(work, "remote", "set-url", "origin", f"{base.replace('//', f'//x-access-token:{TOKEN}@')}/origin.git")
    remote = remote_of(repository(work), "origin", environ())
    assert TOKEN not in remote.url
    assert store_at(work).add(record(SHA)).stored


def test_no_right_to_write_is_reported_without_the_token(served):
    work, base, handler = served
    run_git(work, "config", f"http.{base}/.extraheader", HEADER)
    handler.may_write = False
    written = store_at(work).add(record(SHA))
    assert not written.stored
    assert "was refused" in written.note
    assert "403" in written.note
    assert TOKEN not in written.note
    assert HEADER.rpartition(" ")[2] not in written.note


def test_the_token_is_in_no_argument_list_and_no_repr(served, tmp_path):
    work, base, _ = served
    run_git(work, "config", f"http.{base}/.extraheader", HEADER)
    spy = tmp_path / "bin"
    spy.mkdir()
    log = tmp_path / "argv"
    real = run_git(work, "--exec-path")
    (spy / "git").write_text(f'#!{sys.executable}\nimport os, sys\nopen("{log}", "a").write(repr(sys.argv) + "\\n")\n'
                             f'os.execv("{real}/git", sys.argv)\n')  # fmt: skip
    (spy / "git").chmod(0o755)
    store = store_at(work, PATH=f"{spy}:{os.environ['PATH']}")
    assert store.add(record(SHA)).stored
    said = log.read_text()
    assert "push" in said
    assert TOKEN not in said
    assert HEADER.rpartition(" ")[2] not in said
    assert HEADER.rpartition(" ")[2] not in repr(store)
