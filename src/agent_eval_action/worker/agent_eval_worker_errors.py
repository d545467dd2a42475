"""Convert exceptions to values: the kind of failure, one sentence, the last lines of the traceback."""

from __future__ import annotations

import re
import socket
import traceback
from collections.abc import Iterator
from http import HTTPStatus

MAX_MESSAGE = 2_000
MAX_LINES = 40
MAX_TEXT = 16_000
MAX_CHAIN = 50
ERRORS = range(400, 600)
SERVER_ERRORS = range(500, 600)
# Only clients' exceptions have a status: the ``code`` of an agent's own exception may mean anything.
CLIENTS = frozenset(
    """
    aiohttp anthropic botocore google groq grpc httpcore httpx litellm mistralai openai requests urllib urllib3
    """.split()  # noqa: SIM905 - a list would take a line for each name
)
NETWORK = (ConnectionError, TimeoutError, socket.gaierror, socket.herror)
# gRPC's status codes, which a method ``code`` of its errors returns, as HTTP statuses.
GRPC = {"RESOURCE_EXHAUSTED": 429, "UNAVAILABLE": 503, "DEADLINE_EXCEEDED": 504, "UNAUTHENTICATED": 401}
BAD_KEY = re.compile("API_KEY_INVALID|API key not valid")
MODELS = frozenset({"anthropic", "google.genai", "groq", "litellm", "mistralai", "openai"})
CONNECTION = re.compile(
    r"(Connect|Connection|ReadTimeout|WriteTimeout|PoolTimeout|ReadError|WriteError|ProtocolError|"
    r"ServerDisconnected|ClientOSError|Timeout)"
)
# The messages of google-genai, openai (and litellm, which uses it), anthropic and google-auth about a missing key.
NO_KEY = re.compile(
    r"No API key was provided|Missing key inputs argument|api_key client option must be set|"
    r"Could not resolve authentication method|default credentials were not found|Missing credentials",
    re.IGNORECASE,
)


class WorkerError(Exception):
    """An error that the worker itself finds, reported without a class name and a traceback."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def describe(error: BaseException) -> dict[str, str]:
    """Return an exception as ``{kind, message, traceback}``."""
    if isinstance(error, WorkerError):
        return {"kind": error.kind, "message": whole_text(str(error)[:MAX_MESSAGE]), "traceback": ""}
    kind, status = _classify(error)
    if isinstance(error, SystemExit):
        text = f"sys.exit({error.code!r}) was called"
    else:
        text = ": ".join(filter(None, (type(error).__name__, _text(error))))
    if kind == "rate_limited" and (wait := retry_after(error)):
        text += f" (retry after {wait})"
    if status is not None and str(status) not in text:
        text = f"{status}: {text}"
    return {"kind": kind, "message": whole_text(text[:MAX_MESSAGE]), "traceback": last_lines(error)}


def kind_of(error: BaseException) -> str:
    """Return only the kind, as in ``describe``."""
    return _classify(error)[0]


def last_lines(error: BaseException) -> str:
    """Return the end of the formatted traceback, including causes."""
    try:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__, limit=-30))
    except BaseException as broken:  # noqa: BLE001 - a hostile __str__ must not end the turn
        text = f"{type(error).__name__} (its traceback cannot be shown: {type(broken).__name__})"
    return whole_text("\n".join(text.rstrip().splitlines()[-MAX_LINES:])[-MAX_TEXT:])


def whole_text(text: str) -> str:
    """Join surrogate pairs, replace lone ones by U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _text(error: BaseException) -> str:
    try:
        return str(error).strip()
    except BaseException:  # noqa: BLE001 - a hostile __str__ must not end the turn
        return "<no text>"


def _classify(error: BaseException) -> tuple[str, int | None]:
    """Return the kind, and the HTTP status if there is one."""
    if isinstance(error, (SystemExit, KeyboardInterrupt)):
        return "died", None
    for cause in chain(error):
        status = _status(cause)
        if _lacks_credentials(cause, status):
            return "credentials", status
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            return "rate_limited", status
        if status == HTTPStatus.REQUEST_TIMEOUT or status in SERVER_ERRORS:
            return "unavailable", status
        if isinstance(cause, NETWORK) or (_of_client(cause) and CONNECTION.search(type(cause).__name__)):
            return "unavailable", None
    return "exception", None


def _lacks_credentials(error: BaseException, status: int | None) -> bool:
    """Whether a client has no key or a refused one, or finds no identity on this machine."""
    if status == HTTPStatus.UNAUTHORIZED or type(error).__name__ == "DefaultCredentialsError":
        return True
    if status == HTTPStatus.FORBIDDEN:  # only from a model: a tool may get it for many reasons
        return _of_client(error, MODELS)
    text = _text(error)[:MAX_MESSAGE]
    # Gemini calls a wrong key a bad request
    if status == HTTPStatus.BAD_REQUEST and _of_client(error, MODELS) and BAD_KEY.search(text):
        return True
    # clients raise a ValueError, a TypeError or a class of their own; agents may fail with the same types
    return NO_KEY.search(text) is not None and (isinstance(error, (ValueError, TypeError)) or _of_client(error))


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception, the members of a group, and its causes, each once."""
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
    """Whether a class of the error comes from one of these packages, given as ``package`` or ``package.module``."""
    modules = [base.__module__.split(".") for base in type(error).__mro__]
    return any(parts[0] in clients or ".".join(parts[:2]) in clients for parts in modules)


def _status(error: BaseException) -> int | None:
    if not _of_client(error):
        return None
    code, response = getattr(error, "code", None), getattr(error, "response", None)
    if isinstance(response, dict):  # botocore's
        found = response.get("ResponseMetadata")
        return found.get("HTTPStatusCode") if isinstance(found, dict) else None
    if callable(code):
        try:
            code = GRPC.get(str(getattr(code(), "name", "")))
        except Exception:  # noqa: BLE001 - any client's method
            code = None
    found = [code, *(getattr(error, name, None) for name in ("status_code", "status"))]
    found.append(getattr(response, "status_code", None))
    # http.HTTPStatus is an int; booleans and strings are not statuses.
    return next((int(value) for value in found if isinstance(value, int) and value in ERRORS), None)


def retry_after(error: BaseException) -> str | None:
    """Return when the server asks to be called again, in its own words."""
    for cause in chain(error):
        headers = getattr(getattr(cause, "response", None), "headers", None)
        try:
            value = headers.get("retry-after") if headers is not None else None
        except Exception:  # noqa: BLE001 - any client's headers object
            value = None
        if value:
            return f"{value} s" if str(value).isdigit() else str(value)
        # Gemini puts it into the body: google.rpc.RetryInfo.
        found = re.search(r"retryDelay['\"]?\s*:\s*['\"]([0-9.]+s)", str(getattr(cause, "details", "")))
        if found:
            return found.group(1)
    return None
