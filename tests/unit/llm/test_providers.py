"""Which provider a model's name means, and what is said of names nobody knows."""

from __future__ import annotations

import sys

import pytest

from agent_eval_action.llm.client import ProviderConfig
from agent_eval_action.llm.providers import PROVIDERS, check_options, provider_of, unknown_model
from agent_eval_action.llm.providers.openai import OpenAiProvider

KNOWN = [
    ("gemini-2.5-flash", "google"),
    ("gemma-3-27b-it", "google"),
    ("models/gemini-2.5-flash", "google"),
    ("tunedModels/mine-123", "google"),
    ("publishers/google/models/gemini-2.5-pro", "google"),
    ("projects/p/locations/l/endpoints/42", "google"),
    ("projects/p/locations/l/publishers/google/models/gemini-2.5-pro", "google"),
    ("openai/gpt-4.1-mini", "openai"),
    ("openai/meta-llama/Llama-3.3-70B", "openai"),
    ("vertex_eval/safety_v1", "vertex_eval"),
]


@pytest.mark.parametrize(("model", "expected"), KNOWN)
def test_a_name_means_a_provider(model, expected):
    assert provider_of(model) == expected
    assert unknown_model(model) == ""
    assert expected in {"vertex_eval", *PROVIDERS}


UNKNOWN = [
    ("anthropic/claude-sonnet-4", "`openai/claude-sonnet-4` with OPENAI_BASE_URL"),
    ("claude-sonnet-4", "`openai/claude-sonnet-4`"),
    ("gpt-4.1", "write `openai/gpt-4.1`"),
    ("o3-mini", "write `openai/o3-mini`"),
    ("gemini/gemini-2.5-flash", "write `gemini-2.5-flash`"),
    ("vertex_ai/gemini-2.5-pro", "write `gemini-2.5-pro`"),
    ("projects/p/models/m", "projects/PROJECT/locations/LOCATION/publishers/google/models/MODEL"),
    ("openai/", "write the model's name behind `openai/`"),
    ("", "write for example `gemini-2.5-flash`"),
    ("gemini 2.5", "write for example `gemini-2.5-flash`"),
]


@pytest.mark.parametrize(("model", "hint"), UNKNOWN)
def test_an_unknown_name_is_refused_with_a_hint(model, hint):
    assert hint in unknown_model(model)


def test_options_are_checked_by_the_models_provider():
    assert "did you mean `temperature`" in check_options("gemini-2.5-flash", {"temprature": 0})
    assert "does not exist on OpenAI's wire" in check_options("openai/m", {"top_k": 3})
    assert check_options("vertex_eval/safety_v1", {}) == ""


async def test_without_the_extra_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)  # what an import of something not installed meets
    provider = OpenAiProvider(ProviderConfig({}))
    assert "pip install 'agent-eval-action[openai]'" in await provider.warm_up("openai/m")
    await provider.close()
