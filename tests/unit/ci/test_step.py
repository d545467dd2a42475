"""The order in which a step leaves things, and that nothing which fails stops what comes after it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from agent_eval_action.ci import detect
from agent_eval_action.ci.base import StepReports, publish_step
from agent_eval_action.ci.github.outputs import LIMIT, append_summary
from agent_eval_action.results.evalset import Annotation

STEPS = ["outputs", "summary", "show", "annotations", "publish"]


class Step:
    """A step's files and log, and which part was asked for when."""

    def __init__(self, root: Path) -> None:
        self.asked: list[str] = []
        self.warned: list[str] = []
        self.said: list[str] = []
        self.output, self.summary = root / "output", root / "summary"
        self.environ = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_STEP_SUMMARY": str(self.summary),
        }
        self.leaving = StepReports(
            outputs=self._asked("outputs", {"verdict": "fail"}),
            summary=lambda room: self._asked("summary", "s" * min(room, 100))(),
            show=self._asked("show", None),
            annotations=self._asked("annotations", [Annotation(level="error", message="m")]),
            publish=self._asked("publish", ""),
        )

    def _asked(self, name: str, value: object) -> Callable[[], object]:
        def answer() -> object:
            self.asked.append(name)
            return value

        return answer

    def __call__(self, environ: Mapping[str, str] | None = None) -> None:
        given = self.environ if environ is None else environ
        publish_step(self.leaving, detect(given), given, self.warned.append, self.said.append)


@pytest.fixture
def step(tmp_path: Path) -> Step:
    return Step(tmp_path)


def test_everything_is_left_in_the_order_of_what_matters(step: Step) -> None:
    step()
    assert step.asked == STEPS
    assert step.said == ["::error::m"]
    assert step.warned == []
    assert "\nfail\n" in step.output.read_text()
    assert step.summary.read_text() == "s" * 100


@pytest.mark.parametrize("broken", STEPS)
def test_what_fails_is_a_warning_and_the_rest_is_left_all_the_same(step: Step, broken: str) -> None:
    def fail(*_: object) -> None:
        step.asked.append(broken)
        raise RuntimeError("no luck")

    step.leaving = replace(step.leaving, **{broken: fail})
    step()
    assert step.asked == STEPS
    (warning,) = step.warned
    assert "no luck" in warning


@pytest.mark.parametrize("name", ["GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"])
def test_a_full_disk_is_a_warning(step: Step, name: str) -> None:
    step.environ[name] = "/dev/full"
    step()
    assert step.asked == STEPS
    (warning,) = step.warned
    assert "No space left on device" in warning


def test_elsewhere_the_verdict_is_shown_and_nothing_else_happens(step: Step) -> None:
    environ = {name: value for name, value in step.environ.items() if name != "GITHUB_ACTIONS"}
    step(environ)
    assert step.asked == ["show"]
    assert not step.output.exists()
    assert not step.summary.exists()


def test_nobody_reads_the_log(step: Step) -> None:
    def fail(*_: object) -> None:
        raise BrokenPipeError

    step.leaving = replace(step.leaving, show=fail)
    publish_step(step.leaving, detect(step.environ), step.environ, fail, step.said.append)
    assert step.asked == [name for name in STEPS if name != "show"]


@pytest.mark.parametrize("there", [0, 1, 500_000, LIMIT - 40_000])
def test_the_summary_keeps_within_the_limit_whatever_is_there_already(tmp_path: Path, there: int) -> None:
    path = tmp_path / "summary"
    path.write_bytes(b"x" * there)
    assert append_summary(lambda room: "é" * (room // 2), {"GITHUB_STEP_SUMMARY": str(path)}) == ""
    assert there < path.stat().st_size < LIMIT - 30_000


def test_a_summary_without_room_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "summary"
    path.write_bytes(b"x" * LIMIT)
    assert "no room left" in append_summary(lambda room: "s" * room, {"GITHUB_STEP_SUMMARY": str(path)})
    assert path.stat().st_size == LIMIT


_CUT_OFF = """
import resource, signal, sys
from pathlib import Path
from agent_eval_action.ci.github.outputs import append
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
try:
    append(Path(sys.argv[1]), "y" * 1000)
except OSError as error:
    print(error.strerror)
"""


def test_a_disk_that_fills_up_in_the_middle_leaves_no_half_entry(tmp_path: Path) -> None:
    path = tmp_path / "output"
    path.write_bytes(b"x" * 600)
    done = subprocess.run([sys.executable, "-c", _CUT_OFF, path], capture_output=True, text=True, check=True)
    assert "too large" in done.stdout
    assert path.read_bytes() == b"x" * 600
