"""The verdict on a terminal: no line is wider than it is, however wide its characters are."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from agent_eval_action.cli.summary import show
from agent_eval_action.reports import ReportInput, results_json
from agent_eval_action.reports.verdict import why
from agent_eval_action.results.run_result import RunResult
from support.messages import sentence, text_finding

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
WIDE = "サイコロを振って素数かどうかを確かめる"


def result() -> RunResult:
    one = results_json.read(GOLDEN / "regressed" / "results.json")
    assert one.decision is not None
    decision = one.decision.model_copy(
        update={
            "reasons": (text_finding("blocks", f"`{WIDE}` が悪くなりました、" * 3),),
            "criteria": tuple(
                row.model_copy(update={"criterion": f"{WIDE}_{n}"}) for n, row in enumerate(one.decision.criteria)
            ),
            "findings": tuple(
                text_finding(f.severity, f"`{WIDE}` 한국어 {sentence(f)} " * 2) for f in one.decision.findings
            ),
        }
    )
    return one.model_copy(update={"decision": decision})


def shown(width: int, *, terminal: bool) -> list[str]:
    out = io.StringIO()
    show(
        Console(file=out, width=width, force_terminal=terminal, color_system=None, highlight=False),
        ReportInput(result()),
        {},
    )
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = shown(width, terminal=True)
    assert max(cell_len(line) for line in lines if "agent-eval " not in line) <= width
    assert any(cell_len(line) > len(line) for line in lines)


def test_what_is_folded_stands_behind_its_mark() -> None:
    lines = shown(60, terminal=True)
    (first, *_) = [number for number, line in enumerate(lines) if line.startswith("  ✗ ")]
    assert lines[first + 1].startswith("    ")
    assert lines[first + 1].strip()


def test_in_a_log_a_sentence_stays_whole() -> None:
    lines = shown(60, terminal=False)
    assert [line for line in lines if line.startswith("  ✗ ") and cell_len(line) > 60]


def printed(scenario: str) -> str:
    out = io.StringIO()
    console = Console(file=out, width=140, force_terminal=False, color_system=None, highlight=False)
    show(console, ReportInput(results_json.read(GOLDEN / scenario / "results.json")), {})
    return out.getvalue()


def test_the_end_says_what_to_type_when_the_change_is_intended() -> None:
    lines = [line.strip() for line in printed("regressed").splitlines()]
    assert 'agent-eval accept --worse --reason "why this is intended"' in lines
    assert "agent-eval baseline update" in lines
    assert "test_config.json:3" in printed("judged"), "where a threshold blocks, the place to edit is named"


def test_why_is_said_once_and_each_case_has_a_line_with_its_first_difference() -> None:
    text = printed("inconclusive")
    report = ReportInput(results_json.read(GOLDEN / "inconclusive" / "results.json"))
    assert all(text.count(str(sentence)) == 1 for sentence in why(report))
    (row,) = [line for line in text.splitlines() if "rate_limited in turn 1: 429" in line]
    assert row.split()[1] == "prime_of_list"
    assert row.endswith("(the same in 1 more case)")
    rows = [
        line.split()[1] for line in printed("suite_drop").splitlines() if line.startswith("  ·  ") and "0.93" in line
    ]
    assert len(rows) == 6
    assert "again    agent-eval run agents/dice/basics.test.json:prime_of_list,small_talk" in text
