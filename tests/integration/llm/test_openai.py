"""The provider of OpenAI's wire through the real openai SDK: what is sent, what is read, every fault's kind."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agent_eval_action.llm.client import LlmError, LlmErrorKind, LlmReply, Message, ProviderConfig
from agent_eval_action.llm.providers.openai import OpenAiProvider
from support.openai_server.faults import Fault
from support.openai_server.messages import ChatReply
from support.openai_server.server import OpenAiServer

from .conftest import ANSWER, KEY, SCHEMA
from .conftest import ask as ask_any

Kind = LlmErrorKind
MODEL = "openai/gpt-4.1-mini"


def ask(text: str = "Is it so?", **fields: object):
    return ask_any(text, model=MODEL, **fields)


async def test_asks_with_the_schema_and_the_options_and_reads_the_answer(
    compat: OpenAiProvider, openai: OpenAiServer
) -> None:
    options = {
        "temperature": 0,
        "topP": 0.5,
        "max_output_tokens": 90,
        "seed": 3,
        "stop_sequences": ["END"],
        "presence_penalty": 0.1,
        "frequencyPenalty": 0.2,
        "thinking_config": {"thinking_level": "LOW"},
    }
    reply = await compat.generate(ask(options=options))
    assert isinstance(reply, LlmReply), reply
    assert reply.text == ANSWER
    assert reply.usage.input_tokens > 0
    assert reply.usage.output_tokens == len(ANSWER.split())
    assert reply.usage.cached_input_tokens is not None
    [sent] = openai.seen.requests
    assert sent["headers"]["authorization"] == f"Bearer {KEY}"
    assert "openai-organization" not in sent["headers"]
    assert sent["body"] == {
        "model": "gpt-4.1-mini",
        "messages": [{"role": "system", "content": "You judge."}, {"role": "user", "content": "Is it so?"}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA},
        },
        "temperature": 0,
        "top_p": 0.5,
        "max_tokens": 90,
        "seed": 3,
        "stop": ["END"],
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "reasoning_effort": "low",
    }


async def test_a_conversation_without_a_schema(compat: OpenAiProvider, openai: OpenAiServer) -> None:
    openai.answer = lambda _: ChatReply("<think>Hm.\n{}</think>\nFine, thanks.")
    turns = (Message("user", "one"), Message("model", "two"), Message("user", "three"))
    reply = await compat.generate(replace(ask(system="", schema=None), messages=turns))
    assert isinstance(reply, LlmReply)
    assert reply.text == "Fine, thanks."
    sent = openai.seen.requests[0]["body"]
    assert [(m["role"], m["content"]) for m in sent["messages"]] == [
        ("user", "one"),
        ("assistant", "two"),
        ("user", "three"),
    ]
    assert "response_format" not in sent


FAULTS = [
    (Fault(code=500), Kind.UNAVAILABLE, "500 (internal server error)"),
    (Fault(code=503, body="<html>busy</html>", content_type="text/html"), Kind.UNAVAILABLE, "503"),
    (Fault(code=503, body='{"error": {"co'), Kind.UNAVAILABLE, "503"),
    (Fault(code=408), Kind.TIMEOUT, "408"),
    (Fault(code=504), Kind.TIMEOUT, "504"),
    (Fault(code=429), Kind.RATE_LIMITED, "429 (too many requests)"),
    (Fault(code=429, error="insufficient_quota", message="You exceeded it."), Kind.REFUSED, "no quota left"),
    (Fault(code=400, message="temperature is too hot"), Kind.REFUSED, "temperature is too hot"),
    (Fault(code=400, error="content_filter"), Kind.BLOCKED, "prompt was blocked"),
    (Fault(code=401), Kind.REFUSED, "check OPENAI_API_KEY"),
    (Fault(code=403), Kind.REFUSED, "check OPENAI_API_KEY"),
    (Fault(code=404), Kind.REFUSED, "it mostly ends with /v1"),
    (Fault(code=307, location="http://127.0.0.1:9/v1"), Kind.REFUSED, "check OPENAI_BASE_URL"),
    (Fault(kind="reset"), Kind.UNAVAILABLE, "connection to 127.0.0.1"),
    (Fault(kind="truncated"), Kind.UNAVAILABLE, "127.0.0.1"),
    (Fault(kind="invalid_json"), Kind.EMPTY, "no answer of a model"),
    (Fault(kind="other_json"), Kind.EMPTY, ""),
    (Fault(kind="empty_choices"), Kind.EMPTY, "without a text"),
    (Fault(kind="empty_text"), Kind.EMPTY, "without a text"),
    (Fault(kind="length"), Kind.EMPTY, "raise max_output_tokens"),
    (Fault(kind="refusal"), Kind.BLOCKED, "declined to answer: I'm sorry"),
    (Fault(kind="content_filter"), Kind.BLOCKED, "answer was blocked"),
]


@pytest.mark.parametrize(("fault", "kind", "said"), FAULTS, ids=lambda value: getattr(value, "kind", None))
async def test_every_fault_is_a_kind_after_one_request(
    compat: OpenAiProvider, openai: OpenAiServer, fault: Fault, kind: LlmErrorKind, said: str
) -> None:
    openai.faults = [replace(fault)]
    error = await compat.generate(ask())
    assert isinstance(error, LlmError), error
    assert error.kind is kind, error
    assert said in error.message
    assert error.status == (fault.code if fault.kind == "status" else None)
    assert openai.seen.calls == 1  # the SDK's own retries are off
    assert error.seconds > 0


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        (Fault(code=429, retry_after=7), 7.0),
        (Fault(code=429, retry_after=7, retry_after_ms=1500), 1.5),
        (Fault(code=503, retry_after=3), 3.0),
        (Fault(code=429), None),
    ],
)
async def test_reads_when_to_come_back(
    compat: OpenAiProvider, openai: OpenAiServer, fault: Fault, seconds: float | None
) -> None:
    openai.faults = [replace(fault)]
    error = await compat.generate(ask())
    assert isinstance(error, LlmError)
    assert error.retry_after == seconds


async def test_a_server_that_says_nothing_is_left(openai: OpenAiServer) -> None:
    openai.faults = [Fault(kind="hang")]
    provider = OpenAiProvider(ProviderConfig({}, timeout=3, openai_base_url=f"{openai.url}/v1"))
    error = await provider.generate(ask())
    await provider.close()
    assert isinstance(error, LlmError)
    assert error.kind is Kind.TIMEOUT
    assert openai.seen.calls == 1


LACKS = [
    ({"json_schema"}, ["json_schema", "json_object"]),
    ({"json_schema", "json_object"}, ["json_schema", "json_object", ""]),
]


@pytest.mark.parametrize(("lacks", "formats"), LACKS)
async def test_a_server_without_schemas_is_asked_in_words_and_once_only(
    compat: OpenAiProvider, openai: OpenAiServer, lacks: set[str], formats: list[str]
) -> None:
    openai.lacks = frozenset(lacks)
    openai.answer = lambda _: ChatReply(f"```json\n{ANSWER}\n```")
    for _ in range(2):
        reply = await compat.generate(ask())
        assert isinstance(reply, LlmReply), reply
        assert reply.text == ANSWER
    sent = [request["body"] for request in openai.seen.requests]
    asked = [(body.get("response_format") or {}).get("type", "") for body in sent]
    assert asked == [*formats, formats[-1]]  # the second question goes in the form that was found
    assert '"verdict"' in sent[-1]["messages"][0]["content"]
    assert sent[-1]["messages"][0]["content"].startswith("You judge.")


@pytest.mark.parametrize("lacking", ["max_tokens", "max_completion_tokens"])
async def test_either_name_of_the_largest_length(compat: OpenAiProvider, openai: OpenAiServer, lacking: str) -> None:
    openai.lacks = frozenset({lacking})
    reply = await compat.generate(ask(options={"max_output_tokens": 50}))
    assert isinstance(reply, LlmReply), reply
    body = openai.seen.requests[-1]["body"]
    assert lacking not in body
    assert 50 in (body.get("max_tokens"), body.get("max_completion_tokens"))


async def test_what_is_refused_in_every_form_is_an_error(compat: OpenAiProvider, openai: OpenAiServer) -> None:
    openai.faults = [Fault(code=400, message="response_format is not for you")]
    error = await compat.generate(ask())
    assert isinstance(error, LlmError)
    assert error.kind is Kind.REFUSED
    assert openai.seen.calls == 3


async def test_the_configured_address_wins_and_a_key_is_not_needed(openai: OpenAiServer) -> None:
    setup = ProviderConfig({"OPENAI_BASE_URL": "http://127.0.0.1:9"}, openai_base_url=f"{openai.url}/v1")
    provider = OpenAiProvider(setup)
    assert await provider.warm_up(MODEL) == ""
    assert isinstance(await provider.generate(ask()), LlmReply)
    await provider.close()
    assert openai.seen.requests[0]["headers"]["authorization"] == "Bearer none"


async def test_nobody_listens() -> None:
    provider = OpenAiProvider(ProviderConfig({"OPENAI_API_KEY": KEY}, openai_base_url="http://127.0.0.1:1/v1"))
    error = await provider.generate(ask())
    await provider.close()
    assert isinstance(error, LlmError)
    assert error.kind is Kind.UNAVAILABLE
    assert error.message.startswith("the connection to 127.0.0.1:1 failed")


async def test_hundreds_at_once(compat: OpenAiProvider, openai: OpenAiServer) -> None:
    openai.latency = 1.0  # long enough for all of them to be under way together
    replies = await asyncio.gather(*(compat.generate(ask(f"number {n}")) for n in range(200)))
    assert all(isinstance(reply, LlmReply) for reply in replies)
    assert openai.seen.most_at_once == 200


async def test_half_a_surrogate_pair_is_replaced_on_both_ways(compat: OpenAiProvider, openai: OpenAiServer) -> None:
    openai.answer = lambda _: ChatReply("half \ud83d")
    request = ask("lone \ud83d", system="\udc00", options={"stop_sequences": ["\ud800"]})
    reply = await compat.generate(request)
    assert isinstance(reply, LlmReply), reply
    assert reply.text == "half \ufffd"
    body = openai.seen.requests[0]["body"]
    assert [m["content"] for m in body["messages"]] == ["\ufffd", "lone \ufffd"]
    assert body["stop"] == ["\ufffd"]


async def test_what_a_hostile_server_says_is_one_clean_line(compat: OpenAiProvider, openai: OpenAiServer) -> None:
    secret = f"your key {KEY} and sk-proj-{'b' * 35} and \x1b[31mred\x1b[0m\n::error::bell\x07 \u202eevil"
    openai.faults = [Fault(code=500, message=secret, times=1), Fault(code=500, body=f"{KEY} " * 500_000, times=1)]
    for _ in range(2):
        error = await compat.generate(ask())
        assert isinstance(error, LlmError)
        assert error.kind is Kind.UNAVAILABLE
        assert KEY not in error.message
        assert "sk-" not in error.message
        assert error.message.isprintable()
        assert len(error.message) < 500


async def test_closing_is_allowed_at_any_time(openai: OpenAiServer) -> None:
    provider = OpenAiProvider(ProviderConfig({}, openai_base_url=f"{openai.url}/v1"))
    await provider.close()
    assert isinstance(await provider.generate(ask()), LlmReply)
    await provider.close()
    await provider.close()


async def test_a_server_that_takes_no_form_is_named_without_the_rest_of_its_url(openai: OpenAiServer) -> None:
    openai.lacks = frozenset({"json_schema", "json_object", "max_tokens", "max_completion_tokens"})
    provider = OpenAiProvider(
        ProviderConfig({"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{openai.url}/v1"}, timeout=20)
    )
    said = await provider.generate(ask(options={"max_output_tokens": 90}))
    await provider.close()
    assert isinstance(said, LlmError)
    assert said.message == f"{openai.url.removeprefix('http://')} takes no form of the request that we know"


async def test_credentials_in_the_url_are_refused_at_once_and_not_shown(openai: OpenAiServer) -> None:
    url = openai.url.replace("http://", "http://me:hidden-word@")
    provider = OpenAiProvider(ProviderConfig({"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{url}/v1"}, timeout=20))
    said = await provider.generate(ask())
    await provider.close()
    assert isinstance(said, LlmError)
    assert said.kind is Kind.REFUSED, "asking again gives the same"
    assert "OPENAI_BASE_URL" in said.message
    assert "hidden-word" not in said.message
