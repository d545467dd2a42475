"""What an agent sees of our environment."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent_eval_action.environments.variables import (
    ALLOWED_NAMES,
    ALLOWED_PREFIXES,
    agent_environ,
    install_environ,
)

CI = {
    "PATH": "/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "LC_ALL": "C",
    "TZ": "UTC",
    "https_proxy": "http://p",
    "NO_PROXY": "localhost",
    "SSL_CERT_FILE": "/ca",
    "GOOGLE_API_KEY": "g",
    "GEMINI_API_KEY": "g",
    "VERTEXAI_PROJECT": "v",
    "OPENAI_API_KEY": "o",
    "ANTHROPIC_API_KEY": "a",
}
SECRET = {
    "GITHUB_TOKEN": "s",
    "GITHUB_ENV": "s",
    "ACTIONS_RUNTIME_TOKEN": "s",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "s",
    "RUNNER_TEMP": "s",
    "INPUT_GITHUB-TOKEN": "s",
    "PYTHONPATH": "s",
    "PYTHONHOME": "s",
    "LD_PRELOAD": "s",
    "UV_INDEX_PASSWORD": "s",
    "NPM_TOKEN": "s",
    "DATABASE_URL": "s",
    "docker_host": "s",
    "GOOGLE": "s",
}

JOB = [
    "GITHUB_TOKEN",
    "GITHUB_ENV",
    "ACTIONS_RUNTIME_TOKEN",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "ACTIONS_ID_TOKEN_REQUEST_URL",
    "RUNNER_TEMP",
    "INPUT_GITHUB-TOKEN",
    "INPUT_GITHUB_TOKEN",
    "AGENT_EVAL_SETTINGS_FD",
    "GH_TOKEN",
    "CI_JOB_TOKEN",
    "SYSTEM_ACCESSTOKEN",
]


def test_only_what_is_listed_passes() -> None:
    assert agent_environ({**CI, **SECRET}) == CI


def test_more_by_name() -> None:
    named = agent_environ({**CI, **SECRET}, ["DATABASE_URL", "PYTHONPATH", "MISSING"])
    assert set(named) - set(CI) == {"DATABASE_URL", "PYTHONPATH"}


@pytest.mark.parametrize("name", JOB)
def test_a_variable_of_the_job_passes_to_nobody_whatever_names_it(name: str) -> None:
    assert agent_environ({**CI, name: "s"}, [name]) == CI
    assert name not in install_environ(CI, {name: "s"})


def test_the_list_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "agents.md").read_text()
    said = {*re.findall(r"[A-Z][A-Z_]+", page[page.index("## What the agent sees") : page.index("## How it runs")])}
    assert said >= ALLOWED_NAMES | set(ALLOWED_PREFIXES)
