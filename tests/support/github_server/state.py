"""What the server holds: tokens, pull requests, comments, files and runs; and what it saw."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

TOKEN = "ghs_local"  # noqa: S105 - of the server here
BOT = {"login": "github-actions[bot]", "id": 41898282, "type": "Bot"}
REPO = "org/repo"


@dataclass
class Token:
    """Who a token is, and what it may do with comments: "write", "read"; graphql drops an app's ``[bot]``."""

    login: str = BOT["login"]
    id: int = 41898282
    type: str = "Bot"
    comments: str = "write"

    @property
    def user(self) -> dict[str, Any]:
        return {"login": self.login, "id": self.id, "type": self.type}


@dataclass
class Seen:
    """What arrived. ``requests``: verb, path with query, when, the token's user. ``unexpected`` fails the test."""

    requests: list[dict[str, Any]] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    deleted: list[int] = field(default_factory=list)


@dataclass
class Repo:
    """One repository."""

    name: str
    id: int
    comments: dict[int, dict[str, Any]] = field(default_factory=dict)
    pulls: dict[int, dict[str, Any]] = field(default_factory=dict)
    commits: dict[str, list[int]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)  # "ref:path"
    runs: dict[int, dict[str, Any]] = field(default_factory=dict)
    locked: list[int] = field(default_factory=list)
    permissions: dict[str, str] = field(default_factory=dict)  # of who does more than read


@dataclass
class State:
    """All of it."""

    tokens: dict[str, Token] = field(default_factory=lambda: {TOKEN: Token()})
    repos: dict[str, Repo] = field(default_factory=lambda: {REPO: Repo(REPO, 1001)})
    next_comment: int = 5_000
    seen: Seen = field(default_factory=Seen)

    def repo(self, name: str) -> Repo:
        return self.repos.setdefault(name, Repo(name, 1001 + len(self.repos)))

    def comment(self, repo: Repo, issue: int, body: str, user: dict[str, Any] | None) -> dict[str, Any]:
        """Add a comment as GitHub shows it."""
        self.next_comment += 1
        number = self.next_comment
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        repo.comments[number] = {
            "id": number,
            "node_id": f"IC_{number}",
            "url": f"https://api.example/repos/{repo.name}/issues/comments/{number}",
            "html_url": f"https://github.example/{repo.name}/pull/{issue}#issuecomment-{number}",
            "issue_url": f"https://api.example/repos/{repo.name}/issues/{issue}",
            "body": body,
            "user": user,
            "created_at": now,
            "updated_at": now,
            "author_association": "NONE",
        }
        return repo.comments[number]

    def put(self, given: dict[str, Any]) -> dict[str, Any]:
        """Add what a test has: tokens, comments, pulls, commits, files, runs, locked, permissions; of ``repo``."""
        repo = self.repo(given.get("repo", REPO))
        for token, fields in given.get("tokens", {}).items():
            self.tokens[token] = Token(**fields)
        made = [
            self.comment(repo, one["issue"], one["body"], one.get("user", BOT))["id"]
            for one in given.get("comments", [])
        ]
        repo.pulls.update({pull["number"]: pull for pull in given.get("pulls", [])})
        repo.runs.update({run["id"]: run for run in given.get("runs", [])})
        repo.commits.update(given.get("commits", {}))
        repo.files.update(given.get("files", {}))
        repo.permissions.update(given.get("permissions", {}))
        repo.locked += given.get("locked", [])
        return {"comments": made}
