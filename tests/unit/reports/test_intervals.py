"""What a change may be by chance stands beside it, and what a run could not have seen is said."""

from __future__ import annotations

from agent_eval_action.reports import REPORTS
from agent_eval_action.reports import formatting as fmt
from agent_eval_action.results.decision import ChangeKind, CriterionChange, Verdict
from support.messages import text_finding

CRITERION = "tool_trajectory_avg_score"


def row(**fields):
    given = {"criterion": CRITERION, "baseline": 0.9, "paired": 0.78, "change": -0.12, "pairs": 5, "compared": 5}
    return CriterionChange(**{**given, "interval": (-0.19, -0.05), "detectable": 0.0617, "max_drop": 0.05} | fields)


def rendered(build, *rows, **pair):
    made = build.case("a", ChangeKind.WORSE, 0.5, baseline=build.stat(0.9), change=-0.4, blocking=True, **pair)
    fell = text_finding("blocks", "it fell", criterion=CRITERION)
    report = made.report(Verdict.FAIL, criteria=rows, findings=(fell,))
    return REPORTS["markdown"](report, None), REPORTS["junit"](report, None)


def test_the_table_has_the_change_and_the_page_its_interval(build):
    comment, _ = rendered(build, row(status="fail"))
    assert "| **−0.12** |" in comment  # noqa: RUF001 - the sign reports write
    assert "…" not in comment
    assert "detect" not in comment + "notices", "a drop that was found needs no smallest drop beside it"


def test_a_pass_says_what_it_would_have_noticed(build):
    comment = REPORTS["markdown"](build.case("a").report(criteria=(row(change=0.0, interval=None),)), None)
    name = CRITERION.replace("_", "_<wbr>")
    assert f"Four times out of five, <code>{name}</code> notices a drop of 0.06." in comment


def test_a_case_s_failure_has_its_own(build):
    _, junit = rendered(build, row(), interval=(-0.6, -0.1))
    assert "change with 95 % confidence: −0.60…−0.10" in junit  # noqa: RUF001 - the sign reports write


def test_of_a_case_whose_scores_never_differ_neither(build):
    comment, junit = rendered(build, row(interval=None, detectable=None), interval=(-0.4, -0.4))
    assert "95 %" not in comment + junit


def test_a_run_that_would_have_noticed_no_drop_says_so():
    assert fmt.detectable(row(detectable=0.95)) == "has too few runs to notice a drop"
    assert fmt.detectable(row(detectable=None)) == ""
