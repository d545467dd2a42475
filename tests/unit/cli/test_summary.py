"""The verdict on a terminal: no name is broken, however wide, long or directed its characters are."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from agent_eval_action.cli.progress import Verbosity
from agent_eval_action.cli.summary import show
from agent_eval_action.reports import ReportInput, results_json
from agent_eval_action.reports.verdict import why
from agent_eval_action.results.run_result import RunResult
from support.messages import text_finding

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
WIDE = "サイコロを振って素数かどうかを確かめる"


LONG = "a_case_whose_name_is_longer_than_any_terminal_is_wide_" * 3
RTL = "\u05e7\u05d5\u05d1\u05d9\u05d9\u05d4_\u05d4\u05d2\u05d3\u05d5\u05dc\u05d4"
RENAMED = {"ask_for_sides": WIDE, "refuse_nonsense": LONG, "roll_two_dice": RTL}


def result(scenario: str = "regressed") -> RunResult:
    """A golden result in which names are wide, long and written from right to left."""
    text = (GOLDEN / scenario / "results.json").read_text("utf-8")
    for name, other in RENAMED.items():
        text = text.replace(f'"{name}"', f'"{other}"')
    one = RunResult.model_validate_json(text)
    assert one.decision is not None
    reasons = (text_finding("blocks", f"`{WIDE}` が悪くなりました、" * 3),)
    return one.model_copy(update={"decision": one.decision.model_copy(update={"reasons": reasons})})


def shown(width: int, *, terminal: bool, verbosity: Verbosity = "normal") -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, color_system=None, highlight=False)
    show(console, ReportInput(result()), {"html": "out/report.html", "junit": "out/junit.xml"}, verbosity=verbosity)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 140])
def test_only_a_name_that_fits_nowhere_is_wider_than_the_terminal(width: int) -> None:
    lines = shown(width, terminal=True)
    wide = [line for line in lines if cell_len(line) > width and "agent-eval " not in line]
    assert all(LONG in line or WIDE in line for line in wide), wide


@pytest.mark.parametrize("width", [60, 80, 140])
def test_every_name_stands_on_one_line_to_be_copied(width: int) -> None:
    lines = shown(width, terminal=True)
    names = [row.name for row in ReportInput(result()).view.criteria]
    for name in (*names, "agent-eval accept --worse --reason"):
        assert [line for line in lines if name in line], name
    cases = [view.key.case for cause in ReportInput(result()).causes for view in cause.cases]
    assert {*RENAMED.values()} < {*cases}
    for case in cases:
        assert [line for line in lines if case in line], case


def test_what_is_folded_stands_below_its_own_column() -> None:
    lines = printed("judged", 80).splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.endswith("first difference")]
    start = lines[at].index("first difference")
    folded = [line for line in lines[at + 2 : at + 12] if line.strip() and not line[:start].strip()]
    assert all(line[start] != " " for line in folded)


def test_in_a_log_a_sentence_stays_whole() -> None:
    lines = shown(60, terminal=False)
    assert [line for line in lines if line.startswith("  ✗ ") and cell_len(line) > 60]


def test_quiet_is_the_verdict_and_what_blocks_and_verbose_lists_every_file() -> None:
    quiet = shown(140, terminal=False, verbosity="quiet")
    assert quiet[0].startswith("Blocked  ")
    signs = {line.split()[0] for line in quiet if line.startswith("  ") and not line.startswith("     ")}
    assert signs == {"✗"}
    assert not [line for line in quiet if "report.html" in line or "agent-eval " in line]
    assert [line for line in shown(140, terminal=False, verbosity="verbose") if "junit    out/junit.xml" in line]
    assert not [line for line in shown(140, terminal=False) if "out/junit.xml" in line]


def printed(scenario: str, terminal_width: int = 0) -> str:
    out = io.StringIO()
    console = Console(file=out, width=terminal_width or 140, force_terminal=terminal_width > 0, color_system=None)
    show(console, ReportInput(results_json.read(GOLDEN / scenario / "results.json")), {})
    return out.getvalue()


def test_the_end_says_what_to_type_when_the_change_is_intended() -> None:
    lines = [line.strip() for line in printed("regressed").splitlines()]
    assert 'agent-eval accept --worse --reason "why this is intended"' in lines
    assert "agent-eval baseline update" in lines
    assert "test_config.json:3" in printed("judged"), "where a threshold blocks, the place to edit is named"


def test_why_is_reported_once_and_each_case_has_a_line_with_its_first_difference() -> None:
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


def test_a_quarantine_and_one_that_has_run_out_are_said() -> None:
    text = printed("quarantined")
    assert "Blocked  1 of 3 cases got worse" in text
    assert "the quarantine of `rebook` ran out on 2026-11-01 (owner jo), so it counts again: flaky tool" in text
    assert "quarantined until 2027-01-31 (owner jane): `book_flight`: the airline's sandbox is down" in text
