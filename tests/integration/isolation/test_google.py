"""A workload identity's file is exchanged by google-auth here, and google-auth in the agent takes the token."""

from __future__ import annotations

import json
import os
import subprocess
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from agent_eval_action.sandbox.google_tokens import serve_google_tokens
from support.serving import serving

ASKED = """
import json, google.auth
from google.auth.transport.requests import Request
credentials, project = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
credentials.refresh(Request())
import datetime
left = (credentials.expiry - datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)).total_seconds()
print(json.dumps([type(credentials).__module__, credentials.token, project, left]))
"""


class Exchange:
    """Google's token service: a subject token in, an access token out."""

    def __init__(self) -> None:
        self.port = 0
        self.subjects: list[str] = []
        self.fails = False
        exchange = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                exchange.subjects += form["subject_token"]
                said = {"access_token": "short-lived", "expires_in": 3600, "token_type": "Bearer"}
                said |= {"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}
                if exchange.fails:
                    said = {"error": "invalid_grant", "error_description": f"no {form['subject_token'][0]}"}
                self.send_response(400 if exchange.fails else 200)
                self.end_headers()
                self.wfile.write(json.dumps(said).encode())

            def log_message(self, *args: object) -> None:
                """Quiet."""

        self.handler = Handler


@pytest.fixture
def exchange():
    made = Exchange()
    with serving(made.handler) as made.port:
        yield made


@pytest.fixture
def credentials(exchange: Exchange, tmp_path: Path) -> Path:
    """What google-github-actions/auth leaves: no secret of its own, but what one is had with."""
    (tmp_path / "oidc").write_text("subject-of-the-job")
    file = tmp_path / "gha-creds-0123456789abcdef.json"
    file.write_text(
        json.dumps(
            {
                "type": "external_account",
                "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/x",
                "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
                "token_url": f"http://127.0.0.1:{exchange.port}/v1/token",
                "credential_source": {"file": str(tmp_path / "oidc")},
            }
        )
    )
    return file


def asked(python: Path, environ: dict[str, str], home: Path) -> subprocess.CompletedProcess[str]:
    given = {"PATH": "/usr/bin:/bin", "HOME": str(home), "GCE_METADATA_TIMEOUT": "2", **environ}
    return subprocess.run(
        [str(python), "-I", "-c", ASKED], env=given, capture_output=True, text=True, check=False, timeout=60
    )


def served(credentials: Path, uid: int):
    environ = {"GOOGLE_APPLICATION_CREDENTIALS": str(credentials), "GOOGLE_CLOUD_PROJECT": "the-project"}
    tokens = serve_google_tokens(environ, frozenset({uid}), pytest.fail)
    assert tokens is not None
    return tokens


def test_the_agents_google_auth_gets_the_token_and_nothing_else(exchange, credentials, adk213_python, tmp_path):
    tokens = served(credentials, os.getuid())
    try:
        done = asked(adk213_python, dict(tokens.environ), tmp_path)
    finally:
        tokens.close()
    assert done.returncode == 0, done.stderr
    module, token, project, left = json.loads(done.stdout)
    assert module == "google.auth.compute_engine.credentials"
    assert (token, project) == ("short-lived", "the-project")
    assert 3000 < left <= 3600
    assert exchange.subjects == ["subject-of-the-job"]
    assert "GOOGLE_APPLICATION_CREDENTIALS" not in tokens.environ


def test_another_uid_of_the_machine_gets_no_token(credentials, exchange, adk213_python, tmp_path):
    tokens = served(credentials, os.getuid() + 1)
    try:
        done = asked(adk213_python, dict(tokens.environ), tmp_path)
    finally:
        tokens.close()
    assert done.returncode != 0
    assert "short-lived" not in done.stdout + done.stderr
    assert exchange.subjects == []


@pytest.mark.exhaustive
def test_what_the_exchange_answers_is_not_repeated(credentials, exchange, adk213_python, tmp_path):
    exchange.fails = True
    tokens = served(credentials, os.getuid())
    try:
        done = asked(adk213_python, dict(tokens.environ), tmp_path)
    finally:
        tokens.close()
    assert done.returncode != 0
    assert exchange.subjects
    assert "subject-of-the-job" not in done.stdout + done.stderr


def test_a_file_that_cannot_be_read_is_reported(tmp_path):
    said: list[str] = []
    environ = {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "gone.json")}
    assert serve_google_tokens(environ, frozenset(), said.append) is None
    assert "gone.json" in said[0]


def test_without_a_file_nothing_is_served(tmp_path):
    assert serve_google_tokens({"HOME": str(tmp_path)}, frozenset(), pytest.fail) is None
