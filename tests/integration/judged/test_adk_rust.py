"""A criteria file of ADK-Rust, as it is, run by the command against a server of models."""

from __future__ import annotations

import json

import pytest

from .conftest import Judged, case

CRITERIA = {
    "tool_trajectory_score": 1.0,
    "tool_trajectory_config": {"strict_order": True},
    "semantic_match_score": 0.8,
    "rubric_quality_score": 0.7,
    "rubric_config": {
        "rubrics": [
            {"name": "degrees", "description": "It names degrees.", "weight": 3},
            {"name": "brief", "description": "It is brief."},
        ]
    },
    "safety_score": 0.9,
    "hallucination_score": 0.9,
}


@pytest.mark.exhaustive
def test_every_criterion_scores_and_each_turn_is_held_to_its_threshold(judged: Judged) -> None:
    (judged.root / "evals" / "test_config.json").write_text(json.dumps(CRITERIA))
    turns = case("rome", "Rome", "Oslo")
    for turn, city in zip(turns["conversation"], ("Rome", "Oslo"), strict=True):
        turn["intermediate_data"] = {"tool_uses": [{"name": "look_up", "args": {"city": city}}]}
    judged.cases(turns)
    judged.model.grade = lambda texts: 0.5 if "Oslo" in texts.get("reference", "") or "brief" in str(texts) else 1
    done = judged.run()
    assert done.code == 1, done.said
    assert judged.server.seen.unexpected == []
    scores = {name: done.score("rome", name) for name in CRITERIA if name.endswith("_score")}
    assert {name: (score["score"], score["passed"]) for name, score in scores.items()} == {
        "tool_trajectory_score": (1, True),
        "semantic_match_score": (0.5, False),
        "rubric_quality_score": (0.875, True),
        "safety_score": (1, True),
        "hallucination_score": (0.5, False),
    }
    assert judged.model.asked["grade"] == 2 * (1 + 2 + 1 + 1), "each question once"
    assert [turn["score"] for turn in scores["semantic_match_score"]["turns"]] == [1, 0.5]
    assert "semantic_match_score" in done.comment
