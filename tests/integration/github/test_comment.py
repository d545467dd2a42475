"""The comment as GitHub has it in the end: its modes, other jobs' comments, what goes wrong, and what is said then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from agent_eval_action.ci.base import ChangeRequest
from agent_eval_action.ci.comment import BUDGETS, Marker, Published, add_marker, publish, read_marker
from agent_eval_action.ci.host import GitHubClient
from support.standing_clock import StandingClock

PULL = ChangeRequest("org/repo", 7)
COMMENTS = "/repos/org/repo/issues/7/comments"
MARKER = Marker(key="eval / run", sha="a" * 40, run=7, run_id=70, outcome="fail", state="fail 1")
BOT = {"login": "github-actions[bot]", "id": 41898282, "type": "Bot"}
STRANGER = {"login": "mallory", "id": 666, "type": "User"}


class Job:
    """What one job has, to publish as often as a test wants."""

    def __init__(self, server, token: str = "") -> None:
        self.time = StandingClock()
        self.github = GitHubClient(server.environ, token or server.token, clock=self.time.clock())

    def __call__(self, text: str | Callable[[int], str] = "text", mode="update", **marker) -> Published:
        render = text if callable(text) else lambda _: text
        return publish(self.github, PULL, replace(MARKER, **marker), render, mode)


@pytest.fixture
def job(server) -> Iterator[Job]:
    made = Job(server)
    yield made
    made.github.close()


def body(server) -> str:
    (only,) = server.comments(7)
    text: str = only["body"]
    return text


def texts(server) -> dict[str, str]:
    """The text of the only comment of each key, without its marker."""
    found: dict[str, str] = {}
    for comment in server.comments(7):
        if (marker := read_marker(comment["body"])) is not None:
            assert marker.key not in found
            found[marker.key] = comment["body"].split("\n", 2)[2].rstrip("\n")
    return found


def written(server) -> list[str]:
    return [said for said in server.said() if said.split()[0] in {"PATCH", "DELETE"} or said == f"POST {COMMENTS}"]


def test_the_first_comment_is_made_and_later_ones_edit_it(server, job):
    first = job("first")
    assert first == Published(url=server.comments(7)[0]["html_url"], written=True)
    job("second", run=8, run_id=80)
    assert texts(server) == {"eval / run": "second"}
    assert [said.split()[0] for said in written(server)] == ["POST", "PATCH"]


def test_off_asks_nothing(server, job):
    assert job(mode="off") == Published()
    assert server.said() == []


def test_the_own_comment_is_found_on_whatever_page_it_is(server, job):
    server.put(comments=[{"issue": 7, "body": f"{n}"} for n in range(150)])
    job("first")
    server.put(comments=[{"issue": 7, "body": f"{n}"} for n in range(150)])
    job("second", run=8, run_id=80)
    ours = [comment for comment in server.comments(7) if read_marker(comment["body"])]
    assert len(ours) == 1
    assert "second" in ours[0]["body"]


def test_a_marker_in_somebody_elses_comment_is_not_ours(server, job):
    forged = add_marker(replace(MARKER, run=99, run_id=990), "forged")
    quoted = f"> look\n\n{forged}"
    server.put(comments=[{"issue": 7, "body": forged, "user": user} for user in (STRANGER, None)])
    server.put(comments=[{"issue": 7, "body": quoted, "user": BOT}, {"issue": 8, "body": forged, "user": BOT}])
    assert job("ours").ok
    assert [comment["body"] for comment in server.comments(7)[:3]] == [forged, forged, quoted]
    assert "ours" in server.comments(7)[3]["body"]


def test_without_graphql_it_is_still_known_whose_comment_it_is(server, job):
    job("first")
    server.configure(faults=[{"on": "POST /graphql", "kind": "permission"}])
    job("second", run=8, run_id=80)
    assert texts(server) == {"eval / run": "second"}


def test_a_persons_token_without_graphql_finds_its_own_comment_by_writing(server):
    server.put(tokens={"ann's": {"login": "ann", "id": 7, "type": "User"}})
    server.configure(faults=[{"on": "POST /graphql", "kind": "permission", "times": 2}])
    for run in (7, 8):
        job = Job(server, "ann's")
        assert job(f"run {run}", run=run, run_id=run * 10).ok
        job.github.close()
    assert texts(server) == {"eval / run": "run 8"}


def test_a_comment_of_another_key_stays(server, job):
    server.put(comments=[{"issue": 7, "body": add_marker(replace(MARKER, key="other"), "theirs"), "user": BOT}])
    job("ours")
    job("ours again", run=8, run_id=80)
    assert texts(server) == {"eval / run": "ours again", "other": "theirs"}


def test_several_comments_of_one_key_become_one_the_oldest(server, job):
    server.put(comments=[{"issue": 7, "body": add_marker(MARKER, "old"), "user": BOT} for _ in range(3)])
    job("ours", run=8, run_id=80)
    assert texts(server) == {"eval / run": "ours"}
    assert server.comments(7)[0]["id"] == 5001
    assert server.seen()["deleted"] == [5002, 5003]


@pytest.mark.parametrize("older", [{"run": 6, "run_id": 60}, {"attempt": 1}])
def test_a_newer_run_is_not_overwritten(server, job, older):
    job("newer", attempt=2)
    said = job("older", **{"attempt": 1, **older})
    assert said.ok
    assert said.note == "the comment was left as the newer run 7 (attempt 2) wrote it"
    assert not said.written
    assert texts(server) == {"eval / run": "newer"}


class TestRecreate:
    def test_a_new_run_makes_a_new_comment_and_removes_the_old(self, server, job):
        job("first", mode="recreate")
        server.put(comments=[{"issue": 7, "body": "a person"}])
        job("second", mode="recreate", run=8, run_id=80)
        bodies = [comment["body"] for comment in server.comments(7)]
        assert bodies[0] == "a person"
        assert len(bodies) == 2
        assert "second" in bodies[1]

    def test_a_second_step_of_the_same_run_edits_it(self, server, job):
        job("first", mode="recreate")
        job("second", mode="recreate")
        assert [said.split()[0] for said in written(server)] == ["POST", "PATCH"]
        assert texts(server) == {"eval / run": "second"}


class TestChanges:
    @pytest.mark.parametrize("outcome", ["pass", "collecting"])
    def test_nothing_to_object_to_begins_no_comment(self, server, job, outcome):
        assert not job(mode="changes", outcome=outcome).written
        assert server.comments(7) == []

    def test_what_says_the_same_is_left(self, server, job):
        job("first", mode="changes")
        said = job("second", mode="changes", run=8, run_id=80)
        assert not said.written
        assert said.url
        assert texts(server) == {"eval / run": "first"}

    def test_what_says_something_else_is_edited(self, server, job):
        job("first", mode="changes")
        assert job("second", mode="changes", state="fail 2", run=8, run_id=80).written
        assert job("third", mode="changes", outcome="pass", state="pass 0", run=9, run_id=90).written
        assert texts(server) == {"eval / run": "third"}


class TestTrouble:
    def test_a_missing_permission_of_the_token_is_named(self, server):
        server.put(tokens={"reader": {"comments": "read"}})
        job = Job(server, "reader")
        said = job()
        job.github.close()
        assert not said.ok
        assert "pull-requests: write" in said.note
        assert "fork" in said.note
        assert written(server) == [f"POST {COMMENTS}"]

    def test_a_locked_conversation_is_reported(self, server, job):
        server.put(locked=[7])
        assert "locked" in job().note

    def test_a_pull_request_that_is_not_there_is_reported(self, job):
        said = publish(job.github, ChangeRequest("org/none", 1), MARKER, lambda _: "x")
        assert not said.ok
        assert "no such pull request" in said.note

    def test_too_long_is_drawn_smaller_until_it_is_taken(self, server, job):
        server.configure(faults=[{"on": f"POST {COMMENTS}", "kind": "too_long", "times": 2}])
        rooms = []

        def render(room: int) -> str:
            rooms.append(room)
            return "x" * room

        assert job(render).written
        assert BUDGETS[2] - 2_000 < len(body(server).encode()) <= BUDGETS[2]
        assert rooms == sorted(rooms, reverse=True)

    def test_too_long_at_any_length_is_reported(self, server, job):
        server.configure(faults=[{"on": f"POST {COMMENTS}", "kind": "too_long", "times": len(BUDGETS)}])
        said = job()
        assert not said.ok
        assert "too long" in said.note

    @pytest.mark.parametrize("fault", [{"code": 502}, {"kind": "reset"}])
    @pytest.mark.parametrize("done", [False, True])
    def test_a_lost_answer_to_a_new_comment_makes_no_second(self, server, job, fault, done):
        server.configure(faults=[{"on": f"POST {COMMENTS}", "done": done} | fault])
        assert job("x").ok
        assert texts(server) == {"eval / run": "x"}
        assert written(server).count(f"POST {COMMENTS}") == (1 if done else 2)

    @pytest.mark.parametrize("done", [False, True])
    def test_a_lost_answer_to_an_edit_is_looked_after(self, server, job, done):
        job("first")
        server.configure(faults=[{"on": "PATCH .*", "done": done}])
        assert job("second", run=8, run_id=80).ok
        assert texts(server) == {"eval / run": "second"}

    def test_a_limit_is_waited_for_and_the_comment_looked_for_anew(self, server, job):
        job("first")
        looks = server.said().count(f"GET {COMMENTS}")
        server.configure(faults=[{"on": "PATCH .*", "kind": "secondary", "seconds": 30}])
        assert job("second", run=8, run_id=80).ok
        assert 30 in job.time.slept
        assert server.said().count(f"GET {COMMENTS}") - looks == 3  # before each try, and after
        assert texts(server) == {"eval / run": "second"}

    def test_a_limit_that_takes_too_long_is_reported(self, server, job):
        server.configure(faults=[{"on": f"POST {COMMENTS}", "kind": "secondary", "seconds": 900}])
        said = job()
        assert not said.ok
        assert "403" in said.note
        assert sum(job.time.slept) < 120

    def test_a_comment_that_goes_away_meanwhile_is_made_again(self, server, job):
        job("first")
        server.configure(faults=[{"on": "PATCH .*", "code": 404}])
        assert job("second", run=8, run_id=80).ok
        assert texts(server) == {"eval / run": "second"}

    def test_a_report_that_cannot_be_drawn_is_a_warning(self, server, job):
        def render(_: int) -> str:
            raise RuntimeError("a defect")

        said = job(render)
        assert not said.ok
        assert "RuntimeError: a defect" in said.note
        assert written(server) == []

    def test_a_list_that_is_behind_makes_no_second_comment(self, server, job):
        server.configure(faults=[{"on": f"GET {COMMENTS}", "kind": "behind", "after": 1}])
        assert job("x").ok
        assert texts(server) == {"eval / run": "x"}
        assert written(server) == [f"POST {COMMENTS}"]

    def test_a_comment_that_somebody_removes_again_and_again_is_given_up(self, server, job):
        remover = Job(server)

        def remove(seconds: float) -> None:
            job.time.slept.append(seconds)
            for comment in remover.github.comments(PULL):
                remover.github.delete_comment(PULL, comment.id)

        job.github.clock = replace(job.github.clock, sleep=remove)
        said = job()
        remover.github.close()
        assert not said.ok
        assert "is not there" in said.note
        assert server.said().count(f"POST {COMMENTS}") == 5

    def test_a_slow_server_only_takes_longer(self, server, job):
        server.configure(faults=[{"on": f"GET {COMMENTS}", "kind": "slow", "seconds": 0.3}])
        assert job("x").ok


def test_a_report_is_given_what_the_marker_leaves_of_the_room(server, job):
    job(lambda room: "x" * room)
    assert BUDGETS[0] - 2 <= len(body(server).encode()) <= BUDGETS[0]
