"""The files of a step: within their limits, and never half an entry."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent_eval_action.ci.github_actions import SUMMARY_LIMIT, GitHubActions


def append_summary(path: Path) -> str:
    return GitHubActions().append_summary(lambda room: "é" * (room // 2), {"GITHUB_STEP_SUMMARY": str(path)})


@pytest.mark.parametrize("there", [0, 1, 500_000, SUMMARY_LIMIT - 40_000])
def test_the_summary_keeps_within_the_limit_whatever_is_there_already(tmp_path: Path, there: int) -> None:
    path = tmp_path / "summary"
    path.write_bytes(b"x" * there)
    assert append_summary(path) == ""
    assert there < path.stat().st_size < SUMMARY_LIMIT - 30_000


def test_a_summary_without_room_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "summary"
    path.write_bytes(b"x" * SUMMARY_LIMIT)
    assert "no room left" in append_summary(path)
    assert path.stat().st_size == SUMMARY_LIMIT


_CUT_OFF = """
import resource, signal, sys
from pathlib import Path
from agent_eval_action.ci.github_actions import append
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
