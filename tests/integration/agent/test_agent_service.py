"""The server of a command: started on a free port, waited for, explained when it ends, and gone afterwards."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from agent_eval_action.agents.base import TurnDone
from agent_eval_action.results.run_result import AttemptError, ErrorKind
from support.live_agents import driving, make_driver, open_session, text

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
        answer = json.dumps({"choices": [{"message": {"role": "assistant", "content": json.dumps(seen)}}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_GET(self):
        self.send_response(404)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
ENVIRON = {"PATH": "/usr/bin:/bin", "GITHUB_TOKEN": "secret", "OPENAI_API_KEY": "k"}


def options(folder: Path) -> dict[str, object]:
    (folder / "server.py").write_text(SERVER)
    return {"driver": "openai", "command": (sys.executable, "server.py", "{port}")}


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie of a test's container does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


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
