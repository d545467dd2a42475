"""What a change may be by chance stands beside it, and what a run could not have seen is said."""

from __future__ import annotations

from agent_eval_action.reports import REPORTS
from agent_eval_action.reports import formatting as fmt
from agent_eval_action.results.decision import ChangeKind, CriterionChange, Verdict
from agent_eval_action.results.findings import FindingCode, Reason
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


def test_the_table_and_junit_have_the_interval_and_what_could_be_detected(build):
    comment, junit = rendered(build, row(status="fail"))
    assert "| **−0.120** <sub>(−0.190…&#8288;−0.050)</sub> |" in comment  # noqa: RUF001 - the sign reports write
    assert f"detected (4 times out of 5): <code>{CRITERION}</code> 0.062</sub>" in comment
    assert "change   −0.120 (−0.190…−0.050)" in junit  # noqa: RUF001 - the sign reports write
    assert "could detect a drop of 0.062" in junit


def test_a_case_s_line_has_its_own(build):
    comment, junit = rendered(build, row(), interval=(-0.6, -0.1))
    assert "(−0.400, 95 %: −0.600…−0.100)" in comment  # noqa: RUF001 - the sign reports write
    assert "change with 95 % confidence: −0.600…−0.100" in junit  # noqa: RUF001 - the sign reports write


def test_a_sentence_of_evidence_has_it_already(build):
    scores = {"n": 6, "mean": 0.0, "passed": 0}
    evidence = {"main": scores, "here": scores, "rerun": True, "binary": True, "interval": [-0.6, -0.1]}
    told = Reason(code=FindingCode.WORSE, data=evidence)
    comment, _ = rendered(build, row(), interval=(-0.6, -0.1), reason=told)
    assert "(change -0.60 to -0.10, 95 %)" in comment
    assert comment.count("95 %") == 1 + comment.count("95 % interval over cases")


def test_where_every_case_changed_alike_there_is_no_interval_to_show():
    assert fmt.change(row(change=0.0, interval=(0.0, 0.0))) == "0.000"
    assert fmt.change(row(interval=None)) == "−0.120"  # noqa: RUF001 - the sign reports write


def test_of_a_case_whose_scores_never_differ_neither(build):
    comment, junit = rendered(build, row(interval=None, detectable=None), interval=(-0.4, -0.4))
    assert "95 %" not in comment + junit


def test_a_run_that_could_have_seen_no_drop_says_so():
    assert fmt.detectable(row(detectable=0.95)) == "none, for want of runs"
    assert fmt.detectable(row(detectable=None)) == fmt.NONE
