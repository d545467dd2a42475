"""The openai driver against a server over real sockets: what is sent, what is read, and what each failure becomes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent_eval_action.agents.base import TurnDone
from agent_eval_action.results.evalset import Content, FunctionCall, FunctionResponse, Part, PastEvent
from agent_eval_action.results.run_result import AttemptError, ErrorKind, Usage
from support.live_agents import driving, make_driver, open_session, text
from support.model_server.wire import HangConnection, HttpRequest, HttpResponse, ResetConnection, json_response
from support.serving import listening

CALL = {"id": "c1", "type": "function", "function": {"name": "roll", "arguments": '{"sides": 6}'}}


def completion(message: dict[str, Any], finish: str = "stop", **more: Any) -> HttpResponse:
    return json_response({"model": "m-1", "choices": [{"message": message, "finish_reason": finish}], **more})


def said(words: str, **more: Any) -> HttpResponse:
    return completion({"role": "assistant", "content": words}, **more)


def stream(*chunks: Any, cut: int | None = None) -> HttpResponse:
    lines = [chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in chunks]
    body = tuple(f"data: {line}\n\n".encode() for line in lines)
    return HttpResponse(200, headers={"Content-Type": "text/event-stream; charset=utf-8"}, chunks=body, cut=cut)


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"model": "m-1", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


@dataclass
class Server:
    """Gives its answers in order; an exception is raised instead."""

    answers: list[Any]
    requests: list[HttpRequest] = field(default_factory=list)

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, type):
            raise answer
        return answer

    def body(self, number: int) -> dict[str, Any]:
        return json.loads(self.requests[number].body)


@contextlib.asynccontextmanager
async def session_with(folder, *answers, environ=None, request=None, **options):
    server = Server(list(answers))
    with listening(server) as url:
        async with driving(folder, environ, driver="openai", url=f"{url}/v1", **options) as driver:
            session = await open_session(driver, **request or {})
            yield session, server
            await session.close()


async def error_of(folder, answer, **options) -> AttemptError:
    async with session_with(folder, answer, **options) as (session, _):
        turn = await session.turn(text("hi"))
    assert isinstance(turn, AttemptError), turn
    return turn


async def test_a_turn_has_its_answer_usage_and_model(tmp_path):
    usage = {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 2},
    }
    async with session_with(tmp_path, said("hello", usage=usage), model="gpt-x") as (session, server):
        turn = await session.turn(text("hi"))
        end = await session.close()
    assert isinstance(turn, TurnDone)
    assert turn.invocation.response_text == "hello"
    assert turn.invocation.duration is not None
    total = Usage.of_turns([turn.invocation])
    assert (total.model_calls, total.input_tokens, total.output_tokens, total.total_tokens) == (1, 7, 3, 10)
    assert server.requests[0].path == "/v1/chat/completions"
    assert server.body(0) == {"model": "gpt-x", "messages": [{"role": "user", "content": "hi"}]}
    assert end.final_state is None


async def test_each_turn_sends_the_whole_conversation(tmp_path):
    async with session_with(tmp_path, said("one"), said("two")) as (session, server):
        await session.turn(text("first"))
        await session.turn(text("second"))
    roles = [(message["role"], message["content"]) for message in server.body(1)["messages"]]
    assert roles == [("user", "first"), ("assistant", "one"), ("user", "second")]


async def test_an_answer_to_a_call_that_waits_is_sent_as_the_tools_message(tmp_path):
    message = {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "c2"}]}
    response = FunctionResponse(name="roll", response={"result": 4})
    answer = Content(role="user", parts=(Part(function_response=response),))
    async with session_with(tmp_path, completion(message, "tool_calls"), said("four")) as (session, server):
        await session.turn(text("roll"))
        await session.turn(answer)
        failed = await session.turn(answer)
    sent = server.body(1)["messages"]
    assert sent[2] == {"role": "tool", "tool_call_id": "c1", "content": '{"result": 4}'}
    assert [(one["role"], one.get("tool_call_id")) for one in sent[3:]] == [("tool", "c2")]
    assert failed.kind is ErrorKind.NOT_ASKED


async def test_tool_calls_are_recorded_and_left_open_for_nobody(tmp_path):
    message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    async with session_with(tmp_path, completion(message, "tool_calls"), said("six")) as (session, server):
        turn = await session.turn(text("roll"))
        await session.turn(text("and?"))
    assert turn.invocation.tool_calls() == (FunctionCall(id="c1", name="roll", args={"sides": 6}),)
    assert turn.invocation.final_response is None
    sent = server.body(1)["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "user"]
    assert sent[1]["tool_calls"] == [CALL]
    assert sent[2]["tool_call_id"] == "c1"


async def test_messages_that_the_server_returns_are_the_trajectory(tmp_path):
    made = [
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": '{"result": 6}'},
        {"role": "assistant", "content": "six"},
    ]
    async with session_with(tmp_path, said("six", messages=made), said("ok")) as (session, server):
        turn = await session.turn(text("roll"))
        await session.turn(text("thanks"))
    assert turn.invocation.tool_responses() == (FunctionResponse(id="c1", name="roll", response={"result": 6}),)
    assert turn.invocation.response_text == "six"
    assert [message["role"] for message in server.body(1)["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]


async def test_of_a_whole_conversation_the_messages_of_the_turn_count(tmp_path):
    def made(asked: str) -> list[dict[str, Any]]:
        return [
            {"role": "user", "content": asked},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "6"},
            {"role": "user", "name": "critic", "content": "the other agent has checked it"},
            {"role": "assistant", "content": "six"},
        ]

    conversations = made("roll"), [{"role": "system", "content": "x"}, *made("roll"), *made("again")]
    answers = [said("six", messages=listed) for listed in conversations]
    async with session_with(tmp_path, *answers) as (session, _):
        turns = [await session.turn(text(words)) for words in ("roll", "again")]
    assert [len(turn.invocation.tool_calls()) for turn in turns] == [1, 1]


@pytest.mark.parametrize("arguments", ['{"sides": 6}', "not json", "", "[1]"])
async def test_a_deprecated_function_call_is_a_tool_call(tmp_path, arguments):
    message = {"role": "assistant", "content": None, "function_call": {"name": "roll", "arguments": arguments}}
    async with session_with(tmp_path, completion(message, "function_call")) as (session, _):
        turn = await session.turn(text("roll"))
    expected = {'{"sides": 6}': {"sides": 6}, "": {}, "[1]": {"arguments": [1]}}.get(
        arguments, {"arguments": arguments}
    )
    assert turn.invocation.tool_calls() == (FunctionCall(name="roll", args=expected),)


async def test_a_stream_is_read_as_the_message_it_makes_up(tmp_path):
    pieces = [{"index": 0, "id": "c1", "type": "function", "function": {"name": "roll", "arguments": '{"si'}}]
    rest = [{"index": 0, "function": {"arguments": 'des": 6}'}}]
    answer = stream(
        delta(role="assistant", content="Let me "),
        delta(content="see", tool_calls=pieces),
        delta(tool_calls=rest),
        delta("tool_calls"),
        {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}},
        "[DONE]",
    )
    async with session_with(tmp_path, answer) as (session, _):
        turn = await session.turn(text("roll"))
    assert turn.invocation.response_text == "Let me see"
    assert turn.invocation.tool_calls() == (FunctionCall(id="c1", name="roll", args={"sides": 6}),)
    assert Usage.of_turns([turn.invocation]).total_tokens == 6


@pytest.mark.parametrize("first", [{"index": 0, "id": "c1"}, {"index": 0}, {"id": "c1"}, {}], ids=json.dumps)
async def test_calls_of_a_stream_that_share_an_index_are_several(tmp_path, first):
    second = {**first, **({"id": "c2"} if "id" in first else {})}
    pieces = [
        {**entry, "function": {"name": name, "arguments": "{}"}} for entry, name in ((first, "find"), (second, "pay"))
    ]
    chunks = [delta(tool_calls=[piece]) for piece in pieces]
    async with session_with(tmp_path, stream(*chunks, delta("tool_calls"), "[DONE]")) as (session, _):
        turn = await session.turn(text("roll"))
    assert [call.name for call in turn.invocation.tool_calls()] == ["find", "pay"]


async def test_characters_that_end_lines_elsewhere_are_text(tmp_path):
    words = "a\u2028b\u2029c\x85d"
    chunk = json.dumps(delta("stop", content=words), ensure_ascii=False)
    async with session_with(tmp_path, stream(chunk, "[DONE]")) as (session, _):
        turn = await session.turn(text("hi"))
    assert isinstance(turn, TurnDone), turn
    assert turn.invocation.response_text == words


async def test_history_and_state_are_sent_first(tmp_path):
    call = Part(function_call=FunctionCall(name="roll", args={"sides": 6}))
    result = Part(function_response=FunctionResponse(name="roll", response={"result": 6}))
    history = (
        PastEvent(author="user", content=Content(parts=(Part(text="roll"),))),
        PastEvent(author="bot", content=Content(parts=(call,))),
        PastEvent(author="bot", content=Content(parts=(result,))),
        PastEvent(author="bot", content=Content(parts=(Part(text="six"),))),
    )
    request = {"history": history, "state": {"tier": "gold"}}
    async with session_with(tmp_path, said("ok"), request=request) as (session, server):
        await session.turn(text("thanks"))
    sent = server.body(0)["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "assistant", "user"]
    assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"]
    assert json.loads(server.body(0)["metadata"]["session_state"]) == {"tier": "gold"}


async def test_a_picture_is_sent_as_a_data_url(tmp_path):
    picture = Part(inline_data={"mime_type": "image/png", "data": "-_8="})
    async with session_with(tmp_path, said("a cat")) as (session, server):
        await session.turn(Content(role="user", parts=(Part(text="what?"), picture)))
    (message,) = server.body(0)["messages"]
    assert message["content"][1] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,+/8="}}


async def test_a_refused_request_is_sent_again_and_counted(tmp_path):
    refusal = json_response({"error": {"message": "slow down"}}, 429, {"Retry-After": "0.4"})
    async with session_with(tmp_path, refusal, refusal, said("hello"), timeout_s=0.6) as (session, server):
        turn = await session.turn(text("hi"))  # the waits together are longer than timeout_s, and no time of the turn
    assert isinstance(turn, TurnDone), turn
    assert turn.throttled == 2
    assert len(server.requests) == 3


async def test_an_empty_account_is_not_asked_again(tmp_path):
    body = {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}
    error = await error_of(tmp_path, json_response(body, 429))
    assert error.kind is ErrorKind.RATE_LIMITED
    assert "You exceeded your quota" in error.message


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (json_response({"error": {"message": "bad key"}}, 401), ErrorKind.CREDENTIALS),
        (json_response({"detail": "no such model"}, 404), ErrorKind.ENVIRONMENT),
        (HttpResponse(307, headers={"Location": "http://127.0.0.1:1/"}), ErrorKind.ENVIRONMENT),
        (json_response({"error": "tool raised"}, 500), ErrorKind.EXCEPTION),
        (HttpResponse(503, b"<html>busy</html>"), ErrorKind.UNAVAILABLE),
        (ResetConnection, ErrorKind.UNAVAILABLE),
        (HttpResponse(200, b"x" * 100, cut=10), ErrorKind.UNAVAILABLE),
        (HttpResponse(200, b"hello"), ErrorKind.PROTOCOL),
        (HttpResponse(200, b"[" * 100_000), ErrorKind.PROTOCOL),
        (HttpResponse(200, b"\xff\xfe\x00"), ErrorKind.PROTOCOL),
        (json_response([1]), ErrorKind.PROTOCOL),
        (json_response({"choices": []}), ErrorKind.PROTOCOL),
        (json_response({"choices": [{"message": "hi"}]}), ErrorKind.PROTOCOL),
        (json_response({"error": {"message": "agent failed"}}), ErrorKind.EXCEPTION),
        (json_response({"choices": [{"message": {"content": ""}, "error": {"code": 502}}]}), ErrorKind.EXCEPTION),
        (completion({"content": "half"}, "content_filter"), ErrorKind.EXCEPTION),
        (completion({"content": ""}, "length"), ErrorKind.EXCEPTION),
        (stream(delta(content="half")), ErrorKind.UNAVAILABLE),
        (stream({"error": {"message": "agent failed"}}), ErrorKind.EXCEPTION),
        (stream("{"), ErrorKind.PROTOCOL),
        (HttpResponse(200, b"x", headers={"Content-Encoding": "gzip"}), ErrorKind.OUTPUT),
    ],
    ids=str,
)
async def test_what_is_no_answer_is_an_error_of_its_kind(tmp_path, answer, kind):
    error = await error_of(tmp_path, answer)
    assert (error.kind, error.turn) == (kind, 0)
    assert error.message


async def test_an_answer_cut_at_the_limit_of_tokens_is_the_answer(tmp_path):
    async with session_with(tmp_path, completion({"content": "half"}, "length")) as (session, _):
        turn = await session.turn(text("hi"))
    assert turn.invocation.response_text == "half"


async def test_hostile_text_is_kept_as_text(tmp_path):
    async with session_with(
        tmp_path, HttpResponse(200, b'{"choices":[{"message":{"content":"\\ud800\\u0000\\u001b[2J"}}]}')
    ) as (session, server):
        turn = await session.turn(text("hi"))
        server.answers.append(said("ok"))
        assert isinstance(await session.turn(text("again")), TurnDone)
    assert turn.invocation.response_text == "\ufffd\x00\x1b[2J"
    turn.invocation.model_dump_json()


async def test_an_endless_answer_is_an_error(tmp_path):
    async with session_with(tmp_path, HttpResponse(200, b"x" * 5000)) as (session, _):
        session.transport.connection.body_limit = 4096
        turn = await session.turn(text("hi"))
    assert turn.kind is ErrorKind.OUTPUT


async def test_a_server_that_hangs_is_a_time_out_and_the_session_goes_on(tmp_path):
    async with session_with(tmp_path, HangConnection, said("hello"), timeout_s=0.3) as (session, _):
        turn = await session.turn(text("hi"))
        assert turn.kind is ErrorKind.TIMEOUT
        assert isinstance(await session.turn(text("hi")), TurnDone)


async def test_a_turn_can_be_cancelled(tmp_path):
    async with session_with(tmp_path, HangConnection) as (session, server):
        turn = asyncio.ensure_future(session.turn(text("hi")))
        while not server.requests:  # noqa: ASYNC110 - the server runs in another thread
            await asyncio.sleep(0.01)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn


async def test_headers_have_the_variables_that_the_agent_sees(tmp_path):
    (tmp_path / ".env").write_text("TEAM=red\n")
    headers = {"Authorization": "Bearer ${OPENAI_API_KEY}", "X-Team": "${TEAM}"}
    environ = {"OPENAI_API_KEY": "sk-1"}
    async with session_with(tmp_path, said("ok"), environ=environ, headers=headers) as (session, server):
        await session.turn(text("hi"))
    assert server.requests[0].headers["authorization"] == "Bearer sk-1"
    assert server.requests[0].headers["x-team"] == "red"


async def test_a_header_never_has_a_variable_that_the_agent_does_not_see(tmp_path):
    headers = {"Authorization": "Bearer ${DEPLOY_KEY}"}
    driver = make_driver(tmp_path, {"DEPLOY_KEY": "k"}, driver="openai", url="http://127.0.0.1:1", headers=headers)
    error = await driver.start()
    await driver.stop()
    assert error.kind is ErrorKind.CREDENTIALS
    assert "DEPLOY_KEY is set here but not passed" in error.message


async def test_a_server_that_is_not_there_is_unavailable(tmp_path):
    async with driving(tmp_path, driver="openai", url="http://user:secret@127.0.0.1:1/v1") as driver:
        turn = await (await open_session(driver)).turn(text("hi"))
    assert turn.kind is ErrorKind.UNAVAILABLE
    assert "secret" not in turn.message


async def test_sessions_at_once_keep_their_conversations_apart(tmp_path):
    async def echo(request: HttpRequest) -> HttpResponse:
        return said(" ".join(message["content"] for message in json.loads(request.body)["messages"]))

    with listening(echo) as url:
        async with driving(tmp_path, driver="openai", url=url) as driver:

            async def talk(name: str) -> str:
                session = await open_session(driver)
                await session.turn(text(name))
                turn = await session.turn(text("again"))
                return turn.invocation.response_text

            assert await asyncio.gather(*map(talk, "abc")) == [f"{name} {name} again" for name in "abc"]
