"""``agent-eval compare`` on what google-adk itself writes: real files of 1.10 and 2.13, and hostile ones."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent_eval_action.errors import ResultsError
from agent_eval_action.formats.adk_results import read_results
from support.command import agent_eval

ROOT = Path(__file__).resolve().parents[3]
WRITER = ROOT / "tests" / "support" / "adk_history.py"
GOOD = dict.fromkeys("abcdefgh", 1.0)


def compare(cwd: Path, *words: object) -> tuple[int, str]:
    done = agent_eval("compare", *map(str, words), cwd=cwd)
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def old(adk110_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Histories that google-adk 1.10 wrote: three runs of main, and changes."""
    root = tmp_path_factory.mktemp("adk110")
    runs: dict[str, list[dict[str, Any]]] = {
        "main": [GOOD, GOOD, GOOD],
        "same": [GOOD],
        "broken": [{**GOOD, "a": 0.0}] * 5,
        "unevaluated": [{**GOOD, "a": None}],
        "raised": [{**GOOD, "a": "raised"}],
        "removed": [{name: score for name, score in GOOD.items() if name != "a"}],
    }
    argv = [str(adk110_python), "-W", "ignore", str(WRITER), str(root), json.dumps(runs)]
    subprocess.run(argv, check=True, capture_output=True)
    return root


@pytest.fixture(scope="module")
def new(adk213_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example after a run of ``adk eval`` by google-adk 2.13."""
    root = tmp_path_factory.mktemp("adk213") / "dice"
    shutil.copytree(ROOT / "examples" / "dice", root, ignore=shutil.ignore_patterns("out", "cache"))
    adk = adk213_python.with_name("adk")
    argv = [str(adk), "eval", "dice_agent", "evals/dice.evalset.json"]
    subprocess.run(argv, cwd=root, check=True, capture_output=True)
    return root


def agent(root: Path, name: str) -> Path:
    return root / name / "bot"


def history(root: Path, name: str) -> list[Path]:
    return sorted((agent(root, name) / ".adk" / "eval_history").iterdir())


@pytest.mark.exhaustive
def test_the_old_form_is_one_json_string(old: Path):
    """Otherwise the tests below would not be about it."""
    assert isinstance(json.loads(history(old, "same")[0].read_text()), str)


@pytest.mark.exhaustive
def test_files_of_a_folder_are_pooled_as_repeats(old: Path, tmp_path: Path):
    code, text = compare(tmp_path, agent(old, "main"), agent(old, "same"), "--out", "out")
    assert code == 0, text
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["decision"]["pairs"][0]["baseline"]["n"] == 3
    assert results["decision"]["pairs"][0]["current"]["n"] == 1
    assert results["sets"][0]["agent"] == "bot"
    assert results["sets"][0]["cases"][0]["expected"][0]["calls"] == [{"name": "roll_die", "args": {"sides": 6}}]


@pytest.mark.exhaustive
def test_a_pattern_names_files(old: Path, tmp_path: Path):
    folder = agent(old, "main") / ".adk" / "eval_history"
    code, text = compare(tmp_path, folder / "*.json", history(old, "same")[0])
    assert code == 0, text


@pytest.mark.adk110
def test_a_regression_is_blocked_and_named(old: Path, tmp_path: Path):
    code, text = compare(tmp_path, agent(old, "main"), agent(old, "broken"), "--threshold-on", "case", "--out", "out")
    assert code == 1, text
    assert "agent-eval run dice:a" in text
    comment = (tmp_path / "out" / "comment.md").read_text()
    assert "flip_coin" in comment


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["unevaluated", "raised"])
def test_what_google_adk_could_not_evaluate_is_an_error_and_never_a_pass(old: Path, tmp_path: Path, name: str):
    """The first is NOT_EVALUATED, the second FAILED without a score: neither is a pass, neither a regression."""
    code, text = compare(tmp_path, agent(old, "main"), agent(old, name), "--out", "out")
    assert code == 3, text
    assert "Inconclusive" in text
    pairs = json.loads((tmp_path / "out" / "results.json").read_text())["decision"]["pairs"]
    assert [pair["kind"] for pair in pairs if pair["case"] == "a"] == ["error"]


@pytest.mark.exhaustive
def test_a_removed_case_is_reported_and_blocks_when_the_policy_says_so(old: Path, tmp_path: Path):
    code, text = compare(tmp_path, agent(old, "main"), agent(old, "removed"))
    assert code == 0
    assert "case `a` was removed" in text
    code, text = compare(tmp_path, agent(old, "main"), agent(old, "removed"), "--on-weakened", "fail")
    assert code == 1


@pytest.mark.exhaustive
def test_2_13_is_compared_with_a_run_of_ours_and_with_the_baseline(new: Path, tmp_path: Path):
    """The example's agent is deterministic: both tools score it alike, case by case."""
    code, text = compare(new, ".agent-eval/baseline.json", "dice_agent", "--out", tmp_path / "out")
    assert code == 0, text
    pairs = json.loads((tmp_path / "out" / "results.json").read_text())["decision"]["pairs"]
    kinds = {(pair["case"], pair["criterion"]): pair["kind"] for pair in pairs if pair["change"] is not None}
    assert len(kinds) == 24
    assert set(kinds.values()) == {"same"}
    assert "no longer scored" not in text
    code, text = compare(new, "dice_agent", tmp_path / "out")
    assert code == 0, text


@pytest.mark.exhaustive
def test_a_baseline_may_stand_on_either_side(new: Path):
    code, text = compare(new, ".agent-eval/baseline.json", ".agent-eval/baseline.json")
    assert code == 0, text
    assert "13 of 13 cases pass, as on main" in text


BAD_CASE = {"eval_id": "a", "eval_metric_result_per_invocation": [{"actual_invocation": {"user_content": 7}}]}
HOSTILE: dict[str, tuple[str, str]] = {
    "a number": ("7", "no results of google-adk"),
    "a string in a string": (json.dumps(json.dumps("{}")), "no results of google-adk"),
    "no cases": ('{"eval_set_id": "s", "eval_case_results": []}', "holds no case"),
    "cut off": ('{"eval_set_id": "s", "eval_case_results": [', "cannot be read"),
    "cases of no shape": ('{"eval_set_id": "s", "eval_case_results": [7]}', "$.eval_case_results[0]"),
    "deep": ('{"eval_case_results": ' + "[" * 5_000 + "]" * 5_000 + "}", "nested more than 200 levels deep"),
    "an invocation of no shape": (json.dumps({"eval_set_id": "s", "eval_case_results": [BAD_CASE]}), "user_content"),
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_what_is_no_result_is_refused_in_words(tmp_path: Path, name: str):
    text, words = HOSTILE[name]
    (tmp_path / "x.evalset_result.json").write_text(text)
    with pytest.raises(ResultsError) as refused:
        read_results(tmp_path / "x.evalset_result.json")
    assert words in str(refused.value)


def test_scores_that_are_no_numbers_times_that_are_none_and_names_that_escape(tmp_path: Path):
    metric = {"metric_name": "m\x1b[31m", "threshold": 0.5, "score": 1e999, "eval_status": 1}
    case = {"eval_id": "<script>", "final_eval_status": 1, "overall_eval_metric_results": [metric]}
    value = {"eval_set_id": "s", "eval_case_results": [case], "creation_timestamp": 1e300}
    (tmp_path / "x.evalset_result.json").write_text(json.dumps(value).replace("Infinity", "1e999"))
    code, said = compare(tmp_path, "x.evalset_result.json", "x.evalset_result.json", "--out", "out")
    assert code in {2, 3}, said
    assert "\x1b[31m" not in said
    assert "Traceback" not in said
