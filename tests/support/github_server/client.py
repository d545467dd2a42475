"""Start the server, give it what a test has, and read what it saw."""

from __future__ import annotations

import contextlib
import json
import ssl
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.github_server.server import GitHubServer
from support.github_server.state import REPO, TOKEN
from support.serving import listening


@dataclass(frozen=True)
class RunningGitHub:
    """Where the server is. ``token`` may write comments."""

    url: str
    token: str = TOKEN
    repo: str = REPO

    @property
    def environ(self) -> dict[str, str]:
        """What a job on this GitHub has."""
        return {
            "GITHUB_API_URL": self.url,
            "GITHUB_GRAPHQL_URL": f"{self.url}/graphql",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    @property
    def enterprise_environ(self) -> dict[str, str]:
        """The same as an Enterprise Server has it, and without naming GraphQL, as older ones do."""
        return {**self.environ, "GITHUB_API_URL": f"{self.url}/api/v3", "GITHUB_GRAPHQL_URL": ""}

    def configure(self, *, faults: list[Mapping[str, Any]] | None = None, latency: tuple[float, float] | None = None):
        """Add ``faults`` (fields of Fault), set ``latency`` (seconds, waited before and after each request is done)."""
        given: dict[str, Any] = {} if faults is None else {"faults": faults}
        self._control("settings", given if latency is None else {**given, "latency": latency})

    def put(self, **given: Any) -> dict[str, Any]:
        """Add tokens, comments, pulls, commits, files, runs; see ``State.put``. Returns the comments' ids."""
        return self._control("put", given)

    def seen(self) -> dict[str, Any]:
        """``Seen``, and ``unused`` faults."""
        return self._control("seen", {})

    def said(self) -> list[str]:
        """ "VERB /path" of every request."""
        return [request["said"] for request in self.seen()["requests"]]

    def comments(self, issue: int, repo: str = REPO) -> list[dict[str, Any]]:
        """The comments of a pull request, oldest first."""
        found: list[dict[str, Any]] = self._control("comments", {"repo": repo, "issue": issue})["comments"]
        return found

    def check(self) -> None:
        """Fail on what GitHub would not expect, and on faults that nobody met."""
        seen = self.seen()
        assert not seen["unexpected"], "unexpected requests:\n" + "\n".join(seen["unexpected"])
        assert not seen["unused"], f"faults nobody met: {seen['unused']}"

    def _control(self, action: str, body: Mapping[str, Any]) -> dict[str, Any]:
        # An opener of its own: a proxy of the environment has no business with 127.0.0.1.
        anybody = ssl._create_unverified_context()  # noqa: S323 - steering our own server
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=anybody)
        )
        url = f"{self.url}/_control/{action}"
        request = urllib.request.Request(url, data=json.dumps(body).encode())  # noqa: S310 - always our own URL
        with opener.open(request, timeout=60) as response:
            seen: dict[str, Any] = json.load(response)
        return seen


@contextlib.contextmanager
def running(*, certificate: Path | None = None) -> Iterator[RunningGitHub]:
    """Run the server while the block runs, and check at its end that all was expected and every fault met.

    ``certificate`` is the PEM of a key and its certificate: https.
    """
    tls = None
    if certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
    server = GitHubServer()
    with listening(server.handle, tls) as server.url:
        github = RunningGitHub(server.url)
        yield github
        github.check()
