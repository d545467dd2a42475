"""Which variables judges use, whether a model's credentials are set, and when an agent's .env applies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from agent_eval_action.folders import real_path
from agent_eval_action.llm.client import ProviderConfig

GOOGLE_KEYS: Final = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
EXTRA: Final = "pip install 'agent-eval-action["
"""Part of every sentence about missing packages, which distinguishes them from missing credentials."""
EXTRA_MISSING: Final = f"models named openai/… need the extra `openai`: {EXTRA}openai]'"
OPENAI_KEY: Final = "OPENAI_API_KEY"
OPENAI_URLS: Final = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
VERTEX_SWITCHES: Final = ("GOOGLE_GENAI_USE_ENTERPRISE", "GOOGLE_GENAI_USE_VERTEXAI")  # the newer name wins
CREDENTIALS_FILE: Final = "GOOGLE_APPLICATION_CREDENTIALS"

_DOTENV: Final = ".env"

# What an agent's .env may set. It must not set a credentials file or Vertex's address, because a pull request can
# change the .env: its credentials file could make google-auth send any readable file as a token, and its address
# would receive the machine's access token.
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
    """The variables judges use. ``dotenv`` (of the agent's folder) applies as a whole or not at all.

    It applies only if the environment has no model credential: the .env of a pull request must not redirect our key
    to another address. If it applies, variables of the environment still win over it.
    """
    ours = {name: value for name in JUDGE_VARIABLES if (value := environ.get(name, "").strip())}
    # A credential of any provider counts. With Vertex switched on, the credential is the machine's identity.
    keys = (*GOOGLE_KEYS, OPENAI_KEY, CREDENTIALS_FILE)
    if any(name in ours for name in keys) or uses_vertex(ProviderConfig(ours)):
        return ours
    theirs = {name: value for name in _FROM_DOTENV if (value := dotenv.get(name, "").strip())}
    return {**theirs, **ours}


def dotenv_of(
    folders: Iterable[Path], workspace: Path, ignored: Callable[[Path], bool] = lambda _: False
) -> dict[str, str]:
    """The variables of the first ``.env`` in or above an agent's folder, inside the workspace, as ADK finds it.

    ``ignored`` is true for files that a change adds; these must not choose the judges' server.
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
    """The variables of an agent's ``.env``; none if the file cannot be read or is not text."""
    try:
        return dotenv_of([real_path(folder)], real_path(workspace))
    except (OSError, ValueError):
        return {}


def uses_vertex(setup: ProviderConfig, model: str = "") -> bool:
    """Whether Google's models are called through Vertex AI. As in ADK, full resource names always are."""
    # the switches' values as google-genai reads them
    return model.startswith("projects/") or setup.value(*VERTEX_SWITCHES).lower() in ("true", "1")


def missing(model: str, environ: Mapping[str, str], *, openai_base_url: str = "") -> str:
    """A sentence that says what to set before ``model`` can be called; "" if nothing is known to be missing.

    Uses no network: only the first call shows whether a key is valid or this machine has an identity.
    """
    setup, problem = ProviderConfig(environ), ""
    no_credentials = f"no credentials for the model `{model}`: "
    if model.startswith("openai/"):
        if find_spec("openai") is None:
            problem = EXTRA_MISSING
        # self-hosted servers often need no key
        elif not (setup.value(OPENAI_KEY) or openai_base_url or setup.value(*OPENAI_URLS)):
            problem = f"{no_credentials}set {OPENAI_KEY} (or OPENAI_BASE_URL for a server of your own)"
    elif model.startswith("vertex_eval/"):
        # Like google-adk's evaluation facade: the key wins, else project and location are needed. Coherence always
        # needs these, since reading its prompt from a bucket takes an identity.
        key_suffices = model != "vertex_eval/coherence"
        lacks = [name for name in ("GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION") if not setup.value(name)]
        if lacks and not (key_suffices and setup.value("GOOGLE_API_KEY")):
            instead = " (or GOOGLE_API_KEY)" if key_suffices else ""
            problem = f"no credentials for Vertex AI's evaluation service: set {' and '.join(lacks)}{instead}"
    elif uses_vertex(setup, model):
        file = setup.value(CREDENTIALS_FILE)
        if file and not Path(file).is_file():
            problem = f"{no_credentials}{CREDENTIALS_FILE} names `{file}`, which is no file"
        # a credentials file names its project; with only a key Vertex needs none (express mode)
        elif not (file or model.startswith("projects/") or setup.value("GOOGLE_CLOUD_PROJECT", *GOOGLE_KEYS)):
            wanted = "GOOGLE_CLOUD_PROJECT (and GOOGLE_CLOUD_LOCATION)"
            problem = f"no project for the model `{model}` on Vertex AI: set {wanted}"
    elif not setup.value(*GOOGLE_KEYS):
        vertex = "GOOGLE_GENAI_USE_VERTEXAI=true with GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION"
        problem = f"{no_credentials}set GOOGLE_API_KEY (or GEMINI_API_KEY), or {vertex}"
    return problem
