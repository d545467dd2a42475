"""The measurements still measure: a recording that is made is scored, a run that drops cases is refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def rescore(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import rescore  # noqa: PLC0415 - benchmarks is a folder of the root, not of the package

    return rescore


def test_a_recording_is_scored_and_what_it_took_is_known(rescore: ModuleType, tmp_path: Path) -> None:
    taken = rescore.rescore(tmp_path, 21)
    assert taken.seconds > 0
    assert taken.cpu_seconds > 0
    assert taken.peak_mb > 10
    results = json.loads((tmp_path / "21" / ".agent-eval" / "out" / "results.json").read_text())
    assert results["totals"]["cases"] == 21


def test_a_run_that_did_not_score_is_no_measurement(rescore: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(rescore.CommandFailed):
        rescore.rescore(tmp_path, 0)


@pytest.mark.parametrize(("power", "expected"), [(1, 1.0), (2, 3.25)])
def test_growth_is_one_when_linear(rescore: ModuleType, power: int, expected: float) -> None:
    seconds = {size: 0.5 + (size / 1000) ** power for size in (1_000, 3_000, 10_000)}
    assert rescore.growth(seconds) == pytest.approx(expected)


@pytest.mark.exhaustive
def test_a_large_failing_run_keeps_every_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The limits at a size at which the page meets its own; the seconds are the bench's."""
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import large_report  # noqa: PLC0415 - benchmarks is a folder of the root, not of the package

    monkeypatch.setattr(large_report, "SECONDS", float("inf"))
    assert large_report.main(["5000"]) == 0, capsys.readouterr().out
    sizes = [int(line.split()[1].replace(",", "")) for line in capsys.readouterr().out.splitlines()[1:5]]
    assert sizes[0] < 60_000, "cases with one cause are one section of the comment"
    assert sizes[1] > 300_000, "each case has its row in the summary"
    assert sizes[2] > 5_000_000
