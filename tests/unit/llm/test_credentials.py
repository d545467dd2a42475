"""What judges may read of the environment, when a .env counts, and which variable is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_eval_action.llm.client import ProviderConfig
from agent_eval_action.llm.credentials import JUDGE_VARIABLES, dotenv_of, judge_environ, missing

VERTEX = {"GOOGLE_GENAI_USE_VERTEXAI": "true"}


def test_judges_see_their_own_variables_alone():
    environ = {"GOOGLE_API_KEY": "k", "GITHUB_TOKEN": "t", "PATH": "/bin", "HOME": "/root", "OPENAI_BASE_URL": " "}
    assert judge_environ(environ, {}) == {"GOOGLE_API_KEY": "k", "HOME": "/root"}


DOTENV = {
    "GOOGLE_API_KEY": "theirs",
    "GOOGLE_GEMINI_BASE_URL": "http://theirs",
    "GOOGLE_VERTEX_BASE_URL": "http://theirs",
    "GOOGLE_APPLICATION_CREDENTIALS": "/proc/self/environ",
    "OPENAI_BASE_URL": "http://theirs",
    "LD_PRELOAD": "evil.so",
}


@pytest.mark.parametrize(
    "ours",
    [
        {"GOOGLE_API_KEY": "ours"},
        {"GEMINI_API_KEY": "ours"},
        {"OPENAI_API_KEY": "ours"},
        {"GOOGLE_APPLICATION_CREDENTIALS": "/ours.json"},
        VERTEX,
        {"GOOGLE_GENAI_USE_ENTERPRISE": "1"},
    ],
)
def test_with_a_credential_of_our_own_nothing_of_the_dotenv_counts(ours):
    assert judge_environ(ours, DOTENV) == ours


def test_without_one_the_dotenv_counts_but_never_for_a_file_or_vertexs_address():
    environ = {"GOOGLE_API_KEY": "", "HOME": "/root", "GOOGLE_CLOUD_PROJECT": "ours"}  # a secret that was not given
    assert judge_environ(environ, {**DOTENV, "GOOGLE_CLOUD_PROJECT": "theirs"}) == {
        "HOME": "/root",
        "GOOGLE_CLOUD_PROJECT": "ours",
        "GOOGLE_API_KEY": "theirs",
        "GOOGLE_GEMINI_BASE_URL": "http://theirs",
        "OPENAI_BASE_URL": "http://theirs",
    }


def test_every_variable_a_dotenv_may_say_is_one_judges_use():
    everything = dict.fromkeys([*JUDGE_VARIABLES, *DOTENV], "x")
    assert judge_environ({}, everything).keys() <= set(JUDGE_VARIABLES)


MISSING = [
    ("gemini-2.5-flash", {}, "GOOGLE_API_KEY"),
    ("gemini-2.5-flash", {"GOOGLE_API_KEY": "  "}, "GOOGLE_API_KEY"),
    ("gemini-2.5-flash", {"GOOGLE_API_KEY": "k"}, ""),
    ("models/gemini-2.5-flash", {"GEMINI_API_KEY": "k"}, ""),
    ("gemini-2.5-flash", {"OPENAI_API_KEY": "k"}, "GOOGLE_API_KEY"),
    ("gemini-2.5-flash", VERTEX, "GOOGLE_CLOUD_PROJECT"),
    ("gemini-2.5-flash", {**VERTEX, "GOOGLE_CLOUD_PROJECT": "p"}, ""),
    ("gemini-2.5-flash", {**VERTEX, "GOOGLE_API_KEY": "express"}, ""),
    ("gemini-2.5-flash", {**VERTEX, "GOOGLE_APPLICATION_CREDENTIALS": "/no/such/file.json"}, "/no/such/file.json"),
    ("gemini-2.5-flash", {**VERTEX, "GOOGLE_APPLICATION_CREDENTIALS": __file__}, ""),
    ("gemini-2.5-flash", {**VERTEX, "GOOGLE_GENAI_USE_ENTERPRISE": "0"}, "GOOGLE_API_KEY"),
    ("projects/p/locations/l/endpoints/1", {}, ""),
    ("openai/gpt-4.1", {}, "OPENAI_API_KEY"),
    ("openai/gpt-4.1", {"GOOGLE_API_KEY": "k"}, "OPENAI_API_KEY"),
    ("openai/gpt-4.1", {"OPENAI_API_KEY": "k"}, ""),
    ("openai/qwen", {"OPENAI_API_BASE": "http://127.0.0.1:11434/v1"}, ""),
    ("vertex_eval/safety_v1", {}, "GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION"),
    ("vertex_eval/safety_v1", {"GOOGLE_CLOUD_PROJECT": "p"}, "set GOOGLE_CLOUD_LOCATION"),
    ("vertex_eval/safety_v1", {"GOOGLE_API_KEY": "k"}, ""),
]


@pytest.mark.parametrize(("model", "environ", "said"), MISSING)
def test_what_is_missing_is_named(model, environ, said):
    found = missing(model, environ)
    assert said in found
    assert bool(said) == bool(found)


def test_an_address_of_the_configuration_stands_for_a_key():
    assert missing("openai/qwen", {}, openai_base_url="http://127.0.0.1:8000/v1") == ""


def test_a_setup_does_not_show_its_keys():
    assert "secret" not in repr(ProviderConfig({"GOOGLE_API_KEY": "secret"}))


def test_a_dotenv_is_looked_for_from_the_agent_up_to_the_workspace(tmp_path: Path) -> None:
    workspace = tmp_path / "repository"
    agent = workspace / "agents" / "hotel"
    agent.mkdir(parents=True)
    (tmp_path / ".env").write_text("GOOGLE_API_KEY=outside\n")
    assert dotenv_of([agent], workspace) == {}
    (workspace / ".env").write_text("GOOGLE_API_KEY=above\nEMPTY\n")
    assert dotenv_of([agent], workspace) == {"GOOGLE_API_KEY": "above"}
    (agent / ".env").write_text('export GOOGLE_API_KEY="$HOME nearest" # a remark\n')
    assert dotenv_of([agent], workspace) == {"GOOGLE_API_KEY": "$HOME nearest"}
