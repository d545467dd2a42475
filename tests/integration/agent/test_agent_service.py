"""The server of a command: started on a free port, waited for, explained when it ends, and gone afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agent_eval_action.agents.base import TurnDone
from agent_eval_action.environments.runtime import AgentRuntimeSpec
from agent_eval_action.folders import OutputFolder
from agent_eval_action.processes.agent_service import begin_program, program_log
from agent_eval_action.results.run_result import AttemptError, ErrorKind
from agent_eval_action.sandbox.users import child_pids
from support.live_agents import driving, make_driver, open_session, text
from support.serving import serving

SERVER = """
import http.server, json, os, subprocess, sys

print("listens", flush=True)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        said = body["messages"][-1]["content"]
        if said == "die":
            print("I die", flush=True)
            os._exit(7)
        seen = {name: os.environ.get(name) for name in ("PORT", "GITHUB_TOKEN", "OPENAI_API_KEY")}
        seen.update(cwd=os.getcwd(), child=child.pid, path=self.path, port=sys.argv[1])
        message = {"role": "assistant", "content": json.dumps(seen)}
        answer = json.dumps({"choices": [{"message": message}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_GET(self):
        self.send_response(404)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
LEAVER = """
import pathlib, socket, sys, time

with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    connection, _ = listener.accept()
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 404 Not Found\\r\\ncontent-length: 0\\r\\nconnection: close\\r\\n\\r\\n")
    connection.close()
    time.sleep(0.5)
left = pathlib.Path(sys.argv[2])
left.with_suffix(".part").write_text(sys.argv[1])
left.with_suffix(".part").rename(left)
time.sleep(600)
"""


class Quiet(BaseHTTPRequestHandler):
    """Answers every request."""

    value: ClassVar[Any] = {}

    def do_GET(self) -> None:
        body = json.dumps(self.value).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - the name is the standard library's

    def log_message(self, *_: object) -> None:
        """Say nothing of requests."""


ENVIRON = {"PATH": "/usr/bin:/bin", "GITHUB_TOKEN": "secret", "OPENAI_API_KEY": "k"}


def options(folder: Path) -> dict[str, object]:
    (folder / "server.py").write_text(SERVER)
    no_spans = {"OTEL_SDK_DISABLED": "true"}  # they would be waited for
    return {"driver": "openai", "command": (sys.executable, "server.py", "{port}"), "env": no_spans}


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie of a test's container does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def written(path: Path) -> None:
    """Wait until a file has content."""
    while not (path.exists() and path.read_text()):  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.01)


async def test_server_sees_its_port_its_folder_and_no_variable_of_the_job(tmp_path: Path) -> None:
    async with driving(tmp_path, ENVIRON, **options(tmp_path)) as driver:
        done = await (await open_session(driver)).turn(text("hello"))
        assert isinstance(done, TurnDone), done
        seen = json.loads(done.invocation.response_text)
        assert seen["PORT"] == seen["port"] != ""
        assert (seen["GITHUB_TOKEN"], seen["OPENAI_API_KEY"]) == (None, "k")
        assert (Path(seen["cwd"]), seen["path"]) == (tmp_path.resolve(), "/v1/chat/completions")
        assert is_alive(seen["child"])
    assert not is_alive(seen["child"]), "a process that the server started is left running"


async def test_server_that_ends_is_explained_and_started_again(tmp_path: Path) -> None:
    async with driving(tmp_path, ENVIRON, **options(tmp_path)) as driver:
        error = await (await open_session(driver)).turn(text("die"))
        assert isinstance(error, AttemptError)
        assert error.kind is ErrorKind.DIED
        assert "exit code 7" in error.message
        assert error.traceback.endswith("I die")
        assert isinstance(await (await open_session(driver)).turn(text("hello")), TurnDone)


async def test_workers_are_servers_that_sessions_are_spread_over(tmp_path: Path) -> None:
    async with driving(tmp_path, ENVIRON, workers=2, **options(tmp_path)) as driver:
        sessions = [await open_session(driver) for _ in range(4)]
        made = [await session.turn(text("hello")) for session in sessions]
        seen = [json.loads(done.invocation.response_text) for done in made]
        assert len({one["port"] for one in seen}) == 2
        assert [one["port"] for one in seen[:2]] == [one["port"] for one in seen[2:]]
        assert isinstance(await sessions[0].turn(text("die")), AttemptError)
        assert isinstance(await sessions[1].turn(text("hello")), TurnDone), "the other server is not concerned"
        assert isinstance(await (await open_session(driver)).turn(text("hello")), TurnDone)
    assert not any(is_alive(one["child"]) for one in seen)


async def test_command_that_ends_at_once_or_is_not_there_says_so(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("print('no model'); raise SystemExit(3)")
    for command, words, trace in (
        ((sys.executable, "broken.py"), "exit code 3", "no model"),
        (("no-such-program",), "`no-such-program`", "install it"),
    ):
        driver = make_driver(tmp_path, ENVIRON, driver="openai", command=command)
        error = await driver.start()
        await driver.stop()
        assert isinstance(error, AttemptError)
        assert error.kind is ErrorKind.ENVIRONMENT
        assert words in error.message
        assert trace in error.traceback


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="who listens is known on Linux alone")
async def test_another_process_on_its_port_is_not_taken_for_the_server(tmp_path: Path) -> None:
    """It takes the port when the program has learnt it and does not listen yet."""
    port = tmp_path / "port"
    (tmp_path / "slow.py").write_text(
        f"import os, pathlib, time\npathlib.Path({str(port)!r}).write_text(os.environ['PORT'])\ntime.sleep(600)"
    )
    driver = make_driver(tmp_path, ENVIRON, driver="openai", command=(sys.executable, "slow.py"))
    starting = asyncio.ensure_future(driver.start())
    try:
        await written(port)
        with serving(Quiet, int(port.read_text())):
            started = await starting
    finally:
        await driver.stop()
    assert isinstance(started, AttemptError)
    assert started.kind is ErrorKind.ENVIRONMENT
    assert f"a process of user {os.getuid()} listens on port" in started.message


async def test_port_that_changes_hands_during_a_turn_takes_its_answer(tmp_path: Path) -> None:
    """The server stops to listen when it is told to, and whoever waits for that answers in its place."""
    left = tmp_path / "left"
    said = {"choices": [{"message": {"role": "assistant", "content": "from somebody else"}}]}

    class Impostor(Quiet):
        value = said

    (tmp_path / "leaver.py").write_text(LEAVER)
    async with driving(
        tmp_path, ENVIRON, driver="openai", command=(sys.executable, "leaver.py", "{port}", str(left))
    ) as driver:
        await written(left)
        with serving(Impostor, int(left.read_text())):
            done = await (await open_session(driver)).turn(text("hello"))
        assert driver.traces._receiver._open == set(), "later turns would share their spans with this one"
    assert isinstance(done, AttemptError), done
    assert "its answers are not taken" in done.message


def test_a_start_that_is_given_up_leaves_no_program(tmp_path: Path) -> None:
    logs = OutputFolder.at(tmp_path)
    spec = AgentRuntimeSpec("given-up", tmp_path, tmp_path, logs, logs, environ=os.environ)

    async def give_up() -> None:
        starting = asyncio.ensure_future(begin_program(spec, ("sleep", "600"), program_log(spec)))
        await asyncio.sleep(0)  # the thread that starts it has begun
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    before = child_pids()
    asyncio.run(give_up())

    assert child_pids() == before
