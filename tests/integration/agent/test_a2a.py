"""The a2a driver against a2a-sdk's server in both protocols, and against servers that keep less to the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.agents.base import SessionRequest, TurnDone
from agent_eval_action.results.evalset import Content, FunctionCall, FunctionResponse, Part, PastEvent
from agent_eval_action.results.run_result import ErrorKind, Usage
from support.live_agents import driving, make_driver, open_session, text
from support.model_server.wire import HttpRequest, HttpResponse, json_response
from support.serving import listening

pytest.importorskip("a2a", reason="a2a-sdk is not installed: `make setup` installs it")

from support.a2a_peer import Peer, a2a_peer

CARD = "/.well-known/agent-card.json"
FORMER_CARD = "/.well-known/agent.json"

PEERS: dict[str, dict[str, Any]] = {
    "1.0 streaming": {},
    "0.3": {"versions": ("0.3",), "streaming": False},
    "1.0": {"streaming": False},
    "0.3 streaming": {"versions": ("0.3",)},
    "HTTP+JSON": {"binding": "HTTP+JSON"},
    "HTTP+JSON 0.3": {"binding": "HTTP+JSON", "versions": ("0.3",), "streaming": False},
}


@pytest.fixture(scope="module", params=[pytest.param(options, id=name) for name, options in PEERS.items()])
def peer(request):
    with a2a_peer(**request.param) as started:
        yield started


@contextlib.asynccontextmanager
async def session_of(peer: Peer, folder, request=None, **options):
    async with driving(folder, driver="a2a", url=peer.url, **options) as driver:
        session = await open_session(driver, **request or {})
        yield session
        await session.close()


@pytest.mark.exhaustive(after=2)
async def test_tool_calls_of_an_adk_server_are_the_trajectory(peer, tmp_path):
    async with session_of(peer, tmp_path) as session:
        turn = await session.turn(text("roll 6"))
    assert turn.invocation.tool_calls() == (FunctionCall(id="c1", name="roll", args={"sides": 6, "weights": [0.5, 1]}),)
    assert turn.invocation.tool_responses() == (FunctionResponse(id="c1", name="roll", response={"result": 4}),)
    assert type(turn.invocation.tool_calls()[0].args["sides"]) is int
    assert turn.invocation.response_text == "a four"
    assert {event.author for event in turn.invocation.intermediate_data.invocation_events} == {"dice"}
    said = [part.text for event in turn.invocation.intermediate_data.invocation_events for part in event.content.parts]
    assert "a four" not in said


@pytest.mark.exhaustive(after=2)
async def test_turns_share_a_context_and_sessions_do_not(peer, tmp_path):
    async with session_of(peer, tmp_path) as first, session_of(peer, tmp_path) as second:
        answers = [(await session.turn(text("plain"))).invocation.response_text for session in (first, second, first)]
    assert answers == ["message 1", "message 1", "message 2"]


@pytest.mark.exhaustive(after=2)
async def test_a_task_that_asks_goes_on_with_the_next_turn(peer, tmp_path):
    async with session_of(peer, tmp_path) as session:
        asked = await session.turn(text("ask"))
        answered = await session.turn(text("answer blue"))
        after = await session.turn(text("answer red"))
    assert asked.invocation.response_text == "which one?"
    assert answered.invocation.response_text == "blue in the same task"
    assert answered.invocation.intermediate_data.invocation_events == ()
    assert after.invocation.response_text == "red in another task"


@pytest.mark.exhaustive(after=2)
async def test_an_answer_to_a_call_that_waits_gets_the_id_of_the_call(peer, tmp_path):
    response = FunctionResponse(name="adk_request_confirmation", response={"confirmed": True})
    answer = Content(role="user", parts=(Part(function_response=response),))
    async with session_of(peer, tmp_path) as session:
        await session.turn(text("confirm"))
        done = await session.turn(answer)
        failed = await session.turn(answer)
    assert done.invocation.response_text == "c1"
    assert failed.kind is ErrorKind.NOT_ASKED


@pytest.mark.parametrize(
    ("words", "kind", "says"),
    [
        ("fail", ErrorKind.EXCEPTION, "the dice are gone"),
        ("reject", ErrorKind.EXCEPTION, "rejected"),
        ("login", ErrorKind.CREDENTIALS, "sign in"),
    ],
)
@pytest.mark.exhaustive(after=2)
async def test_a_task_that_does_not_end_well_is_an_error(peer, tmp_path, words, kind, says):
    async with session_of(peer, tmp_path) as session:
        error = await session.turn(text(words))
    assert (error.kind, error.turn) == (kind, 0)
    assert says in error.message


@pytest.mark.exhaustive(after=2)
async def test_the_state_of_a_case_comes_with_its_first_message(peer, tmp_path):
    async with session_of(peer, tmp_path, {"state": {"tier": "gold", "n": 2}}) as session:
        turn = await session.turn(text("state"))
        end = await session.close()
    assert json.loads(turn.invocation.response_text) == {"tier": "gold", "n": 2}
    assert end.final_state is None


async def test_chunks_of_an_artifact_are_one_text(tmp_path):
    with a2a_peer() as peer:
        async with session_of(peer, tmp_path) as session:
            turn = await session.turn(text("chunks Hel lo"))
    assert turn.invocation.response_text == "Hello"


async def test_headers_go_with_every_request(tmp_path):
    with a2a_peer() as peer:
        async with session_of(peer, tmp_path, headers={"Authorization": "Bearer t0k3n"}) as session:
            await session.turn(text("plain"))
    assert [seen["authorization"] for seen in peer.seen] == ["Bearer t0k3n", "Bearer t0k3n"]


async def test_a_turn_that_takes_too_long_is_cancelled_on_the_server(tmp_path):
    with a2a_peer() as peer:
        async with session_of(peer, tmp_path, timeout_s=0.5) as session:
            turn = await session.turn(text("hang"))
            assert turn.kind is ErrorKind.TIMEOUT
            assert peer.cancelled == 1
            assert isinstance(await session.turn(text("plain")), TurnDone)


async def test_a_turn_that_is_given_up_is_cancelled_on_the_server(tmp_path):
    with a2a_peer() as peer:
        async with session_of(peer, tmp_path) as session:
            turn = asyncio.ensure_future(session.turn(text("hang")))
            while not (peer.hanging and session._running_task):  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
            turn.cancel()
            with pytest.raises(asyncio.CancelledError):
                await turn
    assert peer.cancelled == 1


async def test_a_server_of_a_command_is_asked_where_it_listens_whatever_its_card_says(tmp_path):
    command = (sys.executable, "-m", "support.a2a_peer", "{port}")
    env = {"PYTHONPATH": str(Path(__file__).parents[2])}
    async with driving(tmp_path, {"PATH": os.environ["PATH"]}, driver="a2a", command=command, env=env) as driver:
        session = await open_session(driver)
        turn = await session.turn(text("roll 6"))
        await session.close()
    assert turn.invocation.response_text == "a four"


async def test_a_history_cannot_be_measured(tmp_path):
    with a2a_peer() as peer:
        async with driving(tmp_path, driver="a2a", url=peer.url) as driver:
            event = PastEvent(author="user", content=Content(parts=(Part(text="hi"),)))
            session = await driver.open(SessionRequest("app", "user", history=(event,)))
    assert session.kind is ErrorKind.ENVIRONMENT


def card(url: str, **more: Any) -> dict[str, Any]:
    return {"name": "old", "url": url, "capabilities": {}, "skills": [], **more}


@dataclass
class JsonRpcServer:
    """A server of the 0.3 wire whose answers a test gives, in order; its card lies where it did before 0.3."""

    results: list[Any]
    card_path: str = FORMER_CARD
    card: dict[str, Any] = field(default_factory=lambda: card("/rpc"))
    requests: list[tuple[str, Any]] = field(default_factory=list)

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.verb == "GET":
            self.requests.append(("card", request.path))
            return json_response(self.card) if request.path == self.card_path else HttpResponse(404)
        body = json.loads(request.body)
        self.requests.append((body["method"], body["params"]))
        result = self.results.pop(0)
        if isinstance(result, HttpResponse):
            return result
        return json_response({"jsonrpc": "2.0", "id": body["id"], **result})


def task(state: str, **more: Any) -> dict[str, Any]:
    return {"result": {"kind": "task", "id": "t1", "contextId": "c1", "status": {"state": state}, **more}}


def artifact(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"artifactId": "a1", "parts": list(parts)}


@contextlib.asynccontextmanager
async def served(folder, *results: Any, **server: Any):
    handler = JsonRpcServer(list(results), **server)
    with listening(handler) as url:
        async with driving(folder, driver="a2a", url=url) as driver:
            session = await open_session(driver)
            yield session, handler
            await session.close()


async def test_a_card_at_its_former_place_is_found_and_a_task_is_asked_for_until_it_is_over(tmp_path):
    done = task("completed", artifacts=[artifact({"kind": "text", "text": "done"})])
    async with served(tmp_path, task("submitted"), task("working"), done) as (session, server):
        turn = await session.turn(text("go"))
    assert turn.invocation.response_text == "done"
    assert [name for name, _ in server.requests] == ["card", "card", "message/send", "tasks/get", "tasks/get"]


async def test_usage_and_author_of_adk_are_read(tmp_path):
    metadata = {"adk_author": "helper", "adk_usage_metadata": {"promptTokenCount": 5, "candidatesTokenCount": 2}}
    message = {"kind": "message", "role": "agent", "messageId": "m1", "parts": [{"kind": "text", "text": "hi"}]}
    status = {"state": "working", "message": message}
    update = {"kind": "status-update", "taskId": "t1", "contextId": "c1", "final": False, "status": status}
    end = {**update, "final": True, "status": {"state": "completed"}}
    chunks = [{"jsonrpc": "2.0", "id": "1", "result": result} for result in ({**update, "metadata": metadata}, end)]
    stream = tuple(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks)
    answer = HttpResponse(200, headers={"Content-Type": "text/event-stream"}, chunks=stream)
    streaming = card("/rpc", capabilities={"streaming": True})
    async with served(tmp_path, answer, card=streaming, card_path=CARD) as (session, _):
        turn = await session.turn(text("go"))
    assert turn.invocation.response_text == "hi"
    (event,) = turn.invocation.intermediate_data.invocation_events
    assert (event.author, event.content) == ("helper", None)
    assert (Usage.of_turns([turn.invocation]).input_tokens, Usage.of_turns([turn.invocation]).output_tokens) == (5, 2)


async def test_calls_that_only_an_artifact_holds_are_seen_once(tmp_path):
    call = {"kind": "data", "data": {"id": "c1", "name": "roll", "args": {}}, "metadata": {"adk_type": "function_call"}}
    odd = {"kind": "data", "data": {"name": 3}, "metadata": {"adk_type": "function_call"}}
    done = task("completed", artifacts=[artifact(call, call, odd)])
    async with served(tmp_path, done) as (session, _):
        turn = await session.turn(text("go"))
    assert [call.name for call in turn.invocation.tool_calls()] == ["roll"]
    assert turn.invocation.response_text == '{"name": 3}'


async def test_no_call_is_lost_where_all_messages_of_a_task_have_one_id(tmp_path):
    def message(name: str) -> dict[str, Any]:
        data = {"kind": "data", "data": {"id": name, "name": name}, "metadata": {"adk_type": "function_call"}}
        return {"kind": "message", "role": "agent", "messageId": "m1", "parts": [data]}

    done = task("completed", history=[message("find"), message("pay"), message("pay")])
    async with served(tmp_path, done) as (session, _):
        turn = await session.turn(text("go"))
    assert [call.name for call in turn.invocation.tool_calls()] == ["find", "pay"]


async def test_a_refused_request_is_sent_again_and_counted(tmp_path):
    busy = HttpResponse(429, headers={"Retry-After": "0"})
    async with served(tmp_path, busy, task("completed")) as (session, _):
        turn = await session.turn(text("go"))
    assert isinstance(turn, TurnDone), turn
    assert turn.throttled == 1
    assert turn.invocation.final_response is None


RATE = {"adk_error_code": "429"}


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        ({"error": {"code": -32603, "message": "broke"}}, ErrorKind.EXCEPTION),
        ({"error": {"code": -32000, "message": "\x1b[2J"}}, ErrorKind.PROTOCOL),
        ({"result": {"kind": "task", "status": {"state": "working"}}}, ErrorKind.PROTOCOL),
        ({"result": [1]}, ErrorKind.PROTOCOL),
        ({}, ErrorKind.PROTOCOL),
        (HttpResponse(200, b"hello"), ErrorKind.PROTOCOL),
        (HttpResponse(200, b"[" * 100_000), ErrorKind.PROTOCOL),
        (HttpResponse(403), ErrorKind.CREDENTIALS),
        (HttpResponse(500, b'{"detail": "broke"}'), ErrorKind.EXCEPTION),
        (HttpResponse(502), ErrorKind.UNAVAILABLE),
        (HttpResponse(200, b"{}" * 10, cut=3), ErrorKind.UNAVAILABLE),
        (
            task(
                "failed",
                status={
                    "state": "failed",
                    "message": {"kind": "message", "messageId": "m", "role": "agent", "parts": [], "metadata": RATE},
                },
            ),
            ErrorKind.RATE_LIMITED,
        ),
    ],
    ids=str,
)
async def test_what_is_no_answer_is_an_error_of_its_kind(tmp_path, result, kind):
    async with served(tmp_path, result) as (session, _):
        error = await session.turn(text("go"))
    assert getattr(error, "kind", error) is kind
    assert "\x1b" not in error.message


async def start_error(folder, handler) -> Any:
    with listening(handler) as url:
        driver = make_driver(folder, driver="a2a", url=url)
        try:
            started = await driver.start()
            return started if hasattr(started, "kind") else await driver.open(SessionRequest("app", "user"))
        finally:
            await driver.stop()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (HttpResponse(404), ErrorKind.ENVIRONMENT),
        (HttpResponse(401), ErrorKind.CREDENTIALS),
        (HttpResponse(200, b"<html>"), ErrorKind.ENVIRONMENT),
        (HttpResponse(200, b"[" * 100_000), ErrorKind.ENVIRONMENT),
        (json_response(["card"]), ErrorKind.ENVIRONMENT),
        (json_response({"name": 3, "url": "http://x"}), ErrorKind.ENVIRONMENT),
        (json_response({"name": "x", "supportedInterfaces": []}), ErrorKind.ENVIRONMENT),
        (json_response(card("http://x", preferredTransport="GRPC")), ErrorKind.ENVIRONMENT),
    ],
    ids=str,
)
async def test_a_card_that_cannot_be_used_is_said_before_the_first_case(tmp_path, answer, kind):
    async def handler(_: HttpRequest) -> HttpResponse:
        return answer

    assert (await start_error(tmp_path, handler)).kind is kind
