"""Which values are secrets: by their names, by what they look like; never what a log is full of."""

from __future__ import annotations

import pytest

from agent_eval_action.config.options import OPTIONS
from agent_eval_action.results.redaction import is_secret, secrets_around, secrets_in


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OPENAI_API_KEY", "sk-abc123"),
        ("DB_PASSWORD", "correcthorse"),
        ("PASSWORD", "12345678"),
        ("GITHUB_TOKEN", "ghs_0123456789"),
        ("MY_PAT", "abcdef"),
        ("SERVICE_ACCOUNT_CREDENTIALS", '{"type": "service_account"}'),
        ("DEPLOY_KEY", "/begins like a path\nand goes on"),
        ("SLACK", "xoxb-9931-secret-value"),
        ("DATABASE", "postgres://user:hunter2@db/prod"),
        ("CALLBACK", "https://example.com/hook?sig=af31"),
        ("API_KEY", "lowercaseletters"),
        ("AWS_SECRET_ACCESS_KEY", "/q7d+Xz9/Kk2"),
    ],
)
def test_a_secret(name: str, value: str) -> None:
    assert is_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("API_KEY", ""),
        ("API_KEY", "   "),
        ("PASSWORD", "12345"),
        ("USE_TOKEN_CACHE", "true"),
        ("TOKENS_PER_MINUTE", "1000"),
        ("LLM_TOKENS_PER_MINUTE", "4_000_000"),
        ("MAX_TOKENS", "100000"),
        ("SSH_AUTH_SOCK", "/run/ssh-XXXX/agent.1"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/github/workspace/gha-creds-1f.json"),
        ("TLS_KEY_FILE", "./certs/dev.pem"),
        ("MODE", "production"),
        ("DEBUG", "1"),
        ("TIMEOUT", "12345.678"),
        ("VERSION", "2026.11.20"),
        ("REGION", "us-central1"),
        ("REGION", "europe-west4"),
        ("MODEL", "gemini-2.5-flash"),
        ("MODEL", "openai/gpt-4o-mini"),
        ("HOME_DIR", "/home/runner/work/repo"),
        ("BASE_URL", "https://example.com/api/v1"),
        ("PHRASE", "in plain words"),
        ("GOOGLE_CLOUD_PROJECT", "acme-prod-48213"),
        ("PWD", "/github/workspace"),
        ("COMMENT_KEY", "nightly / evaluate (3.12)"),
        ("KEYBOARD", "x1-y2-z3-w4"[:7]),
    ],
)
def test_no_secret(name: str, value: str) -> None:
    assert not is_secret(name, value)


def test_of_a_whole_environment_only_names_that_say_so_count() -> None:
    environ = {
        "INPUT_GITHUB-TOKEN": "ghs_0123456789",
        "INPUT_FAIL-ON": "inconclusive",
        "INPUT_ENV": "PLAIN\nSERVICE=xoxb-9931-value\nMODE=production\n=broken",
        "INPUT_INSTALL-ENV": "UV_INDEX_X=https://user:secret@host/simple",
        "RUNNER_NAME": "GitHub-Actions-17-abcd",
        "ACTIONS_RUNTIME_TOKEN": "eyJ0eXAiOiJKV1Qi",
    }
    assert list(secrets_around(environ)) == [
        "ghs_0123456789",
        "xoxb-9931-value",
        "https://user:secret@host/simple",
        "eyJ0eXAiOiJKV1Qi",
    ]


def test_given_variables() -> None:
    assert list(secrets_in({"A": "true", "TOKEN": "abcdefgh"})) == ["abcdefgh"]


def test_of_our_own_options_these_are_secrets() -> None:
    value = "Nightly-Run_7f3a9c"
    hidden = {option.name for option in OPTIONS for name in option.variables if list(secrets_around({name: value}))}
    assert hidden == {"github_token", "max_tokens", "llm_tokens_per_minute"}, (
        "an option named like a secret that is none would be blanked in every report"
    )
