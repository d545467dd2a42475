"""Every criterion with a judge in one test_config.json, run by the command: scores, details, cost, reports."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from .conftest import Judged, case


def rubric(name: str, text: str) -> dict[str, Any]:
    return {"rubric_id": name, "rubric_content": {"text_property": text}}


EVERYTHING: dict[str, Any] = {
    "final_response_match_v2": {"threshold": 0.8},
    "rubric_based_final_response_quality_v1": {
        "threshold": 0.8,
        "rubrics": [rubric("degrees", "The answer names degrees."), rubric("brief", "The answer is brief.")],
        "weights": {"degrees": 3},
    },
    "rubric_based_tool_use_quality_v1": {"threshold": 1.0, "rubrics": [rubric("looked_up", "look_up is called.")]},
    "rubric_based_multi_turn_trajectory_quality_v1": {"threshold": 1, "rubrics": [rubric("polite", "It is polite.")]},
    "hallucinations_v1": {"threshold": 0.9},
    "per_turn_user_simulator_quality_v1": {"threshold": 0.8},
}
TALK = {"starting_prompt": "How hot is Rome?", "conversation_plan": "Ask how hot Rome is, then Oslo."}

JUDGES = set(EVERYTHING)


def set_up(judged: Judged) -> None:
    """Two cases; the judges find the answer not brief and its first sentence unsupported."""
    judged.criteria(EVERYTHING)
    judged.cases(case("rome", "Rome", "Oslo"), {"eval_id": "talk", "conversation_scenario": TALK})
    judged.model.verdict = lambda _kind, texts: "no" if "brief" in texts.get("property", "") else "yes"
    judged.model.label = lambda sentence: "not_applicable" if "Enjoy" in sentence else "unsupported"


def test_every_criterion_scores_and_its_details_reach_every_report(judged: Judged) -> None:
    set_up(judged)
    done = judged.run()
    assert done.code == 1, done.said
    assert judged.server.seen.unexpected == []
    scores = {name: (done.score("rome", name)["score"], done.score("talk", name)["score"]) for name in EVERYTHING}
    assert scores == {
        "final_response_match_v2": (1, None),
        "rubric_based_final_response_quality_v1": (0.75, 0.75),
        "rubric_based_tool_use_quality_v1": (1, 1),
        "rubric_based_multi_turn_trajectory_quality_v1": (1, 1),
        "hallucinations_v1": (0.5, 0.5),
        "per_turn_user_simulator_quality_v1": (None, 1),
    }
    assert_details(
        done.score("rome", "rubric_based_final_response_quality_v1"), done.score("rome", "hallucinations_v1")
    )
    assert done.score("rome", "final_response_match_v2")["turns"][1]["votes"] == {"yes": 3, "no": 0, "left_out": 0}
    assert_shown(done.comment)
    failures = [failure.text or "" for failure in ET.fromstring(done.junit).iter("failure")]  # noqa: S314 - our own file
    assert_shown("\n".join(failures))
    assert "judges: about " in done.said


def assert_details(rubrics: dict[str, Any], sentences: dict[str, Any]) -> None:
    degrees, brief = rubrics["turns"][0]["rubrics"]
    assert (degrees["score"], degrees["weight"], brief["score"]) == (1, 3, 0)
    assert brief["votes"] == {"yes": 0, "no": 3, "left_out": 0}
    assert brief["rationale"] == "answer: no, as one can see."
    labels = [(one["sentence"], one["label"]) for one in sentences["turns"][1]["sentences"]]
    assert labels == [("Oslo has 31 degrees.", "unsupported"), ("Enjoy it.", "not_applicable")]


def assert_shown(report: str) -> None:
    """What a judge rejected, and why; the markup between differs."""
    for words in (
        ("brief", "0 of 3 votes yes", "answer: no, as one can see"),
        ("unsupported", "Oslo has 31 degrees.", "It is in no result."),
    ):
        assert any(all(word in line for word in words) for line in report.splitlines()), report


@pytest.mark.exhaustive
def test_use_and_cost_are_reported_for_each_criterion(judged: Judged) -> None:
    set_up(judged)
    done = judged.run("--no-cache")
    uses = done.uses()
    assert set(uses) == {*JUDGES, "user_simulator", "agent"}
    asked = judged.model.asked
    kinds = {  # three of five samples agree, and are one request
        "final_response_match_v2": asked["match"] // 3,
        "rubric_based_final_response_quality_v1": asked["answer"] // 3,
        "rubric_based_tool_use_quality_v1": asked["tools"] // 3,
        "rubric_based_multi_turn_trajectory_quality_v1": asked["conversation"] // 3,
        "hallucinations_v1": asked["sentences"] + asked["labels"],
        "per_turn_user_simulator_quality_v1": asked["user_turn"] // 3,
        "user_simulator": asked["user"],
        "agent": asked["agent"],
    }
    assert {name: use["calls"] for name, use in uses.items()} == kinds
    assert (asked["match"], kinds["final_response_match_v2"]) == (6, 2), "two turns"
    assert all(use["usd"] > 0 and use["unpriced"] == 0 for use in uses.values())
    assert done.results["totals"]["usd"] == pytest.approx(sum(use["usd"] for use in uses.values()), abs=1e-6)
    for name, calls in kinds.items():
        assert f"| {name} | gemini-2.5-flash | {calls} | 0 |" in done.comment
