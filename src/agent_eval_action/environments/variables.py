"""Allow-lists of variables for agents and for their install step, because CI's environment holds credentials.

``config/job_variables.py`` lists those that neither may see.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote

from agent_eval_action.config.job_variables import is_job_variable
from agent_eval_action.results.redaction import HIDDEN, Redaction, secrets_in

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
