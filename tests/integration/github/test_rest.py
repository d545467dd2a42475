"""The calls to GitHub against a strict local one: pages, waits, refusals, other servers, proxies, certificates."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from agent_eval_action.ci.base import ChangeRequest
from agent_eval_action.ci.host import Account, ApiError, ApiErrorKind, Clock, GitHubClient
from support.github_server import client
from support.standing_clock import StandingClock

PULL = ChangeRequest("org/repo", 7)
COMMENTS = "/repos/org/repo/issues/7/comments"


OPEN: list[GitHubClient] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


def opened(environ, token, *more, **named) -> GitHubClient:
    OPEN.append(GitHubClient(environ, token, *more, **named))
    return OPEN[-1]


def connected(server, clock: Clock | None = None, token: str | None = None) -> GitHubClient:
    return opened(server.environ, token or server.token, clock=clock)


def test_every_page_is_read(server):
    ids = server.put(comments=[{"issue": 7, "body": f"{n}"} for n in range(205)])["comments"]
    assert [comment.id for comment in connected(server).comments(PULL)] == ids
    queries = [request["query"] for request in server.seen()["requests"]]
    assert queries[0] == "?per_page=100"
    assert len(queries) == 3


def test_whose_token_it_is_is_known_without_asking_for_a_user(server):
    viewer = connected(server).viewer()
    assert viewer.login == "github-actions"  # GraphQL's spelling here
    assert viewer.is_same(Account(login="github-actions[bot]", id=41898282))
    assert Account(login="my-app[bot]").is_same(Account(login="my-app"))
    assert not viewer.is_same(Account(login="github-actions[bot]", id=7))
    assert not viewer.is_same(None)


def test_a_comment_is_written_edited_and_removed(server):
    github = connected(server, StandingClock().clock())
    made = github.create_comment(PULL, "one")
    github.update_comment(PULL, made.id, "two")
    assert github.comment(PULL, made.id).body == "two"
    github.delete_comment(PULL, made.id)
    github.delete_comment(PULL, made.id)  # gone is what was wanted
    assert server.comments(7) == []


def test_two_writes_are_a_second_apart_and_reads_wait_for_nobody(server):
    time = StandingClock()
    github = connected(server, time.clock())
    github.create_comment(PULL, "one")
    github.comments(PULL)
    assert time.slept == []
    github.create_comment(PULL, "two")
    assert time.slept == [1.0]


@pytest.mark.parametrize("fault", [{"code": 502}, {"code": 503}, {"code": 500}, {"kind": "reset"}])
def test_a_read_is_tried_again(server, fault):
    time = StandingClock()
    server.configure(faults=[{"on": f"GET {COMMENTS}", "times": 3} | fault])
    assert connected(server, time.clock()).comments(PULL) == []
    assert len(time.slept) == 3
    assert time.slept == sorted(time.slept)


def test_trying_again_ends(server):
    time = StandingClock()
    server.configure(faults=[{"on": f"GET {COMMENTS}", "times": 4}])
    github = connected(server, time.clock())
    github.deadline = 10.0
    with pytest.raises(ApiError, match=r"502 Server Error \(4 tries\)") as error:
        github.comments(PULL)
    assert error.value.kind is ApiErrorKind.UNAVAILABLE
    assert sum(time.slept) <= 10


@pytest.mark.parametrize(
    ("fault", "waited"),
    [
        ({"kind": "secondary", "seconds": 7}, 7),
        ({"kind": "secondary", "seconds": 7, "code": 429}, 7),
        ({"kind": "secondary"}, 60),
        ({"kind": "secondary", "code": 429, "message": "slow down"}, 60),
    ],
)
def test_too_much_is_asked_again_when_github_says(server, fault, waited):
    time = StandingClock()
    server.configure(faults=[{"on": f"GET {COMMENTS}"} | fault])
    connected(server, time.clock()).comments(PULL)
    assert time.slept == [waited]


def test_a_limit_that_ends_soon_is_waited_for(server):
    time = StandingClock()
    server.configure(faults=[{"on": f"GET {COMMENTS}", "kind": "reset_at", "seconds": 30}])
    connected(server, time.clock()).comments(PULL)
    assert len(time.slept) == 1
    assert 25 < time.slept[0] < 35


def test_a_limit_that_ends_in_an_hour_is_not(server):
    time = StandingClock()
    server.configure(faults=[{"on": f"GET {COMMENTS}", "kind": "reset_at", "seconds": 3600}])
    with pytest.raises(ApiError, match="asks to wait 36") as error:
        connected(server, time.clock()).comments(PULL)
    assert error.value.kind is ApiErrorKind.LIMITED
    assert time.slept == []


@pytest.mark.parametrize("verb", ["POST", "PATCH"])
def test_what_may_have_been_written_is_not_written_again_unseen(server, verb):
    server.put(comments=[{"issue": 7, "body": "x"}])
    server.configure(faults=[{"on": f"{verb} .*comments.*", "done": True}])
    github = connected(server, StandingClock().clock())
    with pytest.raises(ApiError):
        github.create_comment(PULL, "new") if verb == "POST" else github.update_comment(PULL, 5001, "new")
    assert [comment["body"] for comment in server.comments(7)].count("new") == 1


def test_refusals_say_what_they_are(server):
    server.put(tokens={"reader": {"comments": "read"}}, locked=[8])
    reader, github = connected(server, None, "reader"), connected(server)
    with pytest.raises(ApiError, match="pull_requests=write") as denied:
        reader.create_comment(PULL, "x")
    assert denied.value.kind is ApiErrorKind.PERMISSION
    with pytest.raises(ApiError, match="locked") as locked:
        github.create_comment(ChangeRequest("org/repo", 8), "x")
    assert locked.value.kind is ApiErrorKind.LOCKED
    with pytest.raises(ApiError, match="Bad credentials") as unknown:
        connected(server, None, "nobody's").comments(PULL)
    assert unknown.value.kind is ApiErrorKind.TOKEN
    with pytest.raises(ApiError, match="404") as missing:
        github.comments(ChangeRequest("org/other", 1))
    assert missing.value.kind is ApiErrorKind.MISSING
    with pytest.raises(ApiError, match="maximum is 65536") as long:
        github.create_comment(PULL, "x" * 65_537)
    assert long.value.kind is ApiErrorKind.TOO_LONG


def test_an_answer_that_is_none_is_an_error_of_ours(server):
    server.configure(faults=[{"on": f"GET {COMMENTS}", "kind": "garbage"}])
    with pytest.raises(ApiError, match="no JSON") as error:
        connected(server).comments(PULL)
    assert error.value.kind is ApiErrorKind.ANSWER


def test_nobody_listening_is_reported(server):
    github = opened({"GITHUB_API_URL": "http://127.0.0.1:9"}, "token", clock=StandingClock().clock())
    with pytest.raises(ApiError, match="could not be asked to list the comments"):
        github.comments(PULL)
    assert server.said() == []


def test_no_message_contains_a_token(server):
    with pytest.raises(ApiError) as error:
        connected(server, None, "ghs_private").comments(PULL)
    assert "ghs_private" not in f"{error.value!r} {error.value}"
    assert "ghs_private" not in repr(connected(server, None, "ghs_private"))


def test_pull_requests_of_a_branch_are_found_without_those_of_deleted_forks(server):
    side = {"sha": "a" * 40, "ref": "topic", "repo": {"id": 2, "full_name": "ann/repo"}}
    base = {"sha": "b" * 40, "ref": "main", "repo": {"id": 1001, "full_name": "org/repo"}}
    pulls = [
        {"number": n, "state": "open", "head": side | ({"repo": None} if n == 3 else {}), "base": base}
        for n in range(1, 4)
    ]
    server.put(pulls=pulls)
    assert [pull.number for pull in connected(server).pulls_of_head("org/repo", "ann", "topic")] == [1, 2]


def test_a_repository_that_is_none_is_asked_for_nowhere(server):
    with pytest.raises(ApiError, match="owner/name"):
        connected(server).comments(ChangeRequest("org/repo/../other", 1))
    assert server.said() == []


def test_an_enterprise_server_has_its_own_addresses(server):
    environ = server.enterprise_environ
    assert opened(environ, server.token).graphql == f"{server.url}/api/graphql"
    server.put(comments=[{"issue": 7, "body": "x"}] * 150)
    github = opened(environ, server.token)
    assert len(github.comments(PULL)) == 150
    assert github.viewer().id
    assert all(path.split(" ")[1].startswith("/api/") for path in server.said())


def test_a_page_of_another_server_is_not_asked_with_our_token(server):
    server.put(comments=[{"issue": 7, "body": "x"}] * 150)
    elsewhere = {**server.environ, "GITHUB_API_URL": server.url.replace("127.0.0.1", "localhost")}
    with pytest.raises(ApiError, match="another server"):
        opened(elsewhere, server.token).comments(PULL)


def test_a_proxy_of_the_environment_is_used(server, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", server.url)
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    opened({"GITHUB_API_URL": "http://github.corp.example"}, server.token).comments(PULL)
    assert [request["host"] for request in server.seen()["requests"]] == ["github.corp.example"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificate")
    key, cert = folder / "key.pem", folder / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(made, check=True, capture_output=True)
    (folder / "both.pem").write_text(key.read_text() + cert.read_text())
    return folder


def test_a_server_with_a_certificate_of_its_own_needs_its_bundle(certificate):
    with client.running(certificate=certificate / "both.pem") as server:
        time = StandingClock()
        with pytest.raises(ApiError, match="CERTIFICATE_VERIFY_FAILED"):
            connected(server, time.clock()).comments(PULL)
        assert opened(server.environ, server.token, certificate / "cert.pem").comments(PULL) == []


def test_a_bundle_that_is_none_is_reported(server, tmp_path):
    (tmp_path / "ca.pem").write_text("hello")
    for bundle in (tmp_path / "ca.pem", tmp_path / "missing.pem"):
        with pytest.raises(ApiError, match="CA bundle"):
            opened(server.environ, server.token, bundle).comments(PULL)
