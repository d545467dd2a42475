"""Exceptions of agents, models and HTTP clients, told apart."""

from __future__ import annotations

import socket
import subprocess
import sys
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agent_eval_worker_errors import describe, last_lines
from google.genai import errors


def of(module: str, name: str, *bases: type, **fields: Any) -> Exception:
    """An exception as a client of that module raises it."""
    made: Exception = type(name, bases or (Exception,), {"__module__": module})("what it says")
    for key, value in fields.items():
        setattr(made, key, value)
    return made


class Response:
    def __init__(self, status: int, **headers: str) -> None:
        self.status_code = status
        self.headers = headers


DETAILS = {"error": {"message": "slow", "details": [{"@type": "RetryInfo", "retryDelay": "37s"}]}}


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (errors.ClientError(429, DETAILS), "rate_limited", "retry after 37s"),
        (errors.ClientError(400, {"error": {"message": "bad"}}), "exception", "400"),
        (errors.ServerError(503, {"error": {"message": "busy"}}), "unavailable", "503"),
        (of("litellm.exceptions", "RateLimitError", status_code=429), "rate_limited", "429"),
        (
            of("httpx", "HTTPStatusError", response=Response(429, **{"retry-after": "5"})),
            "rate_limited",
            "retry after 5 s",
        ),
        (of("httpx", "HTTPStatusError", response=Response(404)), "exception", "what it says"),
        (of("httpx", "ConnectError"), "unavailable", "ConnectError"),
        (of("aiohttp.client_exceptions", "ServerDisconnectedError"), "unavailable", ""),
        (of("google.api_core.exceptions", "DeadlineExceeded", code=HTTPStatus.GATEWAY_TIMEOUT), "unavailable", "504"),
        (of("openai", "APITimeoutError", status_code=408), "unavailable", "408"),
        (ConnectionResetError("reset"), "unavailable", "reset"),
        (socket.gaierror(-2, "Name or service not known"), "unavailable", "Name or service not known"),
        (TimeoutError("read timed out"), "unavailable", "timed out"),
        (of("urllib.error", "HTTPError", code=503), "unavailable", "503"),
        (of("urllib.error", "HTTPError", code=404), "exception", "HTTPError"),
        (of("grpc", "RpcError", code=lambda: SimpleNamespace(name="UNAVAILABLE")), "unavailable", "503"),
        (of("grpc", "RpcError", code=lambda: SimpleNamespace(name="RESOURCE_EXHAUSTED")), "rate_limited", "429"),
        (of("grpc", "RpcError", code=lambda: SimpleNamespace(name="INVALID_ARGUMENT")), "exception", "RpcError"),
        (
            of("botocore.errorfactory", "Throttled", response={"ResponseMetadata": {"HTTPStatusCode": 429}}),
            "rate_limited",
            "429",
        ),
        (of("my.agent", "OrderError", code=503), "exception", "OrderError"),
        (of("httpx", "Odd", code="503", status_code=True), "exception", "Odd"),
        (ValueError(""), "exception", "ValueError"),
        (SystemExit(4), "died", "sys.exit(4) was called"),
    ],
)
def test_kinds(error: BaseException, kind: str, said: str) -> None:
    found = describe(error)
    assert found["kind"] == kind
    assert said in found["message"]


def test_the_cause_decides() -> None:
    error = RuntimeError("the model failed")
    error.__cause__ = errors.ClientError(429, DETAILS)
    found = describe(error)
    assert found["kind"] == "rate_limited"
    assert found["message"] == "429: RuntimeError: the model failed (retry after 37s)"
    assert found["traceback"].splitlines()[-1] == "RuntimeError: the model failed"


def test_members_of_a_group_are_looked_at() -> None:
    group = ExceptionGroup("many", [ValueError("x"), errors.ServerError(500, {})])
    assert describe(group)["kind"] == "unavailable"


def test_a_circle_of_causes_ends() -> None:
    one, other = ValueError("1"), ValueError("2")
    one.__cause__, other.__cause__ = other, one
    assert describe(one)["kind"] == "exception"


def test_texts_are_bounded_and_whole() -> None:
    class MeanError(Exception):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    assert describe(MeanError())["message"] == "MeanError: <no text>"
    found = describe(ValueError("\ud800" + "x" * 100_000))
    assert len(found["message"]) <= 2000
    assert found["message"].startswith("ValueError: \ufffd")
    assert len(found["traceback"]) <= 16_000


def test_a_deep_recursion_shows_its_end() -> None:
    def down(n: int) -> int:
        return down(n + 1)

    with pytest.raises(RecursionError) as caught:
        down(0)
    lines = last_lines(caught.value).splitlines()
    assert len(lines) <= 40
    assert lines[-1].startswith("RecursionError")


def test_no_module_needs_more_than_the_standard_library() -> None:
    """Imported in isolation, without our package and without google-adk."""
    folder = Path(sys.modules["agent_eval_worker_errors"].__file__ or "").parent
    names = [path.stem for path in folder.glob("agent_eval_worker_*.py")]
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\n" + "\n".join(f"import {name}" for name in names)
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("No API key was provided. Please pass a valid API key."), "credentials"),
        (ValueError("Missing key inputs argument! To use the Google AI API, provide (`api_key`)"), "credentials"),
        (of("openai", "OpenAIError"), "exception"),
        (of("openai", "AuthenticationError", status_code=401), "credentials"),
        (
            errors.ClientError(400, {"error": {"message": "x", "details": [{"reason": "API_KEY_INVALID"}]}}),
            "credentials",
        ),
        (errors.ClientError(400, {"error": {"message": "API key not valid. Please pass one."}}), "credentials"),
        (errors.ClientError(403, {"error": {"message": "PERMISSION_DENIED"}}), "credentials"),
        (of("openai", "PermissionDeniedError", status_code=403), "credentials"),
        (of("httpx", "HTTPStatusError", response=Response(403)), "exception"),
        (of("google.cloud.bigquery", "Forbidden", code=403), "exception"),
        (of("google.auth.exceptions", "DefaultCredentialsError"), "credentials"),
        (of("agent", "Unauthorized", status_code=401), "exception"),
        (RuntimeError("No API key was provided"), "exception"),
        (ValueError("the API key of the vault was turned down"), "exception"),
    ],
    ids=repr,
)
def test_a_client_without_a_key_is_distinguished_from_every_other_failure(error: Exception, kind: str) -> None:
    assert describe(error)["kind"] == kind


def test_a_client_without_a_key_is_found_among_the_causes() -> None:
    error = RuntimeError("the model could not be made")
    error.__cause__ = ValueError("No API key was provided. Please pass a valid API key.")
    assert describe(error)["kind"] == "credentials"
