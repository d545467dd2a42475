"""A judge that goes down in the middle, and storms of 429: what is measured is kept, and nobody is wrong for it."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Judged, case

CITIES = ("Rome", "Oslo", "Lima", "Bern", "Kiev", "Cork")
CRITERION = "final_response_match_v2"
JUDGE = "<reference-"
ONE_VOTE = {CRITERION: {"threshold": 0.8, "judge_model_options": {"num_samples": 1}}}


@pytest.fixture
def six(judged: Judged) -> Judged:
    """Six cases of one turn: two calls of the agent each, and one of the judge."""
    judged.criteria(ONE_VOTE)
    judged.cases(*(case(city.lower(), city) for city in CITIES))
    return judged


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", [{"kind": "status", "code": 503}, {"kind": "hang"}], ids=["503", "hang"])
def test_an_outage_keeps_what_is_measured_and_resume_asks_for_the_rest(six: Judged, fault: dict[str, Any]) -> None:
    six.configure(llm={"retry_deadline": "2s", "timeout_s": "5s"})
    six.fault(user=JUDGE, after=3, **fault)
    done = six.run()
    assert done.code == 3, done.said
    statuses = list(done.statuses(CRITERION).values())
    assert sorted(statuses) == ["error"] * 3 + ["scored"] * 3
    assert done.results["decision"]["outcome"] == "inconclusive"
    assert "3 of 6" in done.comment
    scored = {name for name, status in done.statuses(CRITERION).items() if status == "scored"}
    lost = next(name for name in done.statuses(CRITERION) if name not in scored)
    assert done.score(lost, CRITERION)["score"] is None
    assert ("503" if "code" in fault else "did not answer in time") in done.score(lost, CRITERION)["reason"]
    assert "--resume" in done.said
    assert done.junit.count("<error ") == 3
    assert "3 of 6 cases could not be measured" in done.said

    six.forget()
    again = six.run("--resume", ".agent-eval/out", "--no-cache")
    assert again.code == 0, again.said
    assert set(again.statuses(CRITERION).values()) == {"scored"}
    assert six.model.asked == {"match": 3}, "no agent is run again, and no question that was answered is asked again"


def test_an_outage_of_one_sample_is_no_outage(judged: Judged) -> None:
    judged.fault(user=JUDGE, kind="blocked", times=2)
    done = judged.run()
    assert done.code == 0, done.said
    assert done.score("rome", CRITERION)["turns"][0]["votes"] == {"yes": 3, "no": 0, "left_out": 1}
    assert done.uses()[CRITERION]["failed"] == 2


STORMS = {
    "agents and judges, told when": [{"code": 429, "retry_after": 1, "times": 12}],
    "agents and judges, not told": [{"code": 429, "every": 2, "times": 12}],
    "judges, by RetryInfo": [{"code": 429, "retry_info": "1s", "times": 8, "user": JUDGE}],
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("faults", STORMS.values(), ids=STORMS)
def test_a_storm_of_429_loses_no_case_and_makes_no_answer_wrong(six: Judged, faults: list[dict[str, Any]]) -> None:
    for fault in faults:
        six.fault(kind="status", **fault)
    done = six.run()
    assert done.code == 0, done.said
    assert six.server.seen.faults["status"] == sum(fault["times"] for fault in faults)
    assert {name: done.score(name, CRITERION)["score"] for name in done.statuses(CRITERION)} == dict.fromkeys(
        [city.lower() for city in CITIES], 1
    )
    assert done.results["totals"]["errors"] == 0


@pytest.mark.exhaustive
def test_a_server_with_a_rate_serves_agents_and_judges_to_the_end(six: Judged) -> None:
    six.server.limit.per_second = 6
    done = six.run()
    assert done.code == 0, done.said
    assert six.server.seen.faults["rate"] > 0
    assert set(done.statuses(CRITERION).values()) == {"scored"}
    assert done.results["totals"]["errors"] == 0
