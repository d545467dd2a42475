"""Google's provider on Vertex AI: the real google-auth signs in at the local server with a credentials file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent_eval_action.llm.client import LlmError, LlmErrorKind, LlmReply, ProviderConfig
from agent_eval_action.llm.providers.google import GoogleProvider
from support.gemini_server.faults import Fault
from support.gemini_server.server import GeminiServer
from support.vertex_server.identity import key_file

from .conftest import ANSWER, KEY, ask

MODEL = "gemini-2.5-flash"
IN_PROJECT = "/v1beta1/projects/shop/locations/europe-west4/publishers/google/models/gemini-2.5-flash:generateContent"


@pytest.fixture
def vertex(gemini: GeminiServer, tmp_path: Path) -> dict[str, str]:
    return {
        "GOOGLE_GENAI_USE_VERTEXAI": "TRUE",
        "GOOGLE_CLOUD_PROJECT": "shop",
        "GOOGLE_CLOUD_LOCATION": "europe-west4",
        "GOOGLE_VERTEX_BASE_URL": gemini.url,
        "GOOGLE_APPLICATION_CREDENTIALS": str(key_file(tmp_path, gemini.url)),
    }


async def said(environ: dict[str, str], model: str = MODEL) -> LlmReply | LlmError:
    provider = GoogleProvider(ProviderConfig(environ, timeout=20))
    try:
        return await provider.generate(ask(model=model))
    finally:
        await provider.close()


async def test_asks_in_the_project_with_a_token_of_the_service_account(
    vertex: dict[str, str], gemini: GeminiServer
) -> None:
    reply = await said({**vertex, "GOOGLE_API_KEY": KEY})
    assert isinstance(reply, LlmReply), reply
    assert reply.text == ANSWER
    [sent] = gemini.seen.requests
    assert sent["path"] == IN_PROJECT
    assert sent["headers"]["authorization"] == "Bearer ya29.local-token-1"
    assert "x-goog-api-key" not in sent["headers"]  # a project wins over a key, as in google-genai


async def test_the_project_that_pays_is_reported(vertex: dict[str, str], gemini: GeminiServer) -> None:
    assert isinstance(await said({**vertex, "GOOGLE_CLOUD_QUOTA_PROJECT": "the-payer"}), LlmReply)
    assert gemini.seen.requests[0]["headers"]["x-goog-user-project"] == "the-payer"


async def test_hundreds_of_first_calls_fetch_one_token(vertex: dict[str, str], gemini: GeminiServer) -> None:
    provider = GoogleProvider(ProviderConfig(vertex, timeout=60))
    replies = await asyncio.gather(*(provider.generate(ask(f"number {n}")) for n in range(200)))
    await provider.close()
    assert all(isinstance(reply, LlmReply) for reply in replies)
    assert gemini.seen.tokens == 1


async def test_the_file_knows_the_project_and_the_place_is_global(vertex: dict[str, str], gemini: GeminiServer) -> None:
    del vertex["GOOGLE_CLOUD_PROJECT"], vertex["GOOGLE_CLOUD_LOCATION"]
    assert isinstance(await said(vertex), LlmReply)
    assert "/projects/project-of-tests/locations/global/" in gemini.seen.requests[0]["path"]


@pytest.mark.parametrize(
    "name",
    [
        "projects/tuned/locations/us-east1/endpoints/42",
        "projects/tuned/locations/us-east1/publishers/google/models/gemini-2.5-flash",
    ],
)
async def test_a_full_name_is_at_vertex_without_a_switch(
    vertex: dict[str, str], gemini: GeminiServer, name: str
) -> None:
    del vertex["GOOGLE_GENAI_USE_VERTEXAI"]
    reply = await said(vertex, name)
    assert isinstance(reply, LlmReply), reply
    assert gemini.seen.requests[0]["path"] == f"/v1beta1/{name}:generateContent"


async def test_a_key_alone_is_express_mode(vertex: dict[str, str], gemini: GeminiServer) -> None:
    express = {name: vertex[name] for name in ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_VERTEX_BASE_URL")}
    reply = await said({**express, "GOOGLE_API_KEY": KEY})
    assert isinstance(reply, LlmReply), reply
    [sent] = gemini.seen.requests
    assert sent["path"] == f"/v1beta1/publishers/google/models/{MODEL}:generateContent"
    assert sent["headers"]["x-goog-api-key"] == KEY
    assert gemini.seen.tokens == 0


async def test_a_refused_identity_says_what_to_do(vertex: dict[str, str], gemini: GeminiServer) -> None:
    gemini.token_status = 400
    provider = GoogleProvider(ProviderConfig(vertex))
    error = await provider.generate(ask())
    await provider.close()
    assert isinstance(error, LlmError)
    assert error.kind is LlmErrorKind.REFUSED, error
    assert "sign in again or renew them" in error.message
    assert gemini.seen.calls == 0


async def test_a_file_that_is_no_credentials_is_found_by_warming_up(vertex: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "broken.json"
    file.write_text("{}")
    provider = GoogleProvider(ProviderConfig({**vertex, "GOOGLE_APPLICATION_CREDENTIALS": str(file)}))
    sentence = await provider.warm_up(MODEL)
    await provider.close()
    assert "no usable credentials for Vertex AI" in sentence
    assert "GOOGLE_APPLICATION_CREDENTIALS" in sentence


async def test_a_machine_without_an_identity(
    vertex: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # no waiting for a metadata server
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    del vertex["GOOGLE_APPLICATION_CREDENTIALS"]
    provider = GoogleProvider(ProviderConfig(vertex))
    sentence = await provider.warm_up(MODEL)
    await provider.close()
    assert "gcloud auth application-default login" in sentence


@pytest.mark.parametrize(
    ("fault", "kind", "advice"),
    [
        (Fault(code=403), LlmErrorKind.REFUSED, "Vertex AI User"),
        (Fault(code=404), LlmErrorKind.REFUSED, "GOOGLE_CLOUD_LOCATION"),
        (Fault(code=401), LlmErrorKind.REFUSED, "sign in again"),
        (Fault(code=429, retry_after=3), LlmErrorKind.RATE_LIMITED, "Vertex AI answered 429"),
        (Fault(kind="reset"), LlmErrorKind.UNAVAILABLE, "connection to Vertex AI failed"),
        (Fault(kind="max_tokens"), LlmErrorKind.EMPTY, "max_output_tokens"),
    ],
)
async def test_faults_speak_of_vertex(
    vertex: dict[str, str], gemini: GeminiServer, fault: Fault, kind: LlmErrorKind, advice: str
) -> None:
    gemini.faults = [fault]
    error = await said(vertex)
    assert isinstance(error, LlmError)
    assert error.kind is kind
    assert advice in error.message
    assert gemini.seen.calls == 1
