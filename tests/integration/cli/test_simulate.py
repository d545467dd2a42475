"""``agent-eval simulate`` on the example's stored baseline."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from support.command import agent_eval

DICE = Path(__file__).resolve().parents[3] / "examples" / "dice"


def simulate(*words: str, cwd: Path = DICE) -> subprocess.CompletedProcess[str]:
    return agent_eval("simulate", *words, cwd=cwd)


def test_json_says_what_the_table_says_and_nothing_is_written():
    before = sorted(str(path) for path in DICE.rglob("*"))
    done = simulate("--runs", "20", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    by_change = {row["change"]: row for row in found["rows"] if row["criterion"] == "tool_trajectory_avg_score"}
    assert by_change["nothing (a harmless change)"]["blocked"] == 0
    assert by_change["its most reliable case always fails"]["blocked"] == 1
    assert found["runs"] == 20
    table = simulate("--runs", "20")
    assert table.stdout == ""
    assert "harmless change" in " ".join(table.stderr.split())
    assert sorted(str(path) for path in DICE.rglob("*")) == before


def test_without_a_history_it_says_how_to_make_one(tmp_path: Path):
    done = simulate(cwd=tmp_path)
    assert done.returncode == 2
    assert "agent-eval baseline update" in done.stderr


def test_a_number_of_runs_out_of_bounds_is_refused():
    assert simulate("--runs", "0").returncode == 2
