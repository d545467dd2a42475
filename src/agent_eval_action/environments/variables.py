"""Allow-lists of variables for agents and for their install step, because CI's environment holds credentials.

``config/job_variables.py`` lists those that neither may see. What an agent lacks is found in its code and its errors.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from agent_eval_action.config.job_variables import is_job_variable
from agent_eval_action.config.walk import texts_below
from agent_eval_action.diagnostics.suggestions import shortlist
from agent_eval_action.results.redaction import HIDDEN, Redaction, secrets_in
from agent_eval_action.results.run_result import AttemptError, ErrorKind

if TYPE_CHECKING:
    from agent_eval_action.environments.runtime import AgentRuntimeSpec

ALLOWED_NAMES: Final = frozenset(
    """
    PATH HOME USER LOGNAME SHELL TERM LANG LANGUAGE TZ TMPDIR TEMP TMP CI NO_COLOR
    HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY
    REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS GRPC_DEFAULT_SSL_ROOTS_FILE_PATH
    CLOUDSDK_CONFIG CLOUDSDK_CORE_PROJECT GCLOUD_PROJECT
    OPENAI_API_KEY OPENAI_BASE_URL OPENAI_API_BASE OPENAI_ORGANIZATION OPENAI_ORG_ID OPENAI_PROJECT
    ANTHROPIC_API_KEY ANTHROPIC_BASE_URL
    AZURE_API_KEY AZURE_API_BASE AZURE_API_VERSION AZURE_OPENAI_API_KEY AZURE_OPENAI_ENDPOINT
    AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_REGION AWS_DEFAULT_REGION AWS_REGION_NAME
    AWS_BEARER_TOKEN_BEDROCK
    COHERE_API_KEY DEEPSEEK_API_KEY FIREWORKS_API_KEY GROQ_API_KEY HF_TOKEN HUGGINGFACE_API_KEY MISTRAL_API_KEY
    OPENROUTER_API_KEY PERPLEXITY_API_KEY TOGETHER_API_KEY TOGETHERAI_API_KEY XAI_API_KEY
    OLLAMA_API_BASE OLLAMA_HOST
    ADK_DISABLE_LOAD_DOTENV
    """.split()  # noqa: SIM905 - a list would take a line for each name
)
"""Names that an agent sees, in upper case. Case is ignored for proxies, whose lower-case forms are in use."""

ALLOWED_PREFIXES: Final = ("LC_", "SSL_CERT_", "GOOGLE_", "GEMINI_", "VERTEX", "LITELLM_")
"""Prefixes of names that an agent sees."""

_INSTALL_NAMES: Final = frozenset(
    """
    PATH HOME USER LANG TMPDIR NETRC CC CXX XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME
    """.split()  # noqa: SIM905 - as above
)
_INSTALL_PREFIXES: Final = ("UV_", "LC_", "SSL_CERT_")
_PROXIES: Final = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"})
_FROM_PIP: Final = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
    "PIP_CERT": "SSL_CERT_FILE",
}
"""uv ignores pip's variables; if uv's own is not set, it gets the value of pip's."""

_LOGIN: Final = re.compile(r"(?<=://)([^/\s@]+)@")

_READ_VARIABLE: Final = re.compile(
    rb"(?:environ(?:\.(?:get|pop|setdefault))?|getenv)\s*[\[(]\s*[rub]?[\"']([A-Za-z_][A-Za-z0-9_]*)[\"']"
)
_FILES: Final = 5_000
_BYTES: Final = 1 << 20
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LISTED: Final = 5
_CREDENTIALS: Final = (
    (re.compile("anthropic|resolve authentication method", re.IGNORECASE), "set ANTHROPIC_API_KEY"),
    (re.compile("openai|client option must be set", re.IGNORECASE), "set OPENAI_API_KEY"),
    (
        re.compile(r"API_KEY_INVALID|API key not valid|PERMISSION_DENIED|ClientError: 40[13]\b", re.IGNORECASE),
        "check GOOGLE_API_KEY (or GEMINI_API_KEY): the key is not valid, or may not use this model",
    ),
    (
        re.compile("No API key was provided|Missing key inputs|default credentials|google|gemini", re.IGNORECASE),
        "set GOOGLE_API_KEY (or GEMINI_API_KEY), or GOOGLE_GENAI_USE_VERTEXAI=true with a project and location",
    ),
)


def agent_environ(environ: Mapping[str, str], env_allow: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables an agent sees. ``env_allow`` names more, but never a variable of the CI job."""
    names = {*env_allow, *ALLOWED_NAMES}
    return {
        name: value
        for name, value in environ.items()
        if (name in names or name.startswith(ALLOWED_PREFIXES) or name.upper() in _PROXIES)
        and not is_job_variable(name)
    }


def install_environ(environ: Mapping[str, str], install_env: Mapping[str, str]) -> dict[str, str]:
    """Return what the install step sees: index settings, proxies, certificates, overridden by ``install_env``.

    It never includes CI's own tokens.
    """
    passed = {
        name: value
        for name, value in environ.items()
        if name in _INSTALL_NAMES or name.startswith(_INSTALL_PREFIXES) or name.upper() in _PROXIES
    }
    for theirs, ours in _FROM_PIP.items():
        if environ.get(theirs) and not passed.get(ours):
            passed[ours] = environ[theirs]
    return passed | {name: value for name, value in install_env.items() if not is_job_variable(name)}


def selected_install_env(named: Mapping[str, str | None], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ``install_env``; those without a value come from the environment."""
    given = {name: environ.get(name) if value is None else value for name, value in named.items()}
    return {name: value for name, value in given.items() if value is not None}


def install_secrets(seen: Mapping[str, str]) -> Iterator[str]:
    """Yield what no message may contain: secrets, and logins in URLs, as written and as sent."""
    yield from secrets_in(seen)
    for value in seen.values():
        for login in _LOGIN.findall(value):
            user, given, password = login.partition(":")
            secret = password if given else user
            yield from dict.fromkeys((login, secret, unquote(secret)))


def without_secrets(text: str, seen: Mapping[str, str]) -> str:
    """Return a message of the install step without secrets."""
    redaction = Redaction()
    redaction.hide(install_secrets(seen))
    # logins first, so that the rest of the address remains
    return redaction.text(_LOGIN.sub(f"{HIDDEN}@", text))


def names_in_code(folder: Path) -> frozenset[str]:
    """Return the variables that Python files below a folder read by name. Imports nothing."""
    texts = texts_below(folder, (".py",), max_entries=_FILES, size=_BYTES)
    return frozenset(name.decode() for _, text in texts for name in _READ_VARIABLE.findall(text))


def withheld_names(spec: AgentRuntimeSpec) -> set[str]:
    """Return variables that are set but not passed to the agent, except the CI job's, which can never be passed."""
    is_set = {name for name, value in spec.environ.items() if value and not is_job_variable(name)}
    return is_set - agent_environ(spec.environ, spec.env_allow).keys()


def advice_for(names: Collection[str]) -> str:
    """Return what to do about withheld variables that are needed; "" if there are none."""
    if not names:
        return ""
    ordered = sorted(names)
    verb, what = ("is", "it") if len(ordered) == 1 else ("are", "them")
    shown = shortlist(ordered, _LISTED)
    return f"{shown} {verb} set here but not passed to the agent: add {what} to `env:` of the agent"


def with_advice(error: AttemptError, spec: AgentRuntimeSpec) -> AttemptError:
    """Return the error with the variables to set or pass, if a missing one caused it."""
    words = withheld_names(spec).intersection(_WORD.findall(error.message))
    # a plain word of an error is hardly a variable: PWD, DEBUG, user
    advice = advice_for({word for word in words if "_" in word.strip("_") or f"KeyError: '{word}'" in error.message})
    if not advice and error.kind is ErrorKind.CREDENTIALS:
        advice = next((what for sign, what in _CREDENTIALS if sign.search(error.message)), "")
    if not advice or advice in error.message:
        return error
    return error.model_copy(update={"message": f"{error.message} — {advice}"})
