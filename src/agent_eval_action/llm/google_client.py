"""The google-genai client, made from given variables alone: which service, with which key or identity, over what."""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from agent_eval_action.llm.credentials import CREDENTIALS_FILE, GOOGLE_KEYS, uses_vertex
from agent_eval_action.llm.setup import Setup

if TYPE_CHECKING:
    import aiohttp
    from google.genai import Client

_GEMINI_URL: Final = "https://generativelanguage.googleapis.com/"
_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_MULTI_REGIONS: Final = ("us", "eu")
_IN_PROJECT: Final = re.compile(r"projects/([^/]+)/locations/([^/]+)/")
_LONGEST_ERROR: Final = 64 * 1024


class HttpFailure(Exception):  # noqa: N818 - a response, carried past the client's own reading of it
    """A response that is not 200, with the beginning of its body."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        super().__init__(f"status {status}")
        self.status, self.headers, self.body = status, headers, body


@dataclass(frozen=True)
class Address:
    """Which service is asked and as whom: one client each. ``project`` "" on Vertex: the credentials know it."""

    vertex: bool
    key: str = field(default="", repr=False)
    project: str = ""
    location: str = ""


def address(setup: Setup, model: str) -> Address:
    """Where a model is asked. A full resource name says its project and its place itself."""
    if not uses_vertex(setup, model):
        return Address(vertex=False, key=setup.value(*GOOGLE_KEYS))
    if named := _IN_PROJECT.match(model):
        return Address(vertex=True, project=named[1], location=named[2])
    project = setup.value("GOOGLE_CLOUD_PROJECT")
    # As google-genai: a project wins over a key, and a key alone is Vertex's express mode, which has neither.
    if not project and not setup.value(CREDENTIALS_FILE) and (key := setup.value(*GOOGLE_KEYS)):
        return Address(vertex=True, key=key)
    return Address(vertex=True, project=project, location=setup.value("GOOGLE_CLOUD_LOCATION") or "global")


def base_url(setup: Setup, where: Address) -> str:
    """Always said to the client, which would otherwise read the process's environment."""
    if not where.vertex:
        return setup.value("GOOGLE_GEMINI_BASE_URL") or _GEMINI_URL
    if said := setup.value("GOOGLE_VERTEX_BASE_URL"):
        return said
    if where.location in ("", "global"):
        return "https://aiplatform.googleapis.com/"
    if where.location in _MULTI_REGIONS:
        return f"https://aiplatform.{where.location}.rep.googleapis.com/"
    return f"https://{where.location}-aiplatform.googleapis.com/"


def new_session() -> aiohttp.ClientSession:
    """Connections without a bound (the limiter's is the bound), made in the running loop.

    aiohttp and not httpx: with hundreds of connections httpx takes ten times the processor time per call. Proxies
    are the process's own (HTTPS_PROXY), as every client has them.
    """
    import aiohttp  # noqa: PLC0415 - a tenth of a second, which only a run with a model needs

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), trust_env=True, raise_for_status=_raise_for_status
    )


def new_client(setup: Setup, where: Address, session: aiohttp.ClientSession) -> Client:
    """Make the client; blocks for a tenth of a second, longer where Vertex's credentials are looked up."""
    from google import genai  # noqa: PLC0415 - most of a second, which only a run with a model needs
    from google.genai.types import HttpOptions, HttpRetryOptions  # noqa: PLC0415 - see above

    # It says on stderr that two keys are set, and the like: we say what we think about variables ourselves.
    logging.getLogger("google_genai").addHandler(logging.NullHandler())
    options = HttpOptions(
        base_url=base_url(setup, where),
        timeout=round(setup.timeout * 1000),  # sent along too, so that a server stops when we have
        retry_options=HttpRetryOptions(attempts=1),  # without it, it sleeps up to 10 s and asks again on its own
        # The client would follow a redirect with the key in a header of its own, to whatever host it names.
        async_client_args={"allow_redirects": False},
        aiohttp_client=session,
    )
    if not where.vertex:
        return genai.Client(vertexai=False, api_key=where.key, http_options=options)
    if where.key:
        return genai.Client(vertexai=True, api_key=where.key, http_options=options)
    credentials, project = identity(setup)
    if not (where.project or project):
        raise LookupError("no project for Vertex AI: set GOOGLE_CLOUD_PROJECT")
    return genai.Client(
        vertexai=True,
        credentials=credentials,
        project=where.project or project,
        location=where.location,
        http_options=options,
    )


def identity(setup: Setup) -> tuple[Any, str]:
    """Application default credentials and the project they belong to; GoogleAuthError where there are none."""
    import google.auth  # noqa: PLC0415 - see new_client

    quota_project = setup.value("GOOGLE_CLOUD_QUOTA_PROJECT") or None
    file = setup.value(CREDENTIALS_FILE)
    if not file:
        found = google.auth.default(scopes=[_SCOPE], quota_project_id=quota_project)
    else:
        with warnings.catch_warnings():
            # It warns of files from strangers; this one is named by whoever runs us (never by an agent's .env).
            warnings.simplefilter("ignore", DeprecationWarning)
            load: Any = google.auth.load_credentials_from_file
            found = load(file, scopes=[_SCOPE], quota_project_id=quota_project)
    credentials, project = found
    return credentials, project or ""


async def _raise_for_status(response: aiohttp.ClientResponse) -> None:
    """Take an error before the client reads it: it would read all of it, and lose the status if it is broken JSON."""
    if response.status == 200:  # noqa: PLR2004 - what the client takes for an answer
        return
    body = bytearray()
    with contextlib.suppress(Exception):  # a body that ends early says less; the status stands
        while len(body) < _LONGEST_ERROR and (chunk := await response.content.read(_LONGEST_ERROR - len(body))):
            body += chunk
    response.close()
    raise HttpFailure(response.status, dict(response.headers), bytes(body))
