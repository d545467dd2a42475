"""agents-cli's results as a run of ours: what it leaves out of its means is not measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.api import compare
from agent_eval_action.errors import ResultsError
from agent_eval_action.results.run_result import RunResult
from agent_eval_action.run.foreign_results import (
    align_graded,
    holds_grade_results,
    import_grade_results,
    read_grade_results,
)
from support.results import case, eval_set


def graded(index: int, scores: dict[str, Any]) -> dict[str, Any]:
    metrics = {
        name: {"metric_name": name, "score": None, "error_message": given}
        if isinstance(given, str)
        else {"metric_name": name, "score": given, "explanation": "so it is"}
        for name, given in scores.items()
    }
    candidates = [{"response_index": 0, "metric_results": metrics}]
    return {"eval_case_index": index, "response_candidate_results": candidates}


def trace(name: str | None, asked: str = "hi", answer: str = "hello") -> dict[str, Any]:
    events = [
        {"author": "user", "content": {"role": "user", "parts": [{"text": asked}]}, "state_delta": None},
        {"author": "root", "content": {"role": "model", "parts": [{"text": answer}]}, "state_delta": None},
    ]
    agents = {"root": {"agent_id": "root", "instruction": None}}
    return {"eval_case_id": name, "prompt": None, "agent_data": {"agents": agents, "turns": [{"events": events}]}}


def write(path: Path, cases: dict[str | None, dict[str, Any]], metrics: tuple[str, ...] = ("quality",)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    value = {
        "eval_case_results": [graded(index, scores) for index, scores in enumerate(cases.values())],
        "summary_metrics": [{"metric_name": name, "num_cases_total": len(cases)} for name in metrics],
        "evaluation_dataset": [{"eval_cases": [trace(name) for name in cases]}],
        "metadata": {"creation_timestamp": "2026-11-22T21:34:00.277667Z"},
    }
    path.write_text(json.dumps(value))
    return path


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write(tmp_path / "good.json", {"a": {"quality": 4.0}, "b": {"quality": 3}})


def outcome(result: RunResult) -> str:
    assert result.decision is not None
    return result.decision.outcome.value


def test_scores_keep_their_own_scale_and_their_explanation(good: Path):
    result = import_grade_results([read_grade_results(good)])
    (found,) = result.sets
    scores = [made.attempts[0].scores[0] for made in found.cases]
    assert [(made.case, score.score, score.reason) for made, score in zip(found.cases, scores, strict=True)] == [
        ("a", 4.0, "so it is"),
        ("b", 3.0, "so it is"),
    ]
    assert found.cases[0].attempts[0].turns[0].response == "hello"
    assert result.started_at == "2026-11-22T21:34:00+00:00"


@pytest.mark.parametrize(
    "scores", [{"quality": "429 RESOURCE_EXHAUSTED"}, {}, {"other": 1.0}, {"quality": float("nan")}]
)
def test_a_metric_without_a_score_is_not_measured(good: Path, tmp_path: Path, scores: dict[str, Any]):
    head = write(tmp_path / "head.json", {"a": {"quality": 4.0}, "b": scores})
    assert outcome(compare(good, good)) == "pass"
    assert outcome(compare(good, head)) == "inconclusive"


def test_a_case_that_was_dropped_is_not_measured(good: Path, tmp_path: Path):
    """agents-cli ends with 0 and a mean over the rest."""
    result = compare(good, write(tmp_path / "head.json", {"a": {"quality": 4.0}}))
    assert outcome(result) == "inconclusive"
    (found,) = result.sets
    assert [(made.case, made.attempts[0].error is not None) for made in found.cases] == [("a", False), ("b", True)]


def test_a_new_case_is_no_reason_to_stop(good: Path, tmp_path: Path):
    head = write(tmp_path / "head.json", {"a": {"quality": 4.0}, "b": {"quality": 3}, "c": {"quality": 1}})
    assert outcome(compare(good, head)) == "pass"


def test_files_of_a_pattern_are_repeats_and_of_a_folder_the_newest_is_read(tmp_path: Path):
    folder = tmp_path / "artifacts" / "grade_results"
    for number, score in enumerate((1.0, 5.0)):
        write(folder / f"results_2026112{number}_000000.json", {"a": {"quality": score}})
    pattern, newest = str(folder / "results_*.json"), tmp_path
    result = compare(pattern, newest)
    assert [made.scores[0].score for made in result.sets[0].cases[0].attempts] == [5.0]
    pooled = compare(newest, pattern)
    assert len(pooled.sets[0].cases[0].attempts) == 2


def test_cases_are_known_by_their_names_beside_results_of_ours(good: Path):
    ours = eval_set(case("b", digest="of ours"), case("z"), name="tests/eval/datasets/basic")
    aligned = align_graded(import_grade_results([read_grade_results(good)]), [ours])
    places = {(each.eval_set, made.case): made.digest for each in aligned.sets for made in each.cases}
    assert places[ours.eval_set, "b"] == ours.cases[0].digest
    assert ("agents-cli", "a") in places


def test_cases_without_an_id_and_with_the_same_one_are_kept_apart(tmp_path: Path):
    path = write(tmp_path / "one.json", {None: {"quality": 1.0}, "a": {"quality": 2.0}})
    value = json.loads(path.read_text())
    value["eval_case_results"].append(graded(2, {"quality": 3.0}))
    value["evaluation_dataset"][0]["eval_cases"].append(trace("a", asked="bye"))
    path.write_text(json.dumps(value))
    result = import_grade_results([read_grade_results(path)])
    assert [made.case for made in result.sets[0].cases] == ["0", "a", "a #2"]


@pytest.mark.parametrize(
    "value",
    [
        {"eval_case_results": []},
        {"eval_case_results": "\x00"},
        [1],
        {"eval_case_results": [{"response_candidate_results": [{}, {}]}]},
    ],
)
def test_what_holds_nothing_of_one_agent_is_refused(tmp_path: Path, value: Any):
    path = tmp_path / "results_1.json"
    path.write_text(json.dumps(value))
    with pytest.raises(ResultsError):
        read_grade_results(path)


def test_google_adks_results_are_none_of_them():
    assert not holds_grade_results(b'{"eval_set_result_id": "x", "eval_set_id": "y", "eval_case_results": []}')
