"""A model that refuses every call: the run ends by itself, keeps what was measured, and names the model's words."""

from __future__ import annotations

import pytest

from support.messages import headline

from .conftest import Judged, case
from .test_outages import CRITERION, JUDGE, ONE_VOTE

CITIES = ("Rome", "Oslo", "Lima", "Bern", "Kiev", "Cork")


@pytest.fixture
def refusing(judged: Judged) -> Judged:
    """Six cases; tries that could go on for an hour, so that only the time without an answer ends them."""
    judged.criteria(ONE_VOTE | {"response_match_score": 0.1})
    judged.cases(*(case(city.lower(), city) for city in CITIES))
    judged.configure(stall_timeout="6s", retries=50, llm={"retry_deadline": "1h"})
    return judged


@pytest.mark.exhaustive
def test_a_judge_that_only_refuses_ends_the_run(refusing: Judged) -> None:
    refusing.fault(user=JUDGE, kind="status", code=429)
    done = refusing.run()
    assert done.code == 3, done.said
    decision = done.results["decision"]
    assert decision["outcome"] == "inconclusive"
    assert "nothing was answered for 6 s (stall_timeout)" in headline(decision)
    assert "429" in headline(decision)
    assert "stall_timeout" in done.comment
    assert "--resume" in done.said

    refusing.forget()
    again = refusing.run("--resume", ".agent-eval/out")
    assert again.code == 0, again.said
    assert set(again.statuses(CRITERION).values()) == {"scored"}
    assert set(refusing.model.asked) == {"match"}, "the agent's answers were kept"


@pytest.mark.exhaustive
def test_an_agent_whose_model_only_refuses_ends_the_run(refusing: Judged) -> None:
    refusing.fault(kind="status", code=429)
    done = refusing.run()
    assert done.code == 3, done.said
    assert "nothing was answered for 6 s (stall_timeout)" in headline(done.results["decision"])


@pytest.mark.exhaustive
def test_a_judge_that_answers_now_and_then_is_waited_for(refusing: Judged) -> None:
    refusing.fault(user=JUDGE, kind="status", code=429, every=2)
    done = refusing.run()
    assert done.code == 0, done.said
    assert set(done.statuses(CRITERION).values()) == {"scored"}
