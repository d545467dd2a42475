"""Drivers that start a server get its trajectory from what OpenTelemetry's own SDK exports in that process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.agents import AGENTS
from agent_eval_action.agents.base import AgentDriver, DriverContext, TurnDone
from agent_eval_action.config.models import AgentSettings, Settings
from agent_eval_action.results.evalset import FunctionCall, FunctionResponse, Invocation
from support.command import agent_eval
from support.live_agents import driving, open_session, text

SERVER = """
import http.server, json, sys
from opentelemetry import propagate
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
tracer = provider.get_tracer("agent")

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        said = json.loads(self.rfile.read(int(self.headers["content-length"])))["messages"][-1]["content"]
        with tracer.start_as_current_span("invoke_agent", context=propagate.extract(dict(self.headers))) as agent:
            agent.set_attributes({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"})
            with tracer.start_as_current_span("chat m") as chat:
                chat.set_attributes({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m",
                    "gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 3})
            with tracer.start_as_current_span("execute_tool roll") as tool:
                tool.set_attributes({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "roll",
                    "gen_ai.tool.call.id": "c1", "gen_ai.tool.call.result": '{"rolled": 3}'})
                if said != "blind":
                    tool.set_attribute("gen_ai.tool.call.arguments", json.dumps({"label": said}))
        body = json.dumps({"choices": [{"message": {"role": "assistant", "content": "rolled"}}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.send_response(404)
        self.end_headers()

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


PROGRAM = """
import json, os, secrets, sys, time, urllib.request

for line in sys.stdin:
    request = json.loads(line)
    named = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "roll"}
    named["gen_ai.tool.call.arguments"] = json.dumps({"label": request["user_text"]})
    if request["user_text"].startswith("blind"):
        del named["gen_ai.tool.call.arguments"]
    told = request["traceparent"].split("-")[1]
    span = {"traceId": told if "told" in sys.argv else secrets.token_hex(16), "spanId": secrets.token_hex(8)}
    span["startTimeUnixNano"] = span["endTimeUnixNano"] = str(time.time_ns())
    span["attributes"] = [{"key": name, "value": {"stringValue": value}} for name, value in named.items()]
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
    url = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] + "/v1/traces"
    urllib.request.urlopen(urllib.request.Request(url, body, {"content-type": "application/json"})).read()
    print(json.dumps({"text": "rolled"}), flush=True)
"""


@pytest.mark.parametrize("words", [("told",), ()], ids=["traceparent", "own traces"])
async def test_a_program_of_lines_has_its_spans_however_many_run_side_by_side(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = (sys.executable, "program.py", *words)
    async with driving(tmp_path, {"PATH": os.environ["PATH"]}, driver="command", command=command) as driver:
        labels = ["größer | <b>", "two", "three"]
        for label, turn in zip(labels, await asyncio.gather(*(answered(driver, each) for each in labels)), strict=True):
            assert [(call.name, call.args) for call in turn.tool_calls()] == [("roll", {"label": label})]


def test_arguments_that_were_not_captured_are_not_measured_and_the_switch_is_named(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    case = {
        "eval_id": "a",
        "conversation": [
            {
                "user_content": {"role": "user", "parts": [{"text": "blind"}]},
                "final_response": {"role": "model", "parts": [{"text": "rolled"}]},
                "intermediate_data": {"tool_uses": [{"name": "roll", "args": {"label": "blind"}}]},
            }
        ],
    }
    (tmp_path / "x.evalset.json").write_text(json.dumps({"eval_set_id": "x", "eval_cases": [case]}))
    agent = {"driver": "command", "command": [sys.executable, "program.py", "told"], "evals": "x.evalset.json"}
    criteria = {"tool_trajectory_avg_score": 1.0, "response_match_score": 1.0}
    (tmp_path / "agent-eval.yaml").write_text(json.dumps({"agent": {**agent, "criteria": criteria}, "repeats": 3}))
    (tmp_path / ".git").mkdir()
    done = agent_eval("run", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    switch = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
    warned = [line for line in done.stderr.splitlines() if line.startswith("warning") and switch in line]
    assert len(warned) == 1, done.stderr
    assert switch in (tmp_path / ".agent-eval/out/comment.md").read_text()


SILENT = """
import json, sys

for line in sys.stdin:
    print(json.dumps({"text": "rolled"} | json.loads(sys.argv[1])), flush=True)
"""


def test_an_agent_that_shows_nothing_but_text_is_named_once_where_calls_are_scored(tmp_path: Path) -> None:
    content = {"role": "user", "parts": [{"text": "roll"}]}
    cases = [{"eval_id": name, "conversation": [{"user_content": content, "final_response": content}]} for name in "ab"]
    agents = []
    for name, criterion, answer in (
        ("silent", "tool_trajectory_avg_score", {}),
        ("unasked", "response_match_score", {}),
        ("open", "tool_trajectory_avg_score", {"tool_calls": [{"name": "roll", "args": {}}]}),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "program.py").write_text(SILENT)
        (tmp_path / name / "x.evalset.json").write_text(json.dumps({"eval_set_id": "x", "eval_cases": cases}))
        command = [sys.executable, "program.py", json.dumps(answer)]
        agents.append({"path": name, "driver": "command", "command": command, "criteria": {criterion: 0.0}})
    (tmp_path / "agent-eval.yaml").write_text(json.dumps({"agents": agents}))
    (tmp_path / ".git").mkdir()
    done = agent_eval("run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = [line.partition(":")[0] for line in done.stderr.splitlines() if "no answer named a tool call" in line]
    assert said == ["silent"], done.stderr


SIDE_BY_SIDE = """
import http.server, json, os, secrets, sys, threading, time, urllib.request

both = threading.Barrier(2, timeout=20)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        both.wait()
        named = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "delete"}
        span = {"traceId": secrets.token_hex(16), "spanId": secrets.token_hex(8)}
        span["startTimeUnixNano"] = span["endTimeUnixNano"] = str(time.time_ns())
        span["attributes"] = [{"key": name, "value": {"stringValue": value}} for name, value in named.items()]
        body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
        url = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] + "/v1/traces"
        urllib.request.urlopen(urllib.request.Request(url, body, {"content-type": "application/json"})).read()
        both.wait()
        body = json.dumps({"choices": [{"message": {"role": "assistant", "content": "rolled"}}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.send_response(404)
        self.end_headers()

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_calls_that_may_be_of_another_turn_are_not_measured_and_texts_are(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SIDE_BY_SIDE)
    cases = [
        {
            "eval_id": name,
            "conversation": [
                {
                    "user_content": {"role": "user", "parts": [{"text": name}]},
                    "final_response": {"role": "model", "parts": [{"text": "rolled"}]},
                    "intermediate_data": {"tool_uses": []},
                }
            ],
        }
        for name in ("a", "b")
    ]
    (tmp_path / "x.evalset.json").write_text(json.dumps({"eval_set_id": "x", "eval_cases": cases}))
    command = [sys.executable, "server.py", "{port}"]
    scored = {"tool_trajectory_avg_score": {"threshold": 1.0, "ignore_args": True}, "response_match_score": 1.0}
    agent = {"path": ".", "driver": "openai", "command": command, "evals": "x.evalset.json", "criteria": scored}
    (tmp_path / "agent-eval.yaml").write_text(json.dumps({"agent": agent, "concurrency": 2}))
    (tmp_path / ".git").mkdir()
    done = agent_eval("run", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "no spans came" not in done.stderr
    statuses = {score["criterion"]: score["status"] for line in attempts_of(tmp_path) for score in line["scores"]}
    assert statuses == {"tool_trajectory_avg_score": "error", "response_match_score": "scored"}


def attempts_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / ".agent-eval/out/attempts.jsonl").read_text().splitlines()]


async def answered(driver: AgentDriver, words: str) -> Invocation:
    done = await (await open_session(driver)).turn(text(words))
    assert isinstance(done, TurnDone), done
    assert done.invocation.response_text == "rolled"
    return done.invocation


@pytest.mark.exhaustive
async def test_an_answer_of_text_has_the_calls_of_its_own_spans(tmp_path: Path, peers_python: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    said: list[str] = []
    agent = AgentSettings(
        path=tmp_path, name="bot", driver="openai", command=(str(peers_python), "server.py", "{port}")
    )
    settings = Settings(workspace=tmp_path, start=tmp_path, agents=(agent,))
    environ = {"PATH": os.environ["PATH"]}
    driver = AGENTS["openai"](DriverContext(agent, settings, environ, tmp_path, say=lambda line, _: said.append(line)))
    try:
        await driver.start()
        labels = ["größer | <b>", "two", "three"]
        for label, turn in zip(labels, await asyncio.gather(*(answered(driver, each) for each in labels)), strict=True):
            assert turn.tool_calls() == (FunctionCall(id="c1", name="roll", args={"label": label}),)
            events = turn.intermediate_data.invocation_events
            parts = [part for event in events if event.content for part in event.content.parts]
            assert FunctionResponse(id="c1", name="roll", response={"rolled": 3}) in [
                p.function_response for p in parts
            ]
            assert [span.kind for span in turn.spans] == ["model", "tool"]
        assert said == []
        for _ in range(2):
            assert [call.args for call in (await answered(driver, "blind")).tool_calls()] == [None]
        assert ["CAPTURE_MESSAGE_CONTENT" in line for line in said] == [True]
    finally:
        await driver.stop()


@pytest.mark.exhaustive
async def test_the_endpoint_that_a_user_gives_the_agent_stays(tmp_path: Path, peers_python: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    given = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    options = {"driver": "openai", "command": (str(peers_python), "server.py", "{port}"), "env": given}
    async with driving(tmp_path, {"PATH": os.environ["PATH"]}, **options) as driver:
        assert (await answered(driver, "hi")).tool_calls() == ()
