"""Jobs that end at once, as processes of their own: each has its comment, and of two runs the newer one stays."""

from __future__ import annotations

import pytest

from agent_eval_action.ci.comment import read_marker

from .conftest import jobs

AT_ONCE = 10
LEGS = 4


def comments(server, number) -> dict[str, str]:
    """The text of the only comment of each key on a pull request."""
    found: dict[str, str] = {}
    for comment in server.comments(number):
        marker = read_marker(comment["body"])
        assert marker is not None
        assert marker.key not in found, f"two comments of {marker.key!r} on {number}"
        found[marker.key] = comment["body"].split("\n", 2)[2].strip()
    return found


@pytest.mark.exhaustive(after=1)
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["update", "recreate"])
def test_each_leg_of_a_matrix_has_its_own_comment(server, mode):
    server.configure(latency=(0.0, 0.06))
    numbers = list(range(1, 1 + AT_ONCE))
    with jobs(server, LEGS) as legs:
        for run in (3, 4):
            for index, leg in enumerate(legs):
                leg.publish(server, numbers, {"key": f"leg {index}", "run": run, "run_id": run * 10}, mode=mode)
            for leg in legs:
                assert all(answer["ok"] and not answer["note"] for answer in leg.answers())
            for number in numbers:
                assert comments(server, number) == {f"leg {n}": f"what leg {n} says" for n in range(LEGS)}


def test_the_older_of_two_runs_ends_later_and_leaves_the_newers_words(server):
    numbers = list(range(1, 11))
    with jobs(server, 2) as (older, newer):
        newer.publish(server, numbers, {"key": "k", "run": 8, "run_id": 80}, text="newer")
        older.publish(server, numbers, {"key": "k", "run": 7, "run_id": 70}, text="older", delay=0.5)
        assert all(answer["ok"] for answer in newer.answers())
        assert all(answer["ok"] and "newer run 8" in answer["note"] for answer in older.answers())
        for number in numbers:
            assert comments(server, number) == {"k": "newer"}


def test_two_runs_of_one_key_at_once_end_with_the_newer(server):
    server.configure(latency=(0.0, 0.05))
    numbers = list(range(1, 11))
    with jobs(server, 2) as (older, newer):
        older.publish(server, numbers, {"key": "k", "run": 7, "run_id": 70}, text="older")
        newer.publish(server, numbers, {"key": "k", "run": 8, "run_id": 80}, text="newer")
        assert all(answer["ok"] for answer in [*older.answers(), *newer.answers()])
        for number in numbers:
            assert comments(server, number) == {"k": "newer"}
