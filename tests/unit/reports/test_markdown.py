"""The comment: what is read first, what is given up first, and that it always fits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_eval_action.config.models import Policy
from agent_eval_action.gate import compare, decide
from agent_eval_action.reports import MARKER, REPORTS, ReportInput
from agent_eval_action.reports.markdown import BUDGET
from agent_eval_action.results.decision import (
    BaselineInfo,
    BaselineTrajectory,
    ChangeKind,
    CriterionChange,
    Verdict,
)
from agent_eval_action.results.run_result import (
    AttemptError,
    AttemptSummary,
    Conditions,
    ErrorKind,
    RunResult,
    RunStatus,
    Totals,
    Usage,
)
from support.messages import text_finding
from support.results import case, run, simple

Golden = Callable[[str], RunResult]


def render(report: ReportInput, budget: int | None = None) -> str:
    return REPORTS["markdown"](report, budget)


@pytest.mark.parametrize(
    ("outcome", "alert"),
    [
        (Verdict.PASS, "> [!TIP]\n> **Passed:** because"),
        (Verdict.FAIL, "> [!CAUTION]\n> **Blocked:** because"),
        (Verdict.INCONCLUSIVE, "> [!WARNING]\n> **Inconclusive:** because"),
        (Verdict.COLLECTING, "> [!NOTE]\n> **Collecting:** because"),
    ],
)
def test_the_verdict_comes_first(build: Any, outcome: Verdict, alert: str) -> None:
    assert render(build.case("a").report(outcome)).startswith(f"{MARKER}\n\n{alert}\n")


def test_the_metrics_line(build: Any) -> None:
    build.case("a", ChangeKind.NEWLY_FAILING, 0.0, baseline=build.stat(1.0), blocking=True)
    build.case("b", baseline=build.stat(1.0))
    build.case("c", ChangeKind.ERROR, None, errors=1)
    report = build.report(
        Verdict.FAIL,
        baseline=BaselineInfo(
            path=".agent-eval/baseline.json", commit="3f9c2ab7d01e", created_at="2026-05-05T10:30:00+00:00"
        ),
        run={
            "totals": Totals(cases=3, seconds=75, usage=Usage(total_tokens=12_345, calls_without_usage=1)),
            "conditions": Conditions(tool_version="1", repeats=3),
        },
    )
    line = next(line for line in render(report).splitlines() if " repeats" in line)
    assert line == (
        "3 cases · **1 of 3 pass** (33.3 %; of the 2 compared 100 % → 50.0 %) · 1 case with errors"
        " · at least 12,345 tokens · 1 min 15 s · 3 repeats"
        " · baseline <code>.agent-eval/baseline.json</code> of <code>3f9c2ab7d0</code>, 2 days old"
    )


def test_what_the_end_of_a_run_cut_off_is_no_error() -> None:
    stopped = AttemptError(kind=ErrorKind.STOPPED, message="the run ended before this attempt was made")
    cut = [case(name, AttemptSummary(repeat=0, error=stopped)) for name in ("b", "c")]
    lost = case("d", AttemptSummary(repeat=0, error=AttemptError(kind=ErrorKind.TIMEOUT, message="no answer")))
    for more, words in (
        ((), "no errors · 2 cases not complete"),
        ((lost,), "1 case with errors · 2 cases not complete"),
    ):
        result = run(simple("a", 1.0), *cut, *more).model_copy(update={"status": RunStatus.INTERRUPTED})
        decision = decide(compare(None, result), result, Policy())
        text = render(ReportInput(result.model_copy(update={"decision": decision})))
        assert f" · {words} · " in text


def test_the_criteria_that_fell_are_the_first_rows(build: Any) -> None:
    rows = (
        CriterionChange(criterion="a_fine", threshold=0.8, current=0.9, baseline=0.9, paired=0.9, change=0.0, pairs=4),
        CriterionChange(
            criterion="z_fell", threshold=0.8, baseline=0.9, paired=0.5, change=-0.4, pairs=4, failing=2, status="fail"
        ),
        CriterionChange(
            criterion="token_usage_v1", goal="minimize", unit="tokens", baseline=1000, paired=1500.4, change=500.4,
            pairs=4, max_rise=0.1, status="fail",
        ),
    )  # fmt: skip
    table = [
        line for line in render(build.case("a").report(Verdict.FAIL, criteria=rows)).splitlines() if line[:2] == "| "
    ]
    assert table[:5] == [
        "| Criterion | Baseline | This run | Change | Threshold, limit | Verdict |",
        "| :-- | --: | --: | --: | :-- | :-- |",
        "| <code>token_usage_v1</code> ↓ | 1,000 | 1,500 | **+500** | max rise 10 % | ❌ fail |",
        "| <code>z_fell</code> | 0.900 | 0.500 | **\u22120.400** | ≥ 0.8 | ❌ fail: 2 of 4 cases below |",
        "| <code>a_fine</code> | 0.900 | 0.900 | 0.000 | ≥ 0.8 | ✅ pass |",
    ]


def test_cases_are_told_worst_first_and_each_has_its_place(build: Any) -> None:
    one = build.stat(1.0)
    build.case("same", baseline=one)
    build.case("new", ChangeKind.NEW)
    build.case("better", ChangeKind.BETTER, baseline=build.stat(0.5))
    build.case("fell a little", ChangeKind.NEWLY_FAILING, 0.9, baseline=one, change=-0.1, blocking=True)
    build.case("fell deep", ChangeKind.NEWLY_FAILING, 0.1, baseline=one, change=-0.9, blocking=True)
    build.case("broke", ChangeKind.ERROR, None, errors=1)
    build.case("edited", ChangeKind.CHANGED)
    build.case("still", ChangeKind.STILL_FAILING, 0.2, baseline=build.stat(0.2))
    build.case("slipped", ChangeKind.WORSE, 0.9, threshold=0.5, baseline=one, change=-0.1)
    build.pair("gone", ChangeKind.REMOVED, baseline=one)
    text = render(build.report(Verdict.FAIL))
    summaries = re.findall(r"<summary>(.*)</summary>", text)
    assert [re.sub(r"<.*?>", "", line).split(":")[0] for line in summaries] == [
        "❌ fell deep",
        "❌ fell a little",
        "⚠️ broke has no score on 1 criterion",
        "🔸 still",
        "🔻 1 case worse, not blocking",
        "🆕 new",
        "🗑️ gone",
        "✏️ 1 case changed definition",
        "🟢 1 case better",
        "All 9 cases",
    ]
    assert text.count("<details open>") == 1
    counted = (
        "> ❌ 2 regressed · ⚠️ 1 not measured · 🔸 1 below a threshold, not blocking · 🔻 1 worse, not blocking"
        " · 🆕 1 new · 🗑️ 1 removed · ✏️ 1 changed definition · 🟢 1 better"
    )
    assert counted in text


def test_a_criterion_new_for_a_known_case_makes_no_new_case(build: Any) -> None:
    build.case("a", baseline=build.stat(1.0)).pair("a", ChangeKind.NEW, criterion="added", current=build.stat(1.0))
    assert "1 new" not in render(build.report())


def test_a_fall_under_a_criterion_that_blocks_is_a_regression(build: Any) -> None:
    build.case("a", ChangeKind.WORSE, 0.9, threshold=0.5, baseline=build.stat(1.0), change=-0.1)
    row = CriterionChange(criterion=build.criterion, status="fail")
    assert "❌ 1 regressed" in render(build.report(Verdict.FAIL, criteria=(row,)))
    assert "🔻 1 worse, not blocking" in render(build.report(Verdict.PASS))


def test_a_regression_shows_the_calls_of_all_three_sides(build: Any) -> None:
    want, then, now = (build.call("roll_die", sides=n) for n in (20, 12, 6))
    build.case(
        "a", ChangeKind.NEWLY_FAILING, 0.0, blocking=True, baseline=build.stat(1.0), reason="it is bad",
        expected=(build.turn(want, user="Roll!"),), attempt=build.attempt(0.0, turns=(build.turn(now),)),
    )  # fmt: skip
    before = BaselineTrajectory(agent="dice", eval_set="basics", case="a", turns=(build.turn(then),))
    text = render(build.report(Verdict.FAIL, baseline_trajectories=(before,)))
    assert "- it is bad\n" in text
    assert (
        "```diff\n@@ turn 1: Roll! @@\n"
        "# tool calls: - expected, + this run\n- roll_die(sides=20)\n+ roll_die(sides=6)\n"
        "# tool calls: - baseline, + this run\n- roll_die(sides=12)\n+ roll_die(sides=6)\n```"
    ) in text


def test_the_worst_of_the_repeats_is_shown(build: Any) -> None:
    turns = [(build.turn(build.call("f", n=n)),) for n in range(3)]
    attempts = tuple(build.attempt(score, repeat=n, turns=turns[n]) for n, score in enumerate((1.0, 0.2, 0.5)))
    build.case("a", ChangeKind.FAILING, 0.5, blocking=True, attempt=attempts, expected=turns[0])
    text = render(build.report(Verdict.FAIL))
    assert "Repeat 2 of 3:\n\n```diff" in text
    assert "+ f(n=1)" in text


def test_an_error_shows_the_end_of_its_traceback(build: Any) -> None:
    error = AttemptError(
        kind=ErrorKind.DIED, message="killed by signal 9", traceback="\n".join(f"l{n}" for n in range(50))
    )
    build.case("a", ChangeKind.ERROR, None, errors=1, attempt=build.attempt(None, error=error))
    text = render(build.report(Verdict.INCONCLUSIVE))
    assert "```text\ndied: killed by signal 9\nl38\n" in text
    assert "\nl49\n```" in text


def test_a_removed_case_shows_what_it_had(build: Any) -> None:
    build.case("a").pair("gone", ChangeKind.REMOVED, baseline=build.stat(0.5))
    before = BaselineTrajectory(agent="dice", eval_set="basics", case="gone", turns=(build.turn(build.call("f", x=1)),))
    text = render(build.report(baseline_trajectories=(before,)))
    assert f"- scores in the baseline: <code>{build.criterion}</code> 0.500" in text
    assert "```text\nturn 1: f(x=1)\n```" in text


def test_findings_about_the_run_and_notes_are_told_once(build: Any) -> None:
    findings = (
        text_finding("blocks", "because"),
        text_finding("inconclusive", "max_time was reached"),
        text_finding("advisory", "of a case", case="a"),
    )
    text = render(build.case("a").report(Verdict.FAIL, findings=findings, notes=("the agent's model changed",)))
    assert text.count("because") == 1
    assert "- ⚠️ max_time was reached\n- the agent's model changed\n" in text
    assert "of a case" not in text


def test_how_to_repeat_and_how_to_go_on(golden_result: Golden) -> None:
    text = render(ReportInput(golden_result("regressed"), reproduce="docker run IMAGE run"))
    assert "```sh\ndocker run IMAGE run\n```" in text
    assert "accept all 3 cases that got worse" in text
    assert "Begin a baseline:" in render(ReportInput(golden_result("collecting")))


def test_several_agents_are_told_apart(golden_result: Golden) -> None:
    assert "<code>look_up</code> <sub>search / web.v2</sub>" in render(ReportInput(golden_result("several_agents")))
    assert "<sub>dice / basics</sub>" not in render(ReportInput(golden_result("regressed")))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(budget=st.integers(40, 9_000), name=st.sampled_from(["regressed", "hostile", "passed"]))
def test_every_budget_is_kept_and_the_marker_with_it(golden_result: Golden, budget: int, name: str) -> None:
    text = render(ReportInput(golden_result(name), reproduce="docker run"), budget)
    assert len(text.encode()) <= budget
    assert text.startswith(f"{MARKER}\n")
    lines = text.splitlines()
    assert sum(line.startswith("<details") for line in lines) == lines.count("</details>")
    assert text.count("\n```") % 2 == 0


def test_what_is_given_up_first(golden_result: Golden) -> None:
    report = ReportInput(golden_result("regressed"), reproduce="docker run")
    marks = {
        "all cases": "<summary>All 7 cases</summary>",
        "better": "1 case better",
        "removed": "🗑️ 1 case removed",
        "regression": "<details open>",
        "commands": "docker run",
        "table": "| Criterion |",
        "metrics": "7 cases · ",
        "reason": "2 of 7 cases got worse",
        "verdict": "**Blocked",
        "marker": MARKER,
    }
    by_budget = {budget: render(report, budget) for budget in range(20, 9_500, 20)}
    needs = {name: min(budget for budget, text in by_budget.items() if mark in text) for name, mark in marks.items()}
    assert sorted(needs.values(), reverse=True) == list(needs.values())


def test_what_was_left_out_is_counted(large_result: Callable[[int], RunResult]) -> None:
    text = render(ReportInput(large_result(5_000)))
    assert BUDGET - 8_000 < len(text.encode()) <= BUDGET
    shown = len(re.findall(r"<summary>❌", text))
    left = re.search(r"Not shown here for length: ([\d,]+) regressed, 714 not measured, 714 new", text)
    assert left is not None
    assert shown + int(left[1].replace(",", "")) == 2_144


def test_the_same_result_gives_the_same_text(golden_result: Golden) -> None:
    report = ReportInput(golden_result("regressed"))
    assert render(report) == render(report)


def test_nothing_measured_is_said(build: Any) -> None:
    text = render(build.report(Verdict.INCONCLUSIVE, criteria=(), criteria_infos=()))
    assert "No criterion was measured." in text
    assert "0 cases · no errors" in text
