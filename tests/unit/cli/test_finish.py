"""The end of a run where nothing can be written: a pass that is nowhere is none, and no other verdict changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent_eval_action.cli import log
from agent_eval_action.cli import outputs as cli_outputs
from agent_eval_action.cli.outputs import finish, outputs
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


STEPS = ["outputs", "summary", "show", "annotations", "publish"]


class Step:
    """A step whose parts are watched: which was made when, and what was warned of."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        self.warned: list[str] = []
        self.broken: dict[str, Exception] = {}
        self.root = root
        self.output, self.summary = root / "output", root / "summary"
        monkeypatch.setenv("GITHUB_ACTIONS", "true")
        monkeypatch.setenv("GITHUB_OUTPUT", str(self.output))
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(self.summary))
        monkeypatch.setattr(cli_outputs, "outputs", self.part("outputs", outputs))
        reports = {name: cli_outputs.REPORTS[name] for name in cli_outputs.REPORTS}
        reports["summary"] = self.part("summary", reports["summary"])
        monkeypatch.setattr(cli_outputs, "REPORTS", reports)
        monkeypatch.setattr(cli_outputs.summary, "show", self.part("show", lambda *_, **__: None))
        monkeypatch.setattr(cli_outputs, "remarks", self.part("annotations", cli_outputs.remarks))
        monkeypatch.setattr(log, "warning", self.warned.append)

    def part(self, name: str, make: Callable[..., object]) -> Callable[..., object]:
        def watched(*given: object, **named: object) -> object:
            self.made.append(name)
            if name in self.broken:
                raise self.broken[name]
            return make(*given, **named)

        return watched

    def finish(self) -> ExitCode:
        return finish(result("regressed"), settings(self.root, self.root / "out"), self.part("publish", lambda: ""))


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Step:
    return Step(tmp_path, monkeypatch)


def test_everything_is_left_in_the_order_of_what_matters(step: Step) -> None:
    assert step.finish() is ExitCode.FAIL
    assert (step.made, step.warned) == (STEPS, [])
    assert "\nfail\n" in step.output.read_text()
    assert "got worse" in step.summary.read_text()


@pytest.mark.parametrize("broken", STEPS)
def test_what_fails_is_a_warning_and_the_rest_is_left_all_the_same(step: Step, broken: str) -> None:
    step.broken[broken] = RuntimeError("no luck")
    assert step.finish() is ExitCode.FAIL
    assert step.made == STEPS
    (warning,) = step.warned
    assert "no luck" in warning


@pytest.mark.parametrize("name", ["GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"])
def test_a_full_disk_is_a_warning(step: Step, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "/dev/full")
    step.finish()
    assert step.made == STEPS
    (warning,) = step.warned
    assert "No space left on device" in warning


def test_elsewhere_the_verdict_is_shown_and_nothing_else_happens(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS")
    step.finish()
    assert step.made == ["show"]
    assert not step.output.exists()
    assert not step.summary.exists()


def test_nobody_reads_the_log(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(log, "warning", fail)
    step.broken["show"] = BrokenPipeError()
    assert step.finish() is ExitCode.FAIL
    assert step.made == STEPS


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
    decision = ReportInput(result(scenario)).decision
    assert exit_code(RunStatus.COMPLETE, decision, fail_on) is code
    assert exit_code(RunStatus.INTERRUPTED, decision, fail_on) is ExitCode.INTERRUPTED


def test_a_file_that_is_not_there_has_no_path() -> None:
    given = outputs(ReportInput(result("regressed")), {"results": "r.json"})
    assert (given["results"], given["junit"], given["report"]) == ("r.json", "", "")
    assert (given["verdict"], given["regressions"], given["pass-rate"]) == ("fail", "2", "0.5714")
