"""recorded_events: what of an event counts, what differs from run to run, and what the reason says."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from agent_eval_action.config.criteria import REPLAY_CRITERIA
from agent_eval_action.criteria import build
from agent_eval_action.criteria.base import Sample
from agent_eval_action.results.evalset import Content, EvalCase, Invocation, Part, Replay, ReplayCase
from agent_eval_action.results.run_result import CriterionScore, ScoreStatus

TURN = Invocation(user_content=Content(role="user", parts=(Part(text="go"),)))


def event(*parts: dict[str, Any], author: str = "bot", **more: Any) -> dict[str, Any]:
    return {"author": author, "content": {"role": "model", "parts": list(parts)}, **more}


def call(name: str, number: str, **args: Any) -> dict[str, Any]:
    return {"functionCall": {"args": args, "id": number, "name": name}}


def result(name: str, number: str, **response: Any) -> dict[str, Any]:
    return {"functionResponse": {"id": number, "name": name, "response": response}}


RECORDED = [
    event(call("look", "fc-1", at={"x": 1}), id="e-1", nodeInfo={"path": "bot@1"}, longRunningToolIds=[]),
    event(result("look", "fc-1", found=[1, None]), actions={"stateDelta": {"seen": None}, "artifactDelta": {}}),
    event({"text": "Done."}),
]


def score(want: list[Any], got: list[Any] | None, kind: Any = "test") -> CriterionScore:
    (criterion,) = build(REPLAY_CRITERIA)
    replay = Replay(kind=kind, expected=(tuple(want),))
    case = ReplayCase(eval_id="x", conversation=(TURN,), replay=replay)
    made = TURN.model_copy(update={"raw_events": None if got is None else tuple(got)})
    return asyncio.run(criterion.score(Sample(case, (made,))))


def changed(number: int, change: Any) -> list[dict[str, Any]]:
    events = copy.deepcopy(RECORDED)
    change(events[number])
    return events


def test_ids_times_spelling_and_what_is_empty_do_not_count():
    got = copy.deepcopy(RECORDED)
    got[0] = event(call("look", "adk-7f-9", at={"x": 1}), id="other", node_info={"path": "bot@1"}, timestamp=3.5)
    got[1] = event(result("look", "adk-7f-9", found=[1, None]), actions={"state_delta": {"seen": None}})
    got[2] |= {"invocationId": "i", "usageMetadata": {"totalTokenCount": 5}, "branch": None}
    assert score(RECORDED, got).score == 1


def test_the_id_of_a_call_is_followed_wherever_it_stands():
    def with_id(number: str) -> list[dict[str, Any]]:
        asked = call("adk_request_confirmation", f"{number}-b", originalFunctionCall={"id": number})
        return [event(call("look", number)), event(asked, branch=f"task:{number}", nodeInfo={"path": f"bot@{number}"})]

    assert score(with_id("fc-1"), with_id("adk-8")).score == 1
    other = with_id("adk-8")
    other[1]["branch"] = "task:somebody"
    assert score(with_id("fc-1"), other).score == 0


@pytest.mark.parametrize(
    ("number", "change", "reason"),
    [
        (0, lambda e: e["content"]["parts"][0]["functionCall"]["args"].update(at=2), 'args.at is 2, recorded {"x": 1}'),
        (0, lambda e: e["nodeInfo"].update(path="bot@2"), 'node_info.path is "bot@2", recorded "bot@1"'),
        (
            1,
            lambda e: e["content"]["parts"][0]["functionResponse"]["response"].update(found=[]),
            "response.found is []",
        ),
        (1, lambda e: e["actions"]["stateDelta"].update(more=1), "actions.state_delta.more is new: 1"),
        (1, lambda e: e["actions"]["stateDelta"].clear(), 'actions is missing: {"state_delta": {"seen": null}}'),
        (2, lambda e: e.update(author="other"), 'an event of other: author is "other", recorded "bot"'),
        (2, lambda e: e["content"]["parts"][0].update(text="Done!"), 'parts[0].text is "Done!", recorded "Done."'),
        (2, lambda e: e.update(errorCode="STOP"), 'error_code is new: "STOP"'),
    ],
)
def test_a_change_is_named(number, change, reason):
    found = score(RECORDED, changed(number, change))
    assert found.score == 0
    assert reason in found.reason


def test_events_that_are_gone_new_or_repeated_are_named():
    assert "an event of bot is missing" in score(RECORDED, RECORDED[:2]).reason
    assert "an event of bot is new" in score(RECORDED[:2], RECORDED).reason
    assert "repeated" in score(RECORDED, [*RECORDED, RECORDED[2]]).reason


def test_the_order_of_events_counts_where_google_adk_compares_it():
    turned = [RECORDED[2], *RECORDED[:2]]
    assert score(RECORDED, turned).score == 1
    assert score(RECORDED, turned, kind="conformance").score == 0


def test_what_google_adk_says_of_a_conformance_test_alone():
    usage = [event({"text": "Hi."}, usage_metadata={"total_token_count": 5})]
    other = [event({"text": "Hi."}, usage_metadata={"total_token_count": 6}, nodeInfo={"path": "a"})]
    assert score(usage, other, kind="conformance").score == 0
    assert score(usage, other).score == 0  # a place in the workflow is new
    del other[0]["nodeInfo"]
    assert score(usage, other).score == 1  # what a model cost then is not


def test_an_agent_that_no_longer_fits_the_recording_loses_whatever_its_events():
    found = score(RECORDED, [*RECORDED, {"replay_problem": "a model is asked once more"}])
    assert (found.score, found.reason) == (0, "turn 1: a model is asked once more")


def test_what_is_no_replay_is_not_measured():
    assert score(RECORDED, None).status is ScoreStatus.ERROR
    (criterion,) = build(REPLAY_CRITERIA)
    plain = asyncio.run(criterion.score(Sample(EvalCase(eval_id="x", conversation=(TURN,)), (TURN,))))
    assert plain.status is ScoreStatus.NOT_APPLICABLE


def test_events_of_any_depth_and_texts_of_any_kind_end_in_a_score():
    deep: Any = {}
    for _ in range(5000):
        deep = {"x": deep}
    hostile = [event({"text": "\ud800 | <script> \u202e \0 ::set-output"}), event(call("look", "(.*", at=deep))]
    assert score(hostile[:1], hostile[:1]).score == 1
    assert score(hostile, RECORDED).status in (ScoreStatus.ERROR, ScoreStatus.SCORED)
