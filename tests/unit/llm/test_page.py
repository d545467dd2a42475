"""docs/models.md speaks of what the code does: variables, options, sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_eval_action.llm.client import LlmErrorKind, LlmUsage
from agent_eval_action.llm.credentials import EXTRA_MISSING, JUDGE_VARIABLES, missing
from agent_eval_action.llm.providers import google, openai
from agent_eval_action.llm.providers.google import no_answer
from agent_eval_action.llm.providers.openai import no_answer as no_completion

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "models.md").read_text()


@pytest.mark.parametrize("name", sorted(set(JUDGE_VARIABLES) - {"HOME", "CLOUDSDK_CONFIG"}))
def test_every_variable_is_on_the_page(name):
    assert f"`{name}" in PAGE


@pytest.mark.parametrize("option", openai._OPTIONS)
def test_every_option_of_openais_wire_is_on_the_page(option):
    assert f"`{option}" in PAGE


@pytest.mark.parametrize("option", ["system_instruction", "response_json_schema", "candidate_count", "http_options"])
def test_the_judges_own_options_are_refused_as_the_page_says(option):
    assert f"`{option}`" in PAGE
    assert google.GoogleProvider.check_options({option: {}})


SENTENCES = [
    missing("gemini-2.5-flash", {}),
    EXTRA_MISSING,
    no_answer("MAX_TOKENS", "", LlmUsage()).message,
    no_answer("STOP", "", LlmUsage()).message,
    no_completion("stop", "I would rather not.", LlmUsage()).message,
    no_completion("length", None, LlmUsage()).message,
]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_what_errors_say_is_on_the_page(sentence):
    begins = " ".join(sentence.split()[:5]).rstrip(":")
    assert f"| `{begins}" in PAGE


def test_a_blocked_answer_is_said_as_on_the_page():
    error = no_answer("SAFETY", "", LlmUsage())
    assert error.kind is LlmErrorKind.BLOCKED
    assert error.message.endswith("was blocked (SAFETY)")
    assert "was blocked (SAFETY)`" in PAGE
