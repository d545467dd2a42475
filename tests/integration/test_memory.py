"""What one more case costs, in calls and in memory, by the whole command at several sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from support.command import agent_eval

ROOT = Path(__file__).resolve().parents[2]
FEW, MANY = 300, 2_000
BYTES_PER_CASE = 30_500
"""Two turns and a tool call, with a baseline: 28,300 measured; 29,400 when reports were made beside the cases."""
SIZES = (10, 20, 40, 80)
"""The first imports what a run imports, and fills what is kept between runs of a process."""
PROBE = """
import json, os, sys, threading
from agent_eval_action.cli import main

found = []

def count(frame, event, argument):
    if event in {"call", "c_call"}:
        found[-1][0] += 1
    if event == "call" and frame.f_code.co_name == "compare" and frame.f_code.co_filename.endswith("gate/pairs.py"):
        found[-1][1] += 1

for folder in sys.argv[1:]:
    os.chdir(folder)
    sys.argv, found = ["agent-eval", "run"], [*found, [0, 0]]
    threading.setprofile(count)
    sys.setprofile(count)
    try:
        main()
    except SystemExit as end:
        sys.setprofile(None)
        assert not end.code, end.code
print(json.dumps(found))
"""


@pytest.fixture
def rescore(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import rescore  # noqa: PLC0415 - benchmarks is a folder of the root, not of the package

    return rescore


@pytest.mark.exhaustive
def test_a_case_more_costs_the_same_calls_however_many_there_are(rescore: ModuleType, tmp_path: Path) -> None:
    folders = [rescore.lay_out(tmp_path, cases) for cases in SIZES]
    for work in folders:
        made = agent_eval("baseline", "update", "--repeats", "1", cwd=work)
        assert (work / ".agent-eval" / "baseline.json").is_file(), made.stderr
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *map(str, folders)], capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr
    _, *found = json.loads(done.stdout.splitlines()[-1])
    few, some, many = (calls for calls, _ in found)
    small, middle, large = SIZES[1:]
    assert (many - some) / (large - middle) < 1.03 * (some - few) / (middle - small), found
    assert [comparisons for _, comparisons in found] == [1, 1, 1], "a run in which nothing is run again compares once"


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_case_with_a_baseline_takes_little_memory(rescore: ModuleType, tmp_path: Path) -> None:
    few, many = (rescore.rescore(tmp_path, cases, baseline=True).peak_mb * 1024 * 1024 for cases in (FEW, MANY))
    assert (many - few) / (MANY - FEW) < BYTES_PER_CASE, (few, many)
