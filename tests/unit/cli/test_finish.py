"""The end of a run where nothing can be written: a pass that is nowhere is none, and no other verdict changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_eval_action.cli.outputs import WrittenFiles, finish, outputs
from agent_eval_action.cli.session import exit_code
from agent_eval_action.config.models import BaselineSettings, Settings
from agent_eval_action.errors import ExitCode, OutputError
from agent_eval_action.reports import ReportInput, results_json
from agent_eval_action.results.run_result import RunResult, RunStatus

GOLDEN = Path(__file__).resolve().parents[2] / "golden"


@pytest.fixture(autouse=True)
def _no_workflow(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_ACTIONS", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)


def result(scenario: str) -> RunResult:
    return results_json.read(GOLDEN / scenario / "results.json")


def settings(root: Path, out: Path) -> Settings:
    baseline = BaselineSettings(path=root / "b.json")
    return Settings(workspace=root, start=root, baseline=baseline, out=out, cache_dir=root / "cache")


@pytest.fixture
def nowhere(tmp_path: Path) -> Settings:
    """A folder that cannot be made: a file is in its way."""
    (tmp_path / "file").touch()
    return settings(tmp_path, tmp_path / "file" / "out")


def test_a_pass_that_is_written_down_nowhere_is_none(nowhere: Settings) -> None:
    with pytest.raises(OutputError, match=r"results\.json cannot be written"):
        finish(result("passed"), nowhere)


@pytest.mark.parametrize(("scenario", "code"), [("regressed", ExitCode.FAIL), ("inconclusive", ExitCode.INCONCLUSIVE)])
def test_another_verdict_stands(
    nowhere: Settings, scenario: str, code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert finish(result(scenario), nowhere) is code
    said = capsys.readouterr().err
    for name in ("results.json", "junit.xml", "comment.md", "report.html"):
        assert name in said


def test_one_report_that_fails_takes_no_other_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    (out / "junit.xml" / "in-the-way").mkdir(parents=True)
    assert finish(result("passed"), settings(tmp_path, out)) is ExitCode.PASS
    assert "there is no junit.xml" in capsys.readouterr().err
    assert all((out / name).is_file() for name in ("results.json", "comment.md", "report.html"))


def test_outside_of_a_workflow_no_comment_is_posted(tmp_path: Path) -> None:
    seen: list[bool] = []

    def publish() -> str:
        seen.append((tmp_path / "out" / "report.html").is_file())
        return ""

    # outside of a workflow there is nobody to post for
    finish(result("passed"), settings(tmp_path, tmp_path / "out"), publish)
    assert seen == []


def test_in_a_workflow_the_comment_comes_after_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    seen: list[bool] = []

    def publish() -> str:
        seen.append((tmp_path / "out" / "report.html").is_file())
        return "no luck"

    assert finish(result("regressed"), settings(tmp_path, tmp_path / "out"), publish) is ExitCode.FAIL
    cut = result("regressed").model_copy(update={"status": RunStatus.INTERRUPTED})
    assert finish(cut, settings(tmp_path, tmp_path / "out"), publish) is ExitCode.INTERRUPTED
    assert seen == [True]


@pytest.mark.parametrize(
    ("fail_on", "scenario", "code"),
    [
        ("inconclusive", "regressed", ExitCode.FAIL),
        ("inconclusive", "inconclusive", ExitCode.INCONCLUSIVE),
        ("fail", "regressed", ExitCode.FAIL),
        ("fail", "inconclusive", ExitCode.PASS),
        ("never", "regressed", ExitCode.PASS),
        ("never", "inconclusive", ExitCode.PASS),
    ],
)
def test_what_makes_the_step_red_and_that_an_interrupted_run_never_is_green(
    fail_on: str, scenario: str, code: ExitCode
) -> None:
    assert exit_code(result(scenario), fail_on) is code
    cut = result(scenario).model_copy(update={"status": RunStatus.INTERRUPTED})
    assert exit_code(cut, fail_on) is ExitCode.INTERRUPTED


def test_a_file_that_is_not_there_has_no_path() -> None:
    given = outputs(ReportInput(result("regressed")), WrittenFiles((("results", "r.json"),)))
    assert (given["results"], given["junit"], given["report"]) == ("r.json", "", "")
    assert (given["verdict"], given["regressions"], given["pass-rate"]) == ("fail", "3", "0.5714")
