"""Routes, and what every request must have. Control is by HTTP too, under ``/_control``."""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode

from support.github_server.faults import Fault, refuse, too_long
from support.github_server.state import Repo, State, Token
from support.model_server import wire

MOST_CHARACTERS = 65_536
_JSON = "application/vnd.github+json"
_RAW = "application/vnd.github.raw+json"
_QUERY = re.compile(r"\s*query\s*\{\s*viewer\s*\{\s*login\s+databaseId\s*\}\s*\}\s*")
_PULLS_QUERY = frozenset({"state", "head", "per_page", "page"})


class Unexpected(Exception):  # noqa: N818 - raised to record a request that no part of this project should make
    """A request GitHub would not get from a careful client."""


@dataclass
class GitHubServer:
    """Answers one request at a time; ``latency`` is a range of seconds, waited before and after it is done."""

    state: State = field(default_factory=State)
    faults: list[Fault] = field(default_factory=list)
    latency: tuple[float, float] = (0.0, 0.0)
    url: str = ""

    async def handle(self, request: wire.HttpRequest) -> wire.HttpResponse:
        """One request: control, or GitHub with its latency and faults."""
        if request.path.startswith("/_control/"):
            return self._control(request.path.removeprefix("/_control/"), json.loads(request.body or b"{}"))
        said = f"{request.verb} {request.path}"
        query = f"?{request.query}" if request.query else ""
        self.state.seen.requests.append(
            {"said": said, "query": query, "at": time.time(), "host": request.headers.get("host", "")}
        )
        await self._pause()
        fault = next((fault for fault in self.faults if fault.strikes(said)), None)
        if fault is not None:
            self.state.seen.faults.append(f"{fault.kind} on {said}")
            return await self._faulty(fault, request)
        answer = self._answer(request)
        await self._pause()
        return answer

    async def _pause(self) -> None:
        if self.latency[1]:
            await asyncio.sleep(random.uniform(*self.latency))  # noqa: S311 - a test's latency

    async def _faulty(self, fault: Fault, request: wire.HttpRequest) -> wire.HttpResponse:
        answer = self._answer(request) if fault.done else None
        if fault.kind == "slow":
            await asyncio.sleep(fault.seconds or 0.0)
            return answer or self._answer(request)
        if fault.kind == "reset":
            raise wire.ResetConnection
        if fault.kind == "behind":
            whole = self._answer(request)
            return wire.json_response(json.loads(whole.body)[:-1])
        return fault.answer()

    def _answer(self, request: wire.HttpRequest) -> wire.HttpResponse:
        try:
            return self._route(request)
        except Unexpected as why:
            self.state.seen.unexpected.append(f"{request.verb} {request.path}?{request.query}: {why}")
            return refuse(400, f"unexpected: {why}")

    def _route(self, request: wire.HttpRequest) -> wire.HttpResponse:
        headers = request.headers
        if not headers.get("user-agent") or headers.get("x-github-api-version") != "2022-11-28":
            raise Unexpected("no User-Agent, or no X-GitHub-Api-Version")
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        if scheme != "Bearer":
            raise Unexpected("no Bearer token")
        token = self.state.tokens.get(secret)
        if token is None:
            return refuse(401, "Bad credentials")
        path = request.path.removeprefix("/api/v3")  # where an Enterprise Server has its REST
        if path in {"/graphql", "/api/graphql"}:
            return self._graphql(request, token)
        if headers.get("accept") not in {_JSON, _RAW} or (headers.get("accept") == _RAW) != ("/contents/" in path):
            raise Unexpected(f"Accept is {headers.get('accept')}")
        for pattern, verb, answer in _ROUTES:
            found = re.fullmatch(pattern, path)
            if found and verb == request.verb:
                repo = self._repo(found)
                return refuse(404, "Not Found") if repo is None else answer(self, request, token, repo, found)
        raise Unexpected("no such route")

    def _repo(self, found: re.Match[str]) -> Repo | None:
        groups = found.groupdict()
        if groups.get("id"):
            return next((repo for repo in self.state.repos.values() if repo.id == int(groups["id"])), None)
        return self.state.repos.get(groups["repo"])

    def _graphql(self, request: wire.HttpRequest, token: Token) -> wire.HttpResponse:
        asked = _body(request, {"query"})
        if request.verb != "POST" or not _QUERY.fullmatch(asked["query"]):
            raise Unexpected(f"the query is {asked['query']}")
        login = token.login.removesuffix("[bot]")
        return wire.json_response({"data": {"viewer": {"login": login, "databaseId": token.id}}})

    def _control(self, action: str, given: dict[str, Any]) -> wire.HttpResponse:
        if action == "settings":
            if "faults" in given:
                self.faults += [Fault(**fault) for fault in given["faults"]]
            if "latency" in given:
                self.latency = (given["latency"][0], given["latency"][1])
            return wire.json_response({})
        if action == "put":
            return wire.json_response(self.state.put(given))
        if action == "seen":
            unused = [f"{fault.kind} on {fault.on}" for fault in self.faults if fault.made < fault.times]
            return wire.json_response({**vars(self.state.seen), "unused": unused})
        if action == "comments":
            repo = self.state.repo(given["repo"])
            return wire.json_response({"comments": _of_issue(repo, given["issue"])})
        return refuse(404, action)

    def list_comments(self, request: wire.HttpRequest, _: Token, repo: Repo, found: re.Match[str]) -> wire.HttpResponse:
        return self._page(request, repo, _of_issue(repo, int(found["issue"])), frozenset({"per_page", "page"}))

    def create_comment(
        self, request: wire.HttpRequest, token: Token, repo: Repo, found: re.Match[str]
    ) -> wire.HttpResponse:
        body, issue = _body(request, {"body"})["body"], int(found["issue"])
        refusal = _may_not(token) or _body_refused(body)
        if refusal is None and issue in repo.locked:
            refusal = refuse(403, "Unable to create comment because issue is locked.")
        if refusal is not None:
            return refusal
        return wire.json_response(self.state.comment(repo, issue, body, token.user), 201)

    def get_comment(self, _: wire.HttpRequest, __: Token, repo: Repo, found: re.Match[str]) -> wire.HttpResponse:
        comment = repo.comments.get(int(found["comment"]))
        return refuse(404, "Not Found") if comment is None else wire.json_response(comment)

    def update_comment(
        self, request: wire.HttpRequest, token: Token, repo: Repo, found: re.Match[str]
    ) -> wire.HttpResponse:
        comment = repo.comments.get(int(found["comment"]))
        body = _body(request, {"body"})["body"]
        refusal = _may_not(token) or (refuse(404, "Not Found") if comment is None else _body_refused(body))
        if refusal is not None or comment is None:
            return refusal or refuse(404, "Not Found")
        if comment["user"] != token.user:
            raise Unexpected(f"edits a comment of {comment['user']}")
        comment["body"] = body
        return wire.json_response(comment)

    def delete_comment(self, _: wire.HttpRequest, token: Token, repo: Repo, found: re.Match[str]) -> wire.HttpResponse:
        number = int(found["comment"])
        comment = repo.comments.get(number)
        refusal = _may_not(token) or (refuse(404, "Not Found") if comment is None else None)
        if refusal is not None or comment is None:
            return refusal or refuse(404, "Not Found")
        if comment["user"] != token.user:
            raise Unexpected(f"deletes a comment of {comment['user']}")
        del repo.comments[number]
        self.state.seen.deleted.append(number)
        return wire.HttpResponse(204)

    def list_pulls(self, request: wire.HttpRequest, _: Token, repo: Repo, __: re.Match[str]) -> wire.HttpResponse:
        query = _query(request, _PULLS_QUERY)
        owner, _, branch = query.get("head", "").partition(":")
        if not owner or not branch or query.get("state") not in {"open", "closed", "all"}:
            raise Unexpected("pull requests are listed by state and head")
        found = [
            pull
            for pull in repo.pulls.values()
            if pull["state"] == query["state"] or query["state"] == "all"
            if pull["head"]["ref"] == branch
            if ((pull["head"].get("repo") or {}).get("full_name", "/")).split("/")[0] == owner
        ]
        return self._page(request, repo, found, _PULLS_QUERY)

    def get_pull(self, _: wire.HttpRequest, __: Token, repo: Repo, found: re.Match[str]) -> wire.HttpResponse:
        pull = repo.pulls.get(int(found["number"]))
        return refuse(404, "Not Found") if pull is None else wire.json_response(pull)

    def commit_pulls(self, request: wire.HttpRequest, _: Token, repo: Repo, found: re.Match[str]) -> wire.HttpResponse:
        numbers = repo.commits.get(found["sha"], [])
        pulls = [repo.pulls[number] for number in numbers]
        return self._page(request, repo, pulls, frozenset({"per_page", "page"}))

    def contents(self, request: wire.HttpRequest, _: Token, repo: Repo, found: re.Match[str]) -> wire.HttpResponse:
        ref = _query(request, frozenset({"ref"})).get("ref", "")
        text = repo.files.get(f"{ref}:{unquote(found['path'])}")
        if text is None:
            return refuse(404, "Not Found")
        return wire.HttpResponse(200, text.encode(), {"Content-Type": _RAW})

    def get_run(self, _: wire.HttpRequest, __: Token, repo: Repo, found: re.Match[str]) -> wire.HttpResponse:
        run = repo.runs.get(int(found["run"]))
        return refuse(404, "Not Found") if run is None else wire.json_response(run)

    def list_runs(self, request: wire.HttpRequest, _: Token, repo: Repo, found: re.Match[str]) -> wire.HttpResponse:
        query = _query(request, frozenset({"event", "head_sha", "per_page", "page"}))
        runs = [
            run
            for _, run in sorted(repo.runs.items(), reverse=True)
            if run["path"].endswith(f"/{found['workflow']}")
            and all(run[name] == query[name] for name in ("event", "head_sha") if name in query)
        ]
        shown = runs[: int(query.get("per_page", "30"))]
        return wire.json_response({"total_count": len(runs), "workflow_runs": shown})

    def rerun(self, _: wire.HttpRequest, __: Token, repo: Repo, found: re.Match[str]) -> wire.HttpResponse:
        run = repo.runs.get(int(found["run"]))
        if run is None:
            return refuse(404, "Not Found")
        if run["status"] != "completed":
            return refuse(403, "This workflow run is already running.")
        run.update(status="queued", run_attempt=run.get("run_attempt", 1) + 1)
        return wire.json_response({}, 201)

    def permission(self, _: wire.HttpRequest, __: Token, repo: Repo, found: re.Match[str]) -> wire.HttpResponse:
        return wire.json_response({"permission": repo.permissions.get(found["login"], "read")})

    def _page(
        self, request: wire.HttpRequest, repo: Repo, items: list[dict[str, Any]], known: frozenset[str]
    ) -> wire.HttpResponse:
        """A page, and where the next one is: by the repository's number, as GitHub says it."""
        query = _query(request, known)
        size, page = int(query.get("per_page", "30")), int(query.get("page", "1"))
        if not 1 <= size <= 100 or page < 1:
            raise Unexpected(f"per_page is {size}")
        links = []
        if page * size < len(items):
            prefix = "/api/v3" if request.path.startswith("/api/v3") else ""
            path = re.sub(r"^(/api/v3)?/(repos/[^/]+/[^/]+|repositories/\d+)", "", request.path)
            following = urlencode({**query, "page": page + 1})
            base = f"{self.url}{prefix}/repositories/{repo.id}{path}"
            links = [f'<{base}?{following}>; rel="next"', f'<{base}?{following}>; rel="last"']
        headers = {"Link": ", ".join(links)} if links else {}
        return wire.json_response(items[(page - 1) * size : page * size], headers=headers)


def _of_issue(repo: Repo, issue: int) -> list[dict[str, Any]]:
    return [one for _, one in sorted(repo.comments.items()) if one["issue_url"].endswith(f"/{issue}")]


def _query(request: wire.HttpRequest, known: frozenset[str]) -> dict[str, str]:
    query = {name: values[0] for name, values in parse_qs(request.query).items()}
    if unknown := query.keys() - known:
        raise Unexpected(f"parameters {sorted(unknown)}")
    return query


def _body(request: wire.HttpRequest, fields: set[str]) -> dict[str, Any]:
    if request.headers.get("content-type") != "application/json":
        raise Unexpected("the body is not said to be JSON")
    try:
        body = json.loads(request.body)
    except ValueError as error:
        raise Unexpected("the body is no JSON") from error
    if (
        not isinstance(body, dict)
        or body.keys() != fields
        or not all(isinstance(value, str) for value in body.values())
    ):
        raise Unexpected(f"the body is not {sorted(fields)}")
    return body


def _may_not(token: Token) -> wire.HttpResponse | None:
    return None if token.comments == "write" else Fault("", "permission").answer()


def _body_refused(body: str) -> wire.HttpResponse | None:
    if not body.strip():
        return refuse(422, "Validation Failed", errors=[{"message": "Body can't be blank"}])
    return too_long() if len(body) > MOST_CHARACTERS else None


Answer = Callable[[GitHubServer, wire.HttpRequest, Token, Repo, "re.Match[str]"], wire.HttpResponse]
_AT = r"/(?:repos/(?P<repo>[^/]+/[^/]+)|repositories/(?P<id>\d+))"
_ROUTES: list[tuple[str, str, Answer]] = [
    (rf"{_AT}/issues/(?P<issue>\d+)/comments", "GET", GitHubServer.list_comments),
    (rf"{_AT}/issues/(?P<issue>\d+)/comments", "POST", GitHubServer.create_comment),
    (rf"{_AT}/issues/comments/(?P<comment>\d+)", "GET", GitHubServer.get_comment),
    (rf"{_AT}/issues/comments/(?P<comment>\d+)", "PATCH", GitHubServer.update_comment),
    (rf"{_AT}/issues/comments/(?P<comment>\d+)", "DELETE", GitHubServer.delete_comment),
    (rf"{_AT}/pulls", "GET", GitHubServer.list_pulls),
    (rf"{_AT}/pulls/(?P<number>\d+)", "GET", GitHubServer.get_pull),
    (rf"{_AT}/commits/(?P<sha>[^/]+)/pulls", "GET", GitHubServer.commit_pulls),
    (rf"{_AT}/contents/(?P<path>.+)", "GET", GitHubServer.contents),
    (rf"{_AT}/actions/runs/(?P<run>\d+)", "GET", GitHubServer.get_run),
    (rf"{_AT}/actions/runs/(?P<run>\d+)/rerun", "POST", GitHubServer.rerun),
    (rf"{_AT}/actions/workflows/(?P<workflow>[^/]+)/runs", "GET", GitHubServer.list_runs),
    (rf"{_AT}/collaborators/(?P<login>[^/]+)/permission", "GET", GitHubServer.permission),
]
