"""Exceptions as values: which kind of failure, one sentence, the last lines of the traceback."""

from __future__ import annotations

import re
import socket
import sys
import traceback
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from agent_eval_worker_json import whole_text

MAX_MESSAGE = 2_000
MAX_LINES = 40
MAX_TEXT = 16_000
MAX_CHAIN = 50
ERRORS = range(400, 600)
SERVER_ERRORS = range(500, 600)
# Only clients' exceptions are asked for a status: an agent's own exception may have a ``code`` of any meaning.
CLIENTS = frozenset(
    {
        "aiohttp",
        "anthropic",
        "botocore",
        "google",
        "groq",
        "grpc",
        "httpcore",
        "httpx",
        "litellm",
        "mistralai",
        "openai",
        "requests",
        "urllib",
        "urllib3",
    }
)
NETWORK = (ConnectionError, TimeoutError, socket.gaierror, socket.herror)
# Of gRPC, whose errors have a method ``code``, as HTTP has them.
GRPC = {"RESOURCE_EXHAUSTED": 429, "UNAVAILABLE": 503, "DEADLINE_EXCEEDED": 504, "UNAUTHENTICATED": 401}
BAD_KEY = re.compile("API_KEY_INVALID|API key not valid")
MODELS = frozenset({"anthropic", "google.genai", "groq", "litellm", "mistralai", "openai"})
CONNECTION = re.compile(
    r"(Connect|Connection|ReadTimeout|WriteTimeout|PoolTimeout|ReadError|WriteError|ProtocolError|"
    r"ServerDisconnected|ClientOSError|Timeout)"
)
# What google-genai, openai (and litellm, which asks it), anthropic and google-auth say of a key that is not there.
NO_KEY = re.compile(
    r"No API key was provided|Missing key inputs argument|api_key client option must be set|"
    r"Could not resolve authentication method|default credentials were not found|Missing credentials",
    re.IGNORECASE,
)


def describe(error: BaseException) -> dict[str, str]:
    """An exception as ``{kind, message, traceback}``."""
    kind, status = _kind(error)
    text = _one_line(error)
    if kind == "rate_limited":
        wait = retry_after(error)
        text += f" (retry after {wait})" if wait else ""
    if status is not None and str(status) not in text:
        text = f"{status}: {text}"
    return {"kind": kind, "message": whole_text(text[:MAX_MESSAGE]), "traceback": last_lines(error)}


def kind_of(error: BaseException) -> str:
    """The kind alone, as ``describe`` has it."""
    return _kind(error)[0]


def last_lines(error: BaseException) -> str:
    """The end of the formatted traceback, causes included."""
    try:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__, limit=-30))
    except BaseException as broken:  # noqa: BLE001 - a hostile __str__ must not end the turn
        text = f"{type(error).__name__} (its traceback cannot be shown: {type(broken).__name__})"
    return whole_text("\n".join(text.rstrip().splitlines()[-MAX_LINES:])[-MAX_TEXT:])


def stack_of_thread(ident: int | None) -> str:
    """The stack of a running thread, innermost frame last."""
    frame = sys._current_frames().get(ident or 0)  # noqa: SLF001 - the documented way to see another thread
    if frame is None:
        return ""
    return whole_text("".join(traceback.format_stack(frame, limit=30))[-MAX_TEXT:])


def _one_line(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"sys.exit({error.code!r}) was called"
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - a hostile __str__ must not end the turn
        text = "<no text>"
    name = type(error).__name__
    return f"{name}: {text.strip()}" if text.strip() else name


def _kind(error: BaseException) -> tuple[str, int | None]:
    if isinstance(error, (SystemExit, KeyboardInterrupt)):
        return "died", None
    for cause in _chain(error):
        status = _status(cause)
        if _lacks_credentials(cause, status):
            return "credentials", status
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            return "rate_limited", status
        if status is not None and (status == HTTPStatus.REQUEST_TIMEOUT or status in SERVER_ERRORS):
            return "unavailable", status
        if isinstance(cause, NETWORK) or (_of_client(cause) and CONNECTION.search(type(cause).__name__)):
            return "unavailable", None
    return "exception", None


def _lacks_credentials(error: BaseException, status: int | None) -> bool:
    """A client that was given no key, or that finds no identity on this machine. A wrong key is a 401 as well."""
    if status == HTTPStatus.UNAUTHORIZED or type(error).__name__ == "DefaultCredentialsError":
        return True
    if status == HTTPStatus.FORBIDDEN:  # of a model; a tool may be refused a page for many reasons
        return _of_client(error, MODELS)
    # Gemini calls a wrong key a bad request
    if status == HTTPStatus.BAD_REQUEST and _of_client(error, MODELS) and BAD_KEY.search(_text(error)):
        return True
    # clients say it with a ValueError, a TypeError or a class of their own; agents may fail with the same types
    return isinstance(error, (ValueError, TypeError)) or _of_client(error) if _says_no_key(error) else False


def _says_no_key(error: BaseException) -> bool:
    return NO_KEY.search(_text(error)) is not None


def _text(error: BaseException) -> str:
    try:
        return str(error)[:MAX_MESSAGE]
    except BaseException:  # noqa: BLE001 - a hostile __str__ must not end the turn
        return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, the members of a group, and its causes, each once."""
    todo: list[BaseException | None] = [error]
    seen: set[int] = set()
    while todo and len(seen) < MAX_CHAIN:
        cause = todo.pop(0)
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        todo.extend(getattr(cause, "exceptions", None) or ())
        todo.append(cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__))


def _of_client(error: BaseException, clients: frozenset[str] = CLIENTS) -> bool:
    """Whether a class of the error is of one of these packages, given by name or as ``package.module``."""
    modules = [base.__module__.split(".") for base in type(error).__mro__]
    return any(parts[0] in clients or ".".join(parts[:2]) in clients for parts in modules)


def _status(error: BaseException) -> int | None:
    if not _of_client(error):
        return None
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore's
        found = response.get("ResponseMetadata")
        return found.get("HTTPStatusCode") if isinstance(found, dict) else None
    for value in (
        _code(error),
        getattr(error, "status_code", None),
        getattr(error, "status", None),
        getattr(response, "status_code", None),
    ):
        # http.HTTPStatus is an int; booleans and strings are not statuses.
        if isinstance(value, int) and value in ERRORS:
            return int(value)
    return None


def _code(error: BaseException) -> Any:
    code = getattr(error, "code", None)
    if not callable(code):
        return code
    try:
        return GRPC.get(str(getattr(code(), "name", "")))
    except Exception:  # noqa: BLE001 - any client's method
        return None


def retry_after(error: BaseException) -> str | None:
    """When the server said to ask again, as it said it."""
    for cause in _chain(error):
        headers = getattr(getattr(cause, "response", None), "headers", None)
        try:
            value = headers.get("retry-after") if headers is not None else None
        except Exception:  # noqa: BLE001 - any client's headers object
            value = None
        if value:
            return f"{value} s" if str(value).isdigit() else str(value)
        # Gemini says it in the body: google.rpc.RetryInfo.
        found = re.search(r"retryDelay['\"]?\s*:\s*['\"]([0-9.]+s)", str(getattr(cause, "details", "")))
        if found:
            return found.group(1)
    return None
