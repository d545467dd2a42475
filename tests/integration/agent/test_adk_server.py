"""The adk_server driver against servers of other languages, and against what is none of ADK: what is sent and read."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.agents.adk_server import choose_app
from agent_eval_action.agents.base import AgentSession, SessionEnd, SessionRequest, TurnDone
from agent_eval_action.results.evalset import Content, FunctionResponse, Part, PastEvent
from agent_eval_action.results.run_result import AttemptError, ErrorKind
from support.live_agents import driving, make_driver, open_session, text
from support.model_server.wire import HangConnection, HttpRequest, HttpResponse, ResetConnection, json_response
from support.serving import listening

CALL = {"functionCall": {"id": "c1", "name": "roll", "args": {"dieSides": 6}}}
RESULT = {"functionResponse": {"id": "c1", "name": "roll", "response": {"rolledOnce": 4}}}
USAGE = {"promptTokenCount": 3, "totalTokenCount": 5}


def event(*parts: Any, author: str = "bot", **more: Any) -> dict[str, Any]:
    return {"author": author, "content": {"role": "model", "parts": list(parts)}, **more}


def stream(*events: Any) -> HttpResponse:
    lines = [entry if isinstance(entry, str) else f"data: {json.dumps(entry)}\n\n" for entry in events]
    return HttpResponse(200, headers={"Content-Type": "text/event-stream"}, chunks=tuple(map(str.encode, lines)))


@dataclass
class Server:
    """An ADK server whose turns are ``answers``, in order; an exception is raised instead."""

    answers: list[Any]
    session: dict[str, Any] = field(default_factory=dict)
    snake: bool = False
    has_streams: bool = True
    refusals: list[HttpResponse] = field(default_factory=list)
    """The answers to the first requests for a session."""
    requests: list[HttpRequest] = field(default_factory=list)

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        self.requests.append(request)
        path = request.path
        if path == "/list-apps":
            return json_response(["bot", "other"])
        if path.startswith("/run"):
            if path == "/run_sse" and not self.has_streams:
                return json_response({"detail": "Not Found"}, 404)
            answer = self.answers.pop(0)
            if isinstance(answer, type):
                raise answer
            return answer
        if request.verb == "POST":
            asked = json.loads(request.body or "{}")
            name = asked.get("sessionId") or asked.get("session_id")
            fields = {"id": name, "state": asked.get("state", {}), "events": asked.get("events", [])}
            app = {"app_name" if self.snake else "appName": "bot"}
            made = json_response({**fields, **app, **self.session})
            return self.refusals.pop(0) if self.refusals else made
        if request.verb == "GET" and "/sessions/" in path:
            return json_response({"id": "s", "state": {"seen": 1}})
        return json_response(None) if request.verb == "DELETE" else json_response({}, 404)

    def bodies(self, path: str) -> list[dict[str, Any]]:
        return [json.loads(request.body) for request in self.requests if request.path == path]


@contextlib.asynccontextmanager
async def session_with(folder: Path, server: Server, **request: Any) -> AsyncIterator[AgentSession]:
    with listening(server) as url:
        async with driving(folder, driver="adk_server", url=url, timeout_s=2) as driver:
            session = await open_session(driver, **request)
            yield session
            await session.close()


async def error_of(folder: Path, *answers: Any) -> AttemptError:
    async with session_with(folder, Server(list(answers))) as session:
        done = await session.turn(text("hello"))
        assert isinstance(done, AttemptError), done
        return done


async def test_a_server_that_refuses_a_session_for_its_rate_is_no_dead_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_eval_action.agents.adk_server._ASK_S", 2.0)
    refused = HttpResponse(429, headers={"Retry-After": "3"}, chunks=(b"{}",))
    async with session_with(tmp_path, Server([stream(event({"text": "hello"}))], refusals=[refused])) as session:
        assert isinstance(await session.turn(text("hello")), TurnDone)


async def test_trajectory_authors_usage_and_final_state(tmp_path: Path) -> None:
    events = (
        event(CALL, author="clerk", usageMetadata=USAGE, modelVersion="m-1"),
        event(RESULT, author="clerk"),
        {"author": "clerk", "actions": {"stateDelta": {"seen": 1}}},
        event({"text": "par"}, partial=True),
        event({"text": "partial no more"}),
    )
    server = Server([stream(*events)])
    async with session_with(tmp_path, server) as session:
        done = await session.turn(text("hello"))
        assert isinstance(done, TurnDone), done
        turn = done.invocation
        assert turn.response_text == "partial no more"
        assert [(call.id, call.name, call.args) for call in turn.tool_calls()] == [("c1", "roll", {"dieSides": 6})]
        assert [found.response for found in turn.tool_responses()] == [{"rolledOnce": 4}]
        recorded = turn.intermediate_data.invocation_events
        assert [found.author for found in recorded] == ["clerk", "clerk", "bot"]
        assert recorded[0].usage_metadata == {"prompt_token_count": 3, "total_token_count": 5}
        assert turn.model_duration is None
        assert await session.close() == SessionEnd({"seen": 1})
    assert [request.verb for request in server.requests[-2:]] == ["GET", "DELETE"]
    (body,) = server.bodies("/run_sse")
    assert body["newMessage"] == {"role": "user", "parts": [{"text": "hello"}]}
    assert body["appName"] == "bot"


async def test_calls_are_told_of_as_they_come_also_where_the_turn_fails_afterwards(tmp_path: Path) -> None:
    told: list[Any] = []
    malformed = event({"functionCall": {"name": 3}})
    server = Server([stream(event(CALL), malformed, event(CALL, partial=True), "the agent failed\n\n")])
    async with session_with(tmp_path, server, on_call=told.append) as session:
        assert isinstance(await session.turn(text("hello")), AttemptError)
    assert [(call.name, call.args) for call in told] == [("roll", {"dieSides": 6})]


async def test_server_that_speaks_snake_case_without_streams(tmp_path: Path) -> None:
    answer = json_response([{"author": "bot", "content": {"role": "model", "parts": [{"text": "hi"}]}}])
    server = Server([answer, answer], snake=True, has_streams=False)
    async with session_with(tmp_path, server) as session:
        for _ in range(2):
            done = await session.turn(text("hello"))
            assert isinstance(done, TurnDone), done
            assert done.invocation.response_text == "hi"
    assert [set(body) for body in server.bodies("/run")] == [
        {"app_name", "user_id", "session_id", "new_message", "streaming"}
    ] * 2
    assert len(server.bodies("/run_sse")) == 1, "it is not asked for a stream again"


@pytest.mark.parametrize("snake", [False, True])
async def test_an_answer_to_a_call_that_waits_gets_the_id_of_the_call(tmp_path: Path, *, snake: bool) -> None:
    call = {"functionCall": {"id": "adk-1", "name": "adk_request_confirmation", "args": {}}}
    ids = {"long_running_tool_ids" if snake else "longRunningToolIds": ["adk-1"]}
    server = Server([stream(event(call, **ids)), stream(event({"text": "done"}))], snake=snake)
    answer = FunctionResponse(name="adk_request_confirmation", response={"confirmed": True})
    async with session_with(tmp_path, server) as session:
        await session.turn(text("pay"))
        done = await session.turn(Content(role="user", parts=(Part(function_response=answer),)))
        assert isinstance(done, TurnDone), done
        failed = await session.turn(Content(role="user", parts=(Part(function_response=answer),)))
    assert isinstance(failed, AttemptError)
    assert (failed.kind, failed.turn) == (ErrorKind.NOT_ASKED, 2)
    sent = server.bodies("/run_sse")[1]["new_message" if snake else "newMessage"]["parts"][0]
    assert sent["function_response" if snake else "functionResponse"]["id"] == "adk-1"


async def test_refused_rate_is_waited_for_and_counted(tmp_path: Path) -> None:
    refusal = HttpResponse(429, headers={"Retry-After": "0"}, chunks=(b"{}",))
    async with session_with(tmp_path, Server([refusal, stream(event({"text": "hi"}))])) as session:
        done = await session.turn(text("hello"))
        assert isinstance(done, TurnDone), done
        assert done.throttled == 1


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (stream(event(CALL), {"error": "ValueError: no stock", "error_details": {}}), ErrorKind.EXCEPTION),
        (stream({"error": "ClientError: 429 RESOURCE_EXHAUSTED"}), ErrorKind.RATE_LIMITED),
        (stream({"author": "bot", "errorCode": "503", "errorMessage": "overloaded"}), ErrorKind.UNAVAILABLE),
        (stream({"author": "bot", "error_code": "MODEL", "error_message": "no model"}), ErrorKind.EXCEPTION),
        (stream(event(CALL), "Error while running agent: no stock\n"), ErrorKind.EXCEPTION),
        (json_response({"detail": "the tool failed"}, 500), ErrorKind.EXCEPTION),
        (json_response({"detail": "busy"}, 503), ErrorKind.UNAVAILABLE),
        (stream("data: {broken\n\n"), ErrorKind.PROTOCOL),
        (stream("data: " + "[" * 20_000 + "\n\n"), ErrorKind.PROTOCOL),
        (stream({"author": "bot", "content": {"parts": "many"}}), ErrorKind.PROTOCOL),
        (HttpResponse(200, headers={"Content-Type": "text/html"}, chunks=(b"<html>",)), ErrorKind.PROTOCOL),
        (ResetConnection, ErrorKind.UNAVAILABLE),
        (HangConnection, ErrorKind.TIMEOUT),
        (json_response({"detail": "Session not found: s"}, 404), ErrorKind.ENVIRONMENT),
    ],
    ids=[f"{number}" for number in range(14)],
)
async def test_what_fails_is_an_error_of_its_kind(tmp_path: Path, answer: Any, kind: ErrorKind) -> None:
    error = await error_of(tmp_path, answer)
    assert error.kind is kind, error
    assert error.turn == 0


async def test_model_that_was_cut_short_has_answered(tmp_path: Path) -> None:
    async with session_with(tmp_path, Server([stream({"author": "bot", "errorCode": "MAX_TOKENS"})])) as session:
        done = await session.turn(text("hello"))
        assert isinstance(done, TurnDone), done
        assert done.invocation.response_text == ""


async def test_hostile_texts_of_ten_megabytes_are_read(tmp_path: Path) -> None:
    answer = "\x00\x1b[31m\ud800" + "x" * 10_000_000
    async with session_with(tmp_path, Server([stream(event({"text": answer}))])) as session:
        done = await session.turn(text("\ud800"))
        assert isinstance(done, TurnDone), done
        assert len(done.invocation.response_text.encode()) > 10_000_000


@pytest.mark.parametrize(
    ("lost", "begin"),
    [
        ({"state": {}}, {"state": {"note": 1}}),
        ({"state": {"state": {"note": 1}}}, {"state": {"note": 1}}),
        ({"events": []}, {"history": (PastEvent(author="user", content=text("before")),)}),
    ],
)
async def test_case_whose_beginning_the_server_lost_is_not_measured(tmp_path: Path, lost: Any, begin: Any) -> None:
    with listening(Server([], session=lost)) as url:
        async with driving(tmp_path, driver="adk_server", url=url) as driver:
            error = await driver.open(SessionRequest("app", "user", **begin))
            assert isinstance(error, AttemptError)
            assert error.kind is ErrorKind.ENVIRONMENT


async def test_users_and_sessions_of_attempts(tmp_path: Path) -> None:
    server = Server([])
    with listening(server) as url:
        async with driving(tmp_path, driver="adk_server", url=url) as driver:
            for session_id in ("pinned", "pinned", None):
                await (await open_session(driver, session_id=session_id)).close()
    made = [json.loads(request.body)["sessionId"] for request in server.requests if request.verb == "POST"]
    assert len(set(made)) == 3
    assert [name.startswith("pinned-") for name in made] == [True, True, False]


def test_app_is_found_by_name_or_is_the_only_one() -> None:
    assert choose_app(["shop"], ("bot", "agents")) == "shop"
    assert choose_app(["shop", "agents"], ("bot", "agents")) == "agents"
    error = choose_app(["shop", "dice"], ("shopp", "agents"))
    assert isinstance(error, AttemptError)
    assert "did you mean" in error.message
    assert isinstance(choose_app([], ("bot",)), AttemptError)


async def test_server_that_is_not_there_or_is_none_of_adk_is_an_error_of_the_start(tmp_path: Path) -> None:
    async def other(_: HttpRequest) -> HttpResponse:
        return json_response({"apps": 1})

    with listening(other) as url:
        assert await _start_error(tmp_path, url) is ErrorKind.PROTOCOL
    assert await _start_error(tmp_path, url) is ErrorKind.UNAVAILABLE


async def _start_error(folder: Path, url: str) -> ErrorKind:
    driver = make_driver(folder, driver="adk_server", url=url)
    error = await driver.start()
    await driver.stop()
    assert isinstance(error, AttemptError)
    return error.kind


def test_parts_are_sent_as_google_spells_them() -> None:
    part = Part(inline_data={"mime_type": "image/png", "data": "AA=="})
    dumped = Content(role="user", parts=(part,)).model_dump(mode="json", exclude_none=True, by_alias=True)
    assert "inlineData" in dumped["parts"][0]
