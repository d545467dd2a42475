"""What an agent sees of our environment."""

from __future__ import annotations

import re
from pathlib import Path

from agent_eval_action.interpreter.isolation import ALLOWED, PREFIXES, agent_environ

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


def test_only_what_is_listed_passes() -> None:
    assert agent_environ({**CI, **SECRET}) == CI


def test_more_by_name() -> None:
    named = agent_environ({**CI, **SECRET}, ["DATABASE_URL", "PYTHONPATH", "GITHUB_TOKEN", "MISSING"])
    assert set(named) - set(CI) == {"DATABASE_URL", "PYTHONPATH", "GITHUB_TOKEN"}


def test_the_list_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "agents.md").read_text()
    said = {*re.findall(r"[A-Z][A-Z_]+", page[page.index("## What the agent sees") : page.index("## How it runs")])}
    assert said >= ALLOWED | set(PREFIXES)
