"""Which variables judges use, whether a model's credentials are there, and when an agent's .env counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from agent_eval_action.folders import real_path
from agent_eval_action.llm.client import ProviderConfig

GOOGLE_KEYS: Final = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
EXTRA: Final = "pip install 'agent-eval-action["
"""In every sentence about something that is not installed: what credentials have no part in."""
EXTRA_MISSING: Final = f"models named openai/… need the extra `openai`: {EXTRA}openai]'"
OPENAI_KEY: Final = "OPENAI_API_KEY"
OPENAI_URLS: Final = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
VERTEX_SWITCHES: Final = ("GOOGLE_GENAI_USE_ENTERPRISE", "GOOGLE_GENAI_USE_VERTEXAI")  # the newer name wins
CREDENTIALS_FILE: Final = "GOOGLE_APPLICATION_CREDENTIALS"

_DOTENV: Final = ".env"

# What an agent's .env may say. Left out on purpose: a credentials file and Vertex's address. A pull request writes
# the .env; a file of its choice can make google-auth send any readable file away as a token, and an address of its
# choice would be sent the access token of the machine.
_FROM_DOTENV: Final = (
    *GOOGLE_KEYS,
    *VERTEX_SWITCHES,
    "GOOGLE_CLOUD_PROJECT",
    "GOOGLE_CLOUD_LOCATION",
    "GOOGLE_GEMINI_BASE_URL",
    OPENAI_KEY,
    *OPENAI_URLS,
    "OPENAI_ORG_ID",
    "OPENAI_PROJECT_ID",
)
JUDGE_VARIABLES: Final = (
    *_FROM_DOTENV,
    CREDENTIALS_FILE,
    "GOOGLE_VERTEX_BASE_URL",
    "GOOGLE_CLOUD_QUOTA_PROJECT",
    "CLOUDSDK_CONFIG",
    "HOME",
)


def judge_environ(environ: Mapping[str, str], dotenv: Mapping[str, str]) -> dict[str, str]:
    """The variables judges use. ``dotenv`` (of the agent's folder) counts whole or not at all.

    It counts only where the environment has no model credential of its own: a .env that comes with a pull request
    must not redirect the address that our key is sent to. Where it counts, the environment still wins by variable.
    """
    ours = {name: value for name in JUDGE_VARIABLES if (value := environ.get(name, "").strip())}
    # Any provider's: the variables are one set. Vertex switched on means the machine's own identity.
    keys = (*GOOGLE_KEYS, OPENAI_KEY, CREDENTIALS_FILE)
    if any(name in ours for name in keys) or uses_vertex(ProviderConfig(ours)):
        return ours
    theirs = {name: value for name in _FROM_DOTENV if (value := dotenv.get(name, "").strip())}
    return {**theirs, **ours}


def dotenv_of(
    folders: Iterable[Path], workspace: Path, ignored: Callable[[Path], bool] = lambda _: False
) -> dict[str, str]:
    """The variables of the first ``.env`` in an agent's folder or above it, inside the workspace, as ADK finds it.

    ``ignored``: files that a change adds; they must not choose the judges' server.
    """
    from dotenv import dotenv_values  # noqa: PLC0415 - only runs with a judge read it

    for folder in folders:
        for place in (folder, *folder.parents):
            file = place / _DOTENV
            if place.is_relative_to(workspace) and file.is_file() and not ignored(file):
                found = dotenv_values(file, interpolate=False)
                return {name: value for name, value in found.items() if value is not None}
    return {}


def dotenv_of_agent(folder: Path, workspace: Path) -> dict[str, str]:
    """The same for an agent itself: what is unreadable, or no text, gives it nothing."""
    try:
        return dotenv_of([real_path(folder)], real_path(workspace))
    except (OSError, ValueError):
        return {}


def uses_vertex(setup: ProviderConfig, model: str = "") -> bool:
    """Whether Google's models are asked through Vertex AI; a full resource name exists nowhere else (as in ADK)."""
    # as google-genai reads its switches
    return model.startswith("projects/") or setup.value(*VERTEX_SWITCHES).lower() in ("true", "1")


def missing(model: str, environ: Mapping[str, str], *, openai_base_url: str = "") -> str:
    """One sentence that says what to set before ``model`` can be asked; "" where nothing is known to be missing.

    Pure: no network. Only the first call shows whether a key is valid, or whether this machine has an identity.
    """
    setup, problem = ProviderConfig(environ), ""
    no_credentials = f"no credentials for the model `{model}`: "
    if model.startswith("openai/"):
        if find_spec("openai") is None:
            problem = EXTRA_MISSING
        # a server of one's own often wants no key
        elif not (setup.value(OPENAI_KEY) or openai_base_url or setup.value(*OPENAI_URLS)):
            problem = f"{no_credentials}set {OPENAI_KEY} (or OPENAI_BASE_URL for a server of your own)"
    elif model.startswith("vertex_eval/"):
        # As google-adk's facade to the evaluation service: the key wins, else both of the others. Not for coherence,
        # whose prompt lies in a bucket that wants an identity.
        key_suffices = model != "vertex_eval/coherence"
        lacks = [name for name in ("GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION") if not setup.value(name)]
        if lacks and not (key_suffices and setup.value("GOOGLE_API_KEY")):
            instead = " (or GOOGLE_API_KEY)" if key_suffices else ""
            problem = f"no credentials for Vertex AI's evaluation service: set {' and '.join(lacks)}{instead}"
    elif uses_vertex(setup, model):
        file = setup.value(CREDENTIALS_FILE)
        if file and not Path(file).is_file():
            problem = f"{no_credentials}{CREDENTIALS_FILE} names `{file}`, which is no file"
        # a credentials file knows its project; with a key alone Vertex needs none (express mode)
        elif not (file or model.startswith("projects/") or setup.value("GOOGLE_CLOUD_PROJECT", *GOOGLE_KEYS)):
            wanted = "GOOGLE_CLOUD_PROJECT (and GOOGLE_CLOUD_LOCATION)"
            problem = f"no project for the model `{model}` on Vertex AI: set {wanted}"
    elif not setup.value(*GOOGLE_KEYS):
        vertex = "GOOGLE_GENAI_USE_VERTEXAI=true with GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION"
        problem = f"{no_credentials}set GOOGLE_API_KEY (or GEMINI_API_KEY), or {vertex}"
    return problem
