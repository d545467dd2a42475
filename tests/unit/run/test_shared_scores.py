"""Equal scores become one object, and none is changed by it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.results.run_result import CriterionScore, ScoreStatus, TurnScore
from agent_eval_action.run import collector
from agent_eval_action.run.collector import SharedScores

NUMBERS = st.sampled_from([0.0, -0.0, 1.0, 0.5, None])
DETAILS = st.sampled_from([{}, {"n": 1}, {"n": 1.0}, {"n": True}, {"n": [1, 2]}])
TURNS = st.builds(TurnScore, turn=st.integers(0, 1), score=NUMBERS, reason=st.sampled_from(["", "a"]), details=DETAILS)
SCORES = st.builds(
    CriterionScore,
    criterion=st.sampled_from(["a", "b"]),
    status=st.sampled_from(ScoreStatus),
    score=NUMBERS,
    passed=st.sampled_from([True, False, None]),
    reason=st.sampled_from(["", "a"]),
    turns=st.lists(TURNS, max_size=2).map(tuple),
    details=DETAILS,
    digest=st.sampled_from(["", "d"]),
)


@given(st.lists(SCORES, max_size=20))
def test_a_shared_score_reads_the_same(scores: list[CriterionScore]) -> None:
    shared = SharedScores()
    assert [shared.share(score).model_dump_json() for score in scores] == [score.model_dump_json() for score in scores]


def scored(reason: str = "the expected call made") -> CriterionScore:
    turn = TurnScore(turn=0, score=1.0, reason=reason)
    return CriterionScore(criterion="a", status=ScoreStatus.SCORED, score=1.0, turns=(turn,), digest="d")


def test_equal_scores_are_one_object() -> None:
    shared = SharedScores()
    assert shared.share(scored()) is shared.share(scored())


def test_scores_that_all_differ_are_not_all_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "_MAX_SHARED", 2)
    shared = SharedScores()
    first, *_, last = [shared.share(scored(str(number))) for number in range(4)]
    assert shared.share(scored("0")) is first
    assert shared.share(scored("3")) is not last
    assert shared.share(scored("3")) == last
