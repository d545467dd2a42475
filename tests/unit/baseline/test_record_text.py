"""A record as bytes: small, the same every time, and nothing but a record is read back."""

from __future__ import annotations

import datetime as dt

import pytest

from agent_eval_action.baseline.records import commit_in, file_name, is_file_name, parse_record, record_bytes, record_of
from agent_eval_action.git.repository import Commit
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.history import Accepted
from support.results import QUALITY, attempt, calls, case, run, simple

SHA = "c0ffee" + "0" * 34
NOW = dt.datetime(2026, 11, 20, 12, 30, tzinfo=dt.UTC)


def made(*cases):
    accepted = [Accepted(id="x", case="a", reason="…")]
    bad = [(CaseKey("bot", "set", "b"), QUALITY)]
    return record_of(run(*cases), Commit(SHA, ("1" * 40,), 17), regressed=bad, accepted=accepted)


def test_it_is_read_back_whole():
    record = made(simple("a", 1.0, 0.5), simple("b", 0.0), simple("ü\n\u202e", 1.0))
    assert parse_record(record_bytes(record)) == record
    assert record_bytes(record).count(b"\n") == 2 + len(record.cases)


def test_half_a_character_an_agent_said_does_not_cost_the_record():
    said = case("a", attempt({QUALITY: 1.0}, calls(("say", {"text": "\ud83d"}))))
    kept = parse_record(record_bytes(record_of(run(said), Commit(SHA))))
    assert kept.cases[0].trajectory.turns[0][0].args == {"text": "?"}


def test_a_suite_of_fifty_cases_is_small():
    assert len(record_bytes(made(*(simple(f"case {n}", 1.0) for n in range(50))))) < 16_000


def test_its_name_says_when_and_of_what():
    name = file_name(made(simple("a", 1.0)), "0a1b2c3d")
    assert name == "20261120T120000Z-c0ffee000000-0a1b2c3d.json"
    assert is_file_name(name, NOW)
    assert commit_in(name) == "c0ffee000000"


@pytest.mark.parametrize(
    "name",
    [
        "../20261120T120000Z-c0ffee000000-0a1b2c3d.json",
        "20261120T120000Z-c0ffee000000-0a1b2c3d.json.exe",
        "20261120T120000Z-c0ffee000000-0a1b2c3d.json\n",
        "20261122T120000Z-c0ffee000000-0a1b2c3d.json",
        "99991231T235959Z-c0ffee000000-0a1b2c3d.json",
        "README.md",
        "",
    ],
)
def test_other_names_and_those_from_the_future_are_none(name):
    assert not is_file_name(name, NOW)


def test_a_day_without_a_date_still_has_a_name():
    record = made(simple("a", 1.0)).model_copy(update={"created_at": "yesterday", "commit": None})
    assert is_file_name(file_name(record, "0a1b2c3d"), dt.datetime.now(dt.UTC))
