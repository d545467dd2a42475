"""The verdict on a terminal: no line is wider than it is, however wide its characters are."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from agent_eval_action.cli.summary import show
from agent_eval_action.reports import results_json
from agent_eval_action.results.run_result import RunResult
from support.messages import headline, sentence, sentences, text_finding

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


def printed(scenario: str) -> str:
    out = io.StringIO()
    console = Console(file=out, width=140, force_terminal=False, color_system=None, highlight=False)
    show(console, results_json.read(GOLDEN / scenario / "results.json"))
    return out.getvalue()


def test_the_end_says_what_to_type_when_the_change_is_intended() -> None:
    lines = [line.strip() for line in printed("regressed").splitlines()]
    assert 'agent-eval accept --worse --reason "why this is intended"' in lines
    assert "agent-eval baseline update" in lines
    assert "test_config.json:3" in printed("judged"), "where a threshold blocks, the place to edit is named"


def test_what_the_headline_says_is_not_said_again_below_it() -> None:
    text = printed("inconclusive")
    read = results_json.read(GOLDEN / "inconclusive" / "results.json")
    assert read.decision is not None
    repeated = [text for text in sentences(read.decision) if text in headline(read.decision)]
    assert repeated
    assert all(text.count(reason) == 1 for reason in repeated)
