"""The local server against the real google-genai client: both paths, streaming, calls, each fault, what it counts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from google import genai
from google.genai import errors, types
from google.oauth2.credentials import Credentials

from support.gemini_server import client

RULES = {
    "rules": [
        {
            "when": {"user": r"roll a d(\d+)", "after_tool": None},
            "reply": {"calls": [{"name": "roll_die", "args": {"sides": "{1:int}"}}], "thought": "A die."},
        },
        {"when": {"after_tool": "roll_die"}, "reply": {"text": "It shows {tool.result}."}},
        {"when": {"instruction": "pirate"}, "reply": {"text": "Arr, one two three four five six."}},
        {"when": {"user": "^hello$"}, "reply": {"text": "Hello."}},
    ]
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[client.RunningGemini]:
    script = tmp_path_factory.mktemp("gemini") / "rules.json"
    script.write_text(json.dumps(RULES))
    with client.running(script) as running:
        yield running


@pytest.fixture
def gemini(server: client.RunningGemini, monkeypatch: pytest.MonkeyPatch) -> Iterator[genai.Client]:
    for name, value in server.environ.items():
        monkeypatch.setenv(name, value)
    server.reset()
    server.configure(latency=0, faults=[], per_second=None)
    with genai.Client() as real:
        yield real


def ask(gemini: genai.Client, text: str, **config: object) -> types.GenerateContentResponse:
    return gemini.models.generate_content(
        model="gemini-2.5-flash", contents=text, config=types.GenerateContentConfig(**config)
    )


def test_answers_by_rule_with_groups_of_the_users_words(gemini: genai.Client) -> None:
    response = ask(gemini, "please roll a d20")
    assert [(call.name, call.args) for call in response.function_calls or []] == [("roll_die", {"sides": 20})]
    thought = response.candidates[0].content.parts[0]
    assert (thought.thought, thought.text) == (True, "A die.")
    assert response.usage_metadata.total_token_count > 0
    assert response.model_version == "gemini-2.5-flash"


def test_goes_on_from_the_tools_answer(gemini: genai.Client) -> None:
    conversation = [
        types.Content(role="user", parts=[types.Part(text="please roll a d20")]),
        types.Content(role="model", parts=[types.Part.from_function_call(name="roll_die", args={"sides": 20})]),
        types.Content(role="user", parts=[types.Part.from_function_response(name="roll_die", response={"result": 17})]),
    ]
    response = gemini.models.generate_content(model="gemini-2.5-flash", contents=conversation)
    assert response.text == "It shows 17."


def test_reads_the_instruction_and_streams(gemini: genai.Client) -> None:
    config = types.GenerateContentConfig(system_instruction="You are a pirate.")
    chunks = list(gemini.models.generate_content_stream(model="gemini-2.5-pro", contents="hi", config=config))
    assert "".join(chunk.text for chunk in chunks) == "Arr, one two three four five six."
    assert len(chunks) > 1
    assert [chunk.candidates[0].finish_reason for chunk in chunks][-1] == types.FinishReason.STOP


def test_speaks_the_vertex_path(server: client.RunningGemini) -> None:
    server.reset()
    options = types.HttpOptions(base_url=server.url, api_version="v1")
    credentials = Credentials(token="local")  # noqa: S106 - the local server asks for none
    vertex = genai.Client(vertexai=True, project="p", location="l", credentials=credentials, http_options=options)
    url = f"{server.url}/v1/projects/p/locations/europe-west1/publishers/google/models/gemini-2.5-flash:generateContent"
    with vertex:
        assert vertex.models.generate_content(model="gemini-2.5-flash", contents="hello").text == "Hello."
    body = {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}
    answer = httpx.post(url, json=body, trust_env=False).json()
    assert answer["candidates"][0]["content"]["parts"] == [{"text": "Hello."}]
    seen = server.seen()
    assert [request["path"].startswith("/v1/") for request in seen["requests"]] == [True, True]
    assert seen["unexpected"] == []


def test_refuses_with_a_message_what_no_rule_and_no_route_fits(
    server: client.RunningGemini, gemini: genai.Client
) -> None:
    with pytest.raises(errors.ClientError, match="no rule for 'sing'"):
        ask(gemini, "sing")
    with pytest.raises(errors.ClientError, match="no such method"):
        gemini.models.count_tokens(model="gemini-2.5-flash", contents="hello")
    assert len(server.seen()["unexpected"]) == 2


def test_status_faults_carry_what_a_client_needs_to_wait(server: client.RunningGemini, gemini: genai.Client) -> None:
    server.configure(faults=[{"code": 429, "times": 1, "retry_after": 2, "retry_info": "3s"}])
    with pytest.raises(errors.ClientError) as caught:
        ask(gemini, "hello")
    assert caught.value.code == 429
    assert caught.value.status == "RESOURCE_EXHAUSTED"
    assert caught.value.response.headers["Retry-After"] == "2"
    assert caught.value.details["error"]["details"][0]["retryDelay"] == "3s"
    assert ask(gemini, "hello").text == "Hello."
    assert server.seen()["faults"] == {"status": 1}


def test_faults_strike_when_scheduled(server: client.RunningGemini, gemini: genai.Client) -> None:
    server.configure(faults=[{"code": 500, "user": "hello", "after": 1, "every": 2, "times": 2}])
    outcomes = []
    for _ in range(6):
        try:
            outcomes.append(ask(gemini, "hello").text)
        except errors.ServerError as error:
            outcomes.append(error.code)
    assert outcomes == ["Hello.", 500, "Hello.", 500, "Hello.", "Hello."]


@pytest.mark.parametrize("kind", ["reset", "truncated"])
def test_faults_of_the_connection(server: client.RunningGemini, gemini: genai.Client, kind: str) -> None:
    server.configure(faults=[{"kind": kind, "times": 1}])
    with pytest.raises(httpx.TransportError):
        ask(gemini, "hello")
    assert ask(gemini, "hello").text == "Hello."


def test_hangs_until_the_client_leaves(server: client.RunningGemini, gemini: genai.Client) -> None:
    server.configure(faults=[{"kind": "hang", "times": 1}])
    with pytest.raises(httpx.ReadTimeout):
        ask(gemini, "hello", http_options=types.HttpOptions(timeout=200))
    assert ask(gemini, "hello").text == "Hello."


def test_invalid_json(server: client.RunningGemini, gemini: genai.Client) -> None:
    server.configure(faults=[{"kind": "invalid_json", "times": 1}])
    with pytest.raises(json.JSONDecodeError):
        ask(gemini, "hello")


def test_answers_without_content(server: client.RunningGemini, gemini: genai.Client) -> None:
    server.configure(
        faults=[
            {"kind": "empty_candidates", "times": 1},
            {"kind": "blocked_prompt", "times": 1},
            {"kind": "blocked", "times": 1},
        ]
    )
    assert not ask(gemini, "hello").candidates
    assert ask(gemini, "hello").prompt_feedback.block_reason == types.BlockedReason.SAFETY
    blocked = ask(gemini, "hello").candidates[0]
    assert (blocked.content, blocked.finish_reason) == (None, types.FinishReason.SAFETY)


# google-genai derives from a class of aiohttp that does not want it, where it makes its session itself.
@pytest.mark.filterwarnings("ignore:Inheritance class:DeprecationWarning")
async def test_counts_what_is_in_flight_and_limits_the_rate(server: client.RunningGemini, gemini: genai.Client) -> None:
    server.configure(latency=1.0)
    ask_all = [gemini.aio.models.generate_content(model="gemini-2.5-flash", contents="hello") for _ in range(5)]
    assert {response.text for response in await asyncio.gather(*ask_all)} == {"Hello."}
    assert server.seen()["most_at_once"] == 5
    server.configure(latency=0, per_second=2)
    ask_all = [gemini.aio.models.generate_content(model="gemini-2.5-flash", contents="hello") for _ in range(5)]
    outcomes = await asyncio.gather(*ask_all, return_exceptions=True)
    await gemini.aio.aclose()
    assert any(isinstance(outcome, errors.ClientError) and outcome.code == 429 for outcome in outcomes)


def test_a_python_file_can_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "answers.py"
    script.write_text(
        "from support.gemini_server.messages import Reply\n"
        "def answer(request):\n"
        "    return Reply(text=f'{request.number}: {request.user_text}')\n"
    )
    with client.running(script) as server:
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        with genai.Client() as gemini:
            assert [ask(gemini, text).text for text in ("a", "b")] == ["1: a", "2: b"]
