"""Google's provider through the real google-genai client: what is sent, what is read, every fault's kind."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agent_eval_action.llm.client import LlmError, LlmErrorKind, LlmReply, Message, ProviderConfig
from agent_eval_action.llm.providers.google import GoogleProvider
from support.gemini_server.faults import Fault
from support.gemini_server.messages import Reply
from support.gemini_server.server import GeminiServer

from .conftest import ANSWER, KEY, SCHEMA, ask

Kind = LlmErrorKind


def environ(gemini: GeminiServer, **more: str) -> dict[str, str]:
    return {"GOOGLE_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": gemini.url, **more}


async def test_asks_with_the_schema_and_the_options_and_reads_the_answer(
    google: GoogleProvider, gemini: GeminiServer
) -> None:
    options = {"temperature": 0.5, "maxOutputTokens": 100, "thinking_config": {"thinking_budget": 0}, "seed": 7}
    reply = await google.generate(ask(options=options))
    assert isinstance(reply, LlmReply), reply
    assert reply.text == ANSWER  # and not the thought before it
    assert not reply.cached
    assert gemini.seen.calls == 1
    [sent] = gemini.seen.requests
    assert sent["path"] == "/v1beta/models/gemini-2.5-flash:generateContent"
    assert sent["headers"]["x-goog-api-key"] == KEY
    assert sent["body"]["systemInstruction"]["parts"] == [{"text": "You judge."}]
    assert sent["body"]["contents"] == [{"role": "user", "parts": [{"text": "Is it so?"}]}]
    generation = sent["body"]["generationConfig"]
    assert generation["responseJsonSchema"] == SCHEMA
    assert generation["responseMimeType"] == "application/json"
    assert (generation["temperature"], generation["maxOutputTokens"], generation["seed"]) == (0.5, 100, 7)
    assert generation["thinkingConfig"] == {"thinking_budget": 0}  # the wire takes both


async def test_counts_thoughts_as_output(google: GoogleProvider, gemini: GeminiServer) -> None:
    gemini.answer = lambda _: Reply("one two three", thought="a b c d")
    plain = await google.generate(ask(schema=None, system=""))
    gemini.answer = lambda _: Reply("one two three")
    without = await google.generate(ask(schema=None, system=""))
    assert isinstance(plain, LlmReply)
    assert isinstance(without, LlmReply)
    assert plain.text == without.text == "one two three"
    assert plain.usage.output_tokens > without.usage.output_tokens
    assert plain.usage.input_tokens == without.usage.input_tokens
    assert without.usage.cached_input_tokens is None
    assert not gemini.seen.requests[-1]["body"]["generationConfig"]


async def test_a_conversation_keeps_its_roles(google: GoogleProvider, gemini: GeminiServer) -> None:
    turns = (Message("user", "one"), Message("model", "two"), Message("user", "three"))
    await google.generate(replace(ask(), messages=turns))
    assert [(c["role"], c["parts"][0]["text"]) for c in gemini.seen.requests[0]["body"]["contents"]] == [
        ("user", "one"),
        ("model", "two"),
        ("user", "three"),
    ]


FAULTS = [
    (Fault(code=500), Kind.UNAVAILABLE, "500 (internal server error)"),
    (Fault(code=503, body="<html>busy</html>", content_type="text/html"), Kind.UNAVAILABLE, "503"),
    (Fault(code=503, body='{"error": {"co', content_type="application/json"), Kind.UNAVAILABLE, "503"),
    (Fault(code=408), Kind.TIMEOUT, "408"),
    (Fault(code=504), Kind.TIMEOUT, "504"),
    (Fault(code=429), Kind.RATE_LIMITED, "429 (too many requests)"),
    (
        Fault(code=400, message="API key not valid."),
        Kind.REFUSED,
        "API key not valid. — check GOOGLE_API_KEY",
    ),
    (Fault(code=401), Kind.REFUSED, "GOOGLE_API_KEY"),
    (Fault(code=403), Kind.REFUSED, "may not use this model"),
    (Fault(code=404, message="models/gemini-9 is not found"), Kind.REFUSED, "check the model's name"),
    (Fault(code=302, location="http://127.0.0.1:9/elsewhere"), Kind.REFUSED, "check the base URL"),
    (Fault(code=429, quota="GenerateRequestsPerDayPerProject", retry_info="9s"), Kind.REFUSED, "quota of the day"),
    (Fault(kind="reset"), Kind.UNAVAILABLE, "connection to the Gemini API failed"),
    (Fault(kind="truncated"), Kind.UNAVAILABLE, "connection to the Gemini API failed"),
    (Fault(kind="invalid_json"), Kind.EMPTY, "no answer of a model"),
    (Fault(kind="other_json"), Kind.EMPTY, "without a text"),
    (Fault(kind="empty_candidates"), Kind.EMPTY, "without a text"),
    (Fault(kind="only_thoughts"), Kind.EMPTY, "without a text"),
    (Fault(kind="max_tokens"), Kind.EMPTY, "raise max_output_tokens"),
    (Fault(kind="blocked_prompt"), Kind.BLOCKED, "prompt was blocked (SAFETY)"),
    (Fault(kind="blocked"), Kind.BLOCKED, "answer was blocked (SAFETY)"),
]


@pytest.mark.parametrize(("fault", "kind", "said"), FAULTS, ids=lambda value: getattr(value, "kind", None))
async def test_every_fault_is_a_kind_after_one_request(
    google: GoogleProvider, gemini: GeminiServer, fault: Fault, kind: LlmErrorKind, said: str
) -> None:
    gemini.faults = [replace(fault)]
    error = await google.generate(ask())
    assert isinstance(error, LlmError), error
    assert error.kind is kind, error
    assert said in error.message
    assert error.status == (fault.code if fault.kind == "status" else None)
    assert gemini.seen.calls == 1  # the client's own retries are off
    assert error.seconds > 0
    assert gemini.seen.unexpected == []


async def test_a_cut_answer_says_what_it_cost(google: GoogleProvider, gemini: GeminiServer) -> None:
    gemini.faults = [Fault(kind="max_tokens")]
    error = await google.generate(ask())
    assert isinstance(error, LlmError)
    assert error.usage is not None
    assert error.usage.output_tokens > 0


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        (Fault(code=429, retry_after=7), 7.0),
        (Fault(code=429, retry_info="31.5s"), 31.5),
        (Fault(code=429, retry_after=2, retry_info="9s"), 9.0),
        (Fault(code=503, retry_info="1.250s"), 1.25),
        (Fault(code=429, retry_info="soon"), None),
        (Fault(code=429), None),
    ],
)
async def test_reads_when_to_come_back(
    google: GoogleProvider, gemini: GeminiServer, fault: Fault, seconds: float | None
) -> None:
    gemini.faults = [replace(fault)]
    error = await google.generate(ask())
    assert isinstance(error, LlmError)
    assert error.retry_after == seconds


async def test_a_server_that_says_nothing_is_left(gemini: GeminiServer) -> None:
    gemini.faults = [Fault(kind="hang")]
    provider = GoogleProvider(ProviderConfig(environ(gemini), timeout=3))
    error = await provider.generate(ask())
    await provider.close()
    assert isinstance(error, LlmError)
    assert (error.kind, error.message) == (Kind.TIMEOUT, "the Gemini API did not answer in time")
    assert gemini.seen.calls == 1


async def test_nobody_listens(gemini: GeminiServer) -> None:
    provider = GoogleProvider(ProviderConfig(environ(gemini, GOOGLE_GEMINI_BASE_URL="http://127.0.0.1:1")))
    error = await provider.generate(ask())
    await provider.close()
    assert isinstance(error, LlmError)
    assert error.kind is Kind.UNAVAILABLE


@pytest.mark.parametrize("url", ["no url at all", "ftp://127.0.0.1/x", "http://"])
async def test_an_address_that_is_none_is_refused(gemini: GeminiServer, url: str) -> None:
    provider = GoogleProvider(ProviderConfig(environ(gemini, GOOGLE_GEMINI_BASE_URL=url)))
    error = await provider.generate(ask())
    await provider.close()
    assert isinstance(error, LlmError)
    assert error.kind is Kind.REFUSED, error


async def test_hundreds_at_once_over_one_client(google: GoogleProvider, gemini: GeminiServer) -> None:
    gemini.latency = 1.0  # long enough for all of them to be under way together
    replies = await asyncio.gather(*(google.generate(ask(f"number {n}")) for n in range(300)))
    assert all(isinstance(reply, LlmReply) for reply in replies)
    assert gemini.seen.calls == 300
    assert gemini.seen.most_at_once == 300
    assert len(google._clients) == 1


async def test_half_a_surrogate_pair_is_sent_as_a_replacement(google: GoogleProvider, gemini: GeminiServer) -> None:
    schema = {"type": "object", "properties": {"a\ud800": {"type": "string", "description": "\udfff"}}}
    request = ask(
        "lone \ud83d and pair \ud83d\ude00", system="\udc00", schema=schema, options={"stop_sequences": ["\ud800"]}
    )
    assert isinstance(await google.generate(request), LlmReply)
    body = gemini.seen.requests[0]["body"]
    assert body["contents"][0]["parts"][0]["text"] == "lone \ufffd and pair \U0001f600"
    assert body["systemInstruction"]["parts"][0]["text"] == "\ufffd"
    assert body["generationConfig"]["responseJsonSchema"]["properties"] == {
        "a\ufffd": {"type": "string", "description": "\ufffd"}
    }
    assert body["generationConfig"]["stopSequences"] == ["\ufffd"]


async def test_half_a_surrogate_pair_in_an_answer_is_replaced(google: GoogleProvider, gemini: GeminiServer) -> None:
    gemini.answer = lambda _: Reply("\ud83d is half")
    said = await google.generate(ask())
    # The client's own types refuse the text; were they to take it, it is replaced. Either way nothing is raised.
    assert isinstance(said, LlmError) or said.text == "\ufffd is half"


async def test_what_only_vertex_has_is_refused_before_it_is_asked(google: GoogleProvider, gemini: GeminiServer) -> None:
    error = await google.generate(ask(options={"routing_config": {}}))
    assert isinstance(error, LlmError)
    assert (error.kind, gemini.seen.calls) == (Kind.REFUSED, 0)
    assert "routing_config" in error.message


async def test_what_a_hostile_server_says_is_one_clean_line(google: GoogleProvider, gemini: GeminiServer) -> None:
    secret = (
        f"your key {KEY} and AIza{'b' * 35} and \x1b[31mred\x1b[0m\n::error::bell\x07 \u202eevil Bearer ya29.{'c' * 30}"
    )
    gemini.faults = [Fault(code=500, message=secret, times=1), Fault(code=500, body=f"{KEY} " * 1_000_000, times=1)]
    for _ in range(2):
        error = await google.generate(ask())
        assert isinstance(error, LlmError)
        assert error.kind is Kind.UNAVAILABLE
        assert KEY not in error.message
        assert "AIza" not in error.message
        assert "ya29" not in error.message
        assert error.message.isprintable()
        assert len(error.message) < 500


async def test_a_huge_answer_that_is_none_is_not_repeated(google: GoogleProvider, gemini: GeminiServer) -> None:
    gemini.faults = [Fault(code=200, body="[" * 500_000)]
    error = await google.generate(ask())
    assert isinstance(error, LlmError)
    assert error.kind is Kind.EMPTY
    assert len(error.message) < 300


async def test_a_cancelled_call_leaves_the_provider_usable(google: GoogleProvider, gemini: GeminiServer) -> None:
    gemini.faults = [Fault(kind="hang", times=1)]
    call = asyncio.create_task(google.generate(ask()))
    while not gemini.seen.calls:  # noqa: ASYNC110 - the server in this loop has no event to wait for
        await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert isinstance(await google.generate(ask()), LlmReply)


async def test_warm_up_makes_the_client_and_asks_nothing(google: GoogleProvider, gemini: GeminiServer) -> None:
    assert await google.warm_up("gemini-2.5-flash") == ""
    assert len(google._clients) == 1
    assert gemini.seen.calls == 0


async def test_closing_is_allowed_at_any_time(gemini: GeminiServer) -> None:
    provider = GoogleProvider(ProviderConfig(environ(gemini)))
    await provider.close()
    assert isinstance(await provider.generate(ask()), LlmReply)
    await provider.close()
    await provider.close()


OPTIONS = [
    ({}, ""),
    ({"temperature": 0, "topP": 0.9, "safety_settings": []}, ""),
    ({"temprature": 0}, "did you mean `temperature`"),
    ({"temperature": "hot"}, "`temperature` of a Google model is wrong"),
    ({"thinking_config": {"budget": 1}}, "thinking_config.budget"),
    ({"http_options": {"base_url": "http://evil"}}, "cannot be set for a judge"),
    ({"httpOptions": {"headers": {}}}, "cannot be set for a judge"),
    ({"system_instruction": "say yes"}, "the judge's own prompt"),
    ({"responseSchema": {}}, "the judge's own question"),
    ({"tools": []}, "a judge has no tools"),
]


@pytest.mark.parametrize(("options", "said"), OPTIONS)
def test_options_are_checked_before_anything_is_asked(options: dict[str, object], said: str) -> None:
    found = GoogleProvider.check_options(options)
    assert said in found
    assert bool(said) == bool(found)
