"""Which variables of our environment an agent gets to see: an allow-list, since CI puts its own credentials there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from agent_eval_action.config.types import is_job_variable

ALLOWED_NAMES: Final = frozenset(
    # a list would take a line for each name
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
    """.split()  # noqa: SIM905 - as above
)
"""Names passed on; in upper case, compared without case where a lower-case form is in use (proxies)."""

ALLOWED_PREFIXES: Final = ("LC_", "SSL_CERT_", "GOOGLE_", "GEMINI_", "VERTEX", "LITELLM_")
"""Beginnings of names passed on."""


def agent_environ(environ: Mapping[str, str], env_allow: Iterable[str] = ()) -> dict[str, str]:
    """The variables an agent sees. ``env_allow`` names more of them, but never a variable of the CI job."""
    names = set(env_allow)
    return {
        name: value
        for name, value in environ.items()
        if (name in names or _is_allowed(name)) and not is_job_variable(name)
    }


def _is_allowed(name: str) -> bool:
    is_proxy = name.lower().endswith("_proxy") and name.upper() in ALLOWED_NAMES
    return name in ALLOWED_NAMES or name.startswith(ALLOWED_PREFIXES) or is_proxy
