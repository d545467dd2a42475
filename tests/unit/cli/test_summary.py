"""The verdict on a terminal: no line is wider than it is, however wide its characters are."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from agent_eval_action.cli.summary import show
from agent_eval_action.model.result import RunResult
from agent_eval_action.reports import results_json

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
WIDE = "サイコロを振って素数かどうかを確かめる"


def result() -> RunResult:
    one = results_json.read(GOLDEN / "regressed" / "results.json")
    assert one.decision is not None
    decision = one.decision.model_copy(
        update={
            "reason": f"`{WIDE}` が悪くなりました、" * 3,
            "criteria": tuple(
                row.model_copy(update={"criterion": f"{WIDE}_{n}"}) for n, row in enumerate(one.decision.criteria)
            ),
            "findings": tuple(
                f.model_copy(update={"reason": f"`{WIDE}` 한국어 {f.reason} " * 2}) for f in one.decision.findings
            ),
        }
    )
    return one.model_copy(update={"decision": decision})


def shown(width: int, *, terminal: bool) -> list[str]:
    out = io.StringIO()
    show(Console(file=out, width=width, force_terminal=terminal, color_system=None, highlight=False), result())
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = shown(width, terminal=True)
    assert max(map(cell_len, lines)) <= width
    assert any(cell_len(line) > len(line) for line in lines)


def test_what_is_folded_stands_behind_its_mark() -> None:
    lines = shown(60, terminal=True)
    (first, *_) = [number for number, line in enumerate(lines) if line.startswith("  ✗ ")]
    assert lines[first + 1].startswith("    ")
    assert lines[first + 1].strip()


def test_in_a_log_a_sentence_stays_whole() -> None:
    lines = shown(60, terminal=False)
    assert [line for line in lines if line.startswith("  ✗ ") and cell_len(line) > 60]
