"""The text of a program that answers as ADK's server does, always the same: for agents in a repository of a test."""

from __future__ import annotations

import json
from pathlib import Path

from support.dice_job import ONE

SERVER = """
import http.server, json, pathlib, socket, subprocess, sys, time

class Server(http.server.BaseHTTPRequestHandler):
    said = "hello there"

    def answer(self, value, status=200):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(["greeter"] if self.path == "/list-apps" else {"id": "s", "state": {}})

    def do_DELETE(self):
        self.answer(None)

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/run":
            self.answer([{"author": "greeter", "content": {"role": "model", "parts": [{"text": self.said}]}}])
        elif self.path == "/run_sse":
            self.answer({}, 404)
        else:
            self.answer({"id": "s", "appName": "greeter", "state": {}, "events": []})

def serve(port):
    while True:
        try:
            http.server.ThreadingHTTPServer(("127.0.0.1", port), Server).serve_forever()
        except OSError:
            time.sleep(0.1)  # whoever holds the port may go
"""
SERVES = (
    SERVER
    + """
time.sleep(1)  # as a server that imports a framework
serve(int(sys.argv[1]))
"""
)
SERVES_WORSE = SERVES.replace("hello there", "go away")


def write_agent(folder: Path, python: str) -> None:
    """Make the agent of a checkout of the example this server, with one case, ``players_own_die``."""
    said = {"role": "user", "parts": [{"text": "hello"}]}
    turn = {"user_content": said, "final_response": {"role": "model", "parts": [{"text": "hello there"}]}}
    cases = [{"eval_id": ONE, "conversation": [turn]}]
    (folder / "evals" / "smoke.test.json").unlink()
    (folder / "greeter").mkdir()
    for name, text in {
        "agent-eval.yaml": served_by(python),
        "greeter/server.py": SERVES,
        "evals/dice.evalset.json": json.dumps({"eval_set_id": "a", "eval_cases": cases}),
        "evals/test_config.json": json.dumps({"criteria": {"response_match_score": 0.8}}),
    }.items():
        (folder / name).write_text(text)


def served_by(python: str) -> str:
    """Return an agent-eval.yaml whose agent is ``greeter/server.py``, run by an interpreter."""
    agent = {"name": "greeter", "path": "greeter", "driver": "adk_server", "evals": "evals"}
    return json.dumps({"agent": {**agent, "command": [python, "server.py", "{port}"]}, "retries": 0})
