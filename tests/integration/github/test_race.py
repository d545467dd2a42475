"""Jobs that end at once, as processes of their own: no section is lost, and one comment is left."""

from __future__ import annotations

import pytest

from agent_eval_action.github.sections import taken_apart

from .conftest import jobs

ROUNDS = 50
AT_ONCE = 10
LEGS = 4


def held(server, number):
    """The sections of the only comment on a pull request."""
    comments = server.comments(number)
    assert len(comments) == 1, f"{len(comments)} comments on {number}"
    text = taken_apart(comments[0]["body"])
    assert text is not None
    return text.sections


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["update", "recreate"])
def test_the_legs_of_a_matrix_write_one_comment_and_lose_nothing(server, mode):
    server.configure(latency=(0.0, 0.06))
    rounds = ROUNDS if mode == "update" else AT_ONCE
    with jobs(server, LEGS) as legs:
        for first in range(0, rounds, AT_ONCE):
            numbers = list(range(first + 1, first + 1 + AT_ONCE))
            for index, leg in enumerate(legs):
                stamp = {"key": f"leg {index}", "run": 3, "run_id": 30}
                leg.publish(server, numbers, stamp, mode=mode)
            for leg in legs:
                assert all(answer["ok"] and not answer["note"] for answer in leg.answers())
            for number in numbers:
                found = held(server, number)
                assert {key: kept.text for key, kept in found.items()} == {
                    f"leg {index}": f"what leg {index} says" for index in range(LEGS)
                }


def test_the_older_of_two_runs_ends_later_and_leaves_the_newers_words(server):
    numbers = list(range(1, 11))
    with jobs(server, 2) as (older, newer):
        newer.publish(server, numbers, {"key": "k", "run": 8, "run_id": 80}, text="newer")
        older.publish(server, numbers, {"key": "k", "run": 7, "run_id": 70}, text="older", delay=0.5)
        assert all(answer["ok"] for answer in newer.answers())
        assert all(answer["ok"] and "newer run 8" in answer["note"] for answer in older.answers())
        for number in numbers:
            assert held(server, number)["k"].text == "newer"


def test_two_runs_of_one_key_at_once_end_with_the_newer(server):
    server.configure(latency=(0.0, 0.05))
    numbers = list(range(1, 11))
    with jobs(server, 2) as (older, newer):
        older.publish(server, numbers, {"key": "k", "run": 7, "run_id": 70}, text="older")
        newer.publish(server, numbers, {"key": "k", "run": 8, "run_id": 80}, text="newer")
        assert all(answer["ok"] for answer in [*older.answers(), *newer.answers()])
        for number in numbers:
            assert held(server, number)["k"].text == "newer"
