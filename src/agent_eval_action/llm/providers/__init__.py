"""The table of providers, and which provider serves a model, by its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from agent_eval_action.llm.providers.base import ModelProvider
from agent_eval_action.llm.providers.google import GoogleProvider, VertexEval
from agent_eval_action.llm.providers.openai import OpenAiProvider

PROVIDERS: Final[dict[str, type[ModelProvider[Any, Any]]]] = {
    "google": GoogleProvider,
    "openai": OpenAiProvider,
    "vertex_eval": VertexEval,
}

_PREFIXES: Final = ("openai", "vertex_eval")
# google-genai and ADK accept bare names, and resource names that begin with one of these.
_RESOURCES: Final = ("projects", "publishers", "models", "tunedModels")
_MODEL_IN_RESOURCE: Final = re.compile(
    r"models/[^/\s]+|tunedModels/[^/\s]+|publishers/[^/\s]+/models/[^/\s]+"
    r"|projects/[^/\s]+/locations/[^/\s]+/(?:publishers/[^/\s]+/models|endpoints|models)/[^/\s]+"
)
_OPENAI_NAME: Final = re.compile(r"(?:gpt|chatgpt|o[1-9])\b[\w.-]*")


def provider_of(model: str) -> str:
    """The provider's name: that of the prefix in ``openai/x`` and ``vertex_eval/x``, else google."""
    prefix, _, _ = model.partition("/")
    return prefix if prefix in _PREFIXES else "google"


def unknown_model(model: str) -> str:
    """A sentence about why this model is unknown and what to write instead; "" if it is known."""
    prefix, slash, name = model.partition("/")
    problem = ""
    if not model.strip() or re.search(r"\s", model):
        problem = f"`{model}` is no name of a model — write for example `gemini-2.5-flash` or `openai/gpt-4.1-mini`"
    elif not slash and _OPENAI_NAME.match(model):
        problem = f"`{model}` is no model of Google — write `openai/{model}`"
    elif not slash and model.startswith("claude"):
        problem = (
            f"`{model}` is no model of Google — judges can be asked at whatever speaks OpenAI's wire: "
            f"`openai/{model}` with OPENAI_BASE_URL"
        )
    elif prefix in _PREFIXES:
        if not name:
            problem = f"`{model}` names no model — write the model's name behind `{prefix}/`"
    elif prefix in _RESOURCES:
        if not _MODEL_IN_RESOURCE.fullmatch(model):
            form = "projects/PROJECT/locations/LOCATION/publishers/google/models/MODEL"
            problem = f"`{model}` is no resource name of a model — write `{form}`, or the bare name of the model"
    elif prefix in ("gemini", "vertex_ai", "google") and name.startswith("gemini-"):
        problem = f"unknown provider `{prefix}` in the model `{model}` — write `{name}`"
    elif slash:
        problem = (
            f"unknown provider `{prefix}` in the model `{model}` — judges are asked at Google (`gemini-2.5-flash`) or "
            f"at whatever speaks OpenAI's wire (`openai/{name}` with OPENAI_BASE_URL)"
        )
    return problem


def check_options(model: str, options: Mapping[str, Any]) -> str:
    """A sentence about what is wrong with ``judge_model_config`` for this model; "" if nothing. No network."""
    return PROVIDERS[provider_of(model)].check_options(options) if options else ""
