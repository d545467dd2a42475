"""The comment: what is read first, what is given up first, and that it always fits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_eval_action.baseline.records import from_result
from agent_eval_action.config.models import Policy
from agent_eval_action.gate import compare, decide
from agent_eval_action.reports import MARKER, REPORTS, ReportInput
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
from support.records import stored
from support.results import case, run, simple

Golden = Callable[[str], RunResult]


def render(report: ReportInput, budget: int | None = None) -> str:
    return REPORTS["markdown"](report, budget)


@pytest.mark.parametrize(
    ("outcome", "heading"),
    [
        (Verdict.PASS, "## ✅ Passed: no case got worse"),
        (Verdict.FAIL, "## ❌ Blocked: because"),
        (Verdict.INCONCLUSIVE, "## ⚠️ Inconclusive: because"),
        (Verdict.COLLECTING, "## 🆕 Collecting: nothing to compare with yet"),
    ],
)
def test_the_verdict_comes_first(build: Any, outcome: Verdict, heading: str) -> None:
    report = build.case("a").report(outcome)
    assert render(report).startswith(f"{MARKER}\n\n{heading}\n")
    icon, _, words = heading.removeprefix("## ").partition(" ")
    named = render(ReportInput(report.result, title="linux, 3.12"))
    assert named.startswith(f"{MARKER}\n\n## {icon} linux, 3.12 · {words}\n")


def test_the_line_of_facts(build: Any) -> None:
    build.case("a", ChangeKind.NEWLY_FAILING, 0.0, baseline=build.stat(1.0), blocking=True)
    report = build.report(
        Verdict.FAIL,
        baseline=BaselineInfo(
            path=".agent-eval/baseline.json", commit="3f9c2ab7d01e", created_at="2026-05-05T10:30:00+00:00"
        ),
        run={
            "totals": Totals(
                cases=3, attempts=9, extra=2, seconds=75, usage=Usage(total_tokens=12_345, calls_without_usage=1)
            ),
            "conditions": Conditions(tool_version="1", repeats=3),
        },
    )
    line = next(line for line in render(report).splitlines() if "re-runs" in line)
    assert line == (
        "<summary>3 cases · 9 attempts: 7 + 2 re-runs · at least 12,345 tokens · 1 min 15 s"
        " · compared with main at <code>3f9c2ab</code>, 2 days old</summary>"
    )


def test_a_pass_says_how_many_cases_pass_and_which_got_better(golden_result: Golden) -> None:
    lines = [line for line in render(ReportInput(golden_result("passed"))).splitlines() if line]
    assert lines[2] == "6 of 6 cases pass, as on main. <code>small_talk</code> got better."
    assert lines[3] == "<details>", "a pass is three lines: the rest is folded"


@pytest.mark.parametrize(
    ("edited", "heading", "sentence"),
    [
        ((), "no case got worse", "2 of 2 cases pass, as on main."),
        (("a",), "no case got worse", "2 of 2 cases pass; 1 of them is compared with main."),
        (("a", "b"), "no case can be compared with main", "2 of 2 cases pass; none of them is compared with main."),
    ],
)
def test_a_pass_claims_nothing_of_main_about_cases_whose_scores_there_do_not_count(
    edited: tuple[str, ...], heading: str, sentence: str
) -> None:
    before = [simple(name, 1.0) for name in ("a", "b")]
    now = run(*(one.model_copy(update={"digest": "new"}) if one.case in edited else one for one in before))
    main = stored(from_result(run(*before)))
    decided = now.model_copy(update={"decision": decide(compare(main, now), now, Policy())})
    lines = [line for line in render(ReportInput(decided)).splitlines() if line]
    assert lines[1:3] == [f"## ✅ Passed: {heading}", sentence]


def test_a_pass_with_cases_that_got_worse_says_so(build: Any) -> None:
    build.case("slipped", ChangeKind.WORSE, 0.9, threshold=0.5, baseline=build.stat(1.0), change=-0.1)
    build.case("chance", ChangeKind.WORSE, 0.9, threshold=0.5, change=-0.1, interval=(-0.3, 0.1))
    text = render(build.report())
    assert "## ✅ Passed: 1 case got worse, within what is allowed" in text
    assert "🔻 1 worse, not blocking: <code>slipped</code> 1.00 → 0.90" in text


def test_what_the_end_of_a_run_cut_off_is_not_measured() -> None:
    stopped = AttemptError(kind=ErrorKind.STOPPED, message="the run ended before this attempt was made")
    cut = [case(name, AttemptSummary(repeat=0, error=stopped)) for name in ("b", "c")]
    result = run(simple("a", 1.0), *cut).model_copy(update={"status": RunStatus.INTERRUPTED})
    decision = decide(compare(stored(None), result), result, Policy())
    text = render(ReportInput(result.model_copy(update={"decision": decision})))
    assert "## ⚠️ Inconclusive: 2 of 3 cases could not be measured" in text
    assert "**What to do:** Run the job again with more <code>max_time</code>." in text


def test_the_criteria_that_fell_are_the_first_rows(build: Any) -> None:
    rows = (
        CriterionChange(
            criterion="a_fine", threshold=0.8, current=0.9, baseline=0.9, paired=0.9, change=0.0, pairs=4, compared=4
        ),
        CriterionChange(
            criterion="z_fell", threshold=0.8, baseline=0.9, paired=0.5, change=-0.4, pairs=4, compared=4, failing=2,
            status="fail",
        ),
        CriterionChange(
            criterion="token_usage_v1", goal="minimize", unit="tokens", baseline=1000, paired=1500.4, change=500.4,
            pairs=4, compared=3, max_rise=0.1, status="fail",
        ),
    )  # fmt: skip
    table = [
        line for line in render(build.case("a").report(Verdict.FAIL, criteria=rows)).splitlines() if line[:2] == "| "
    ]
    assert table == [
        "| | Change | Criterion | main → here | Cases |",
        "| :-: | --: | :-- | :-: | :-- |",
        ("| ❌ | **+500** | <code>token_<wbr>usage_<wbr>v1</code> ↓ | 1,000&nbsp;→&nbsp;**1,500** | 3 of 4 compared |"),
        "| ❌ | **\u22120.40** | <code>z_<wbr>fell</code> | 0.90&nbsp;→&nbsp;**0.50** | 2 below threshold |",
        "| ✅ | 0.00 | <code>a_<wbr>fine</code> | 0.90&nbsp;→&nbsp;0.90 |  |",
    ]


def test_cases_come_worst_first_and_each_has_its_place(build: Any) -> None:
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
    build.case("flaky", ChangeKind.FLAKY, 0.9, threshold=0.5, baseline=one, change=-0.1)
    build.case("broken", ChangeKind.ON_MAIN, 0.4, threshold=0.5, baseline=one, change=-0.6)
    build.pair("gone", ChangeKind.REMOVED, baseline=one)
    text = render(build.report(Verdict.FAIL))
    shown = [re.sub(r"<.*?>", "", line) for line in re.findall(r"<summary>.*</summary>|(?m:^- .*$)", text)]
    assert shown == [
        "fell deep 1.00 → 0.10",
        "1 more with the same cause: fell a little",
        "⚠️ Not measured: broke",
        "🔸 still 0.20 → 0.20 · below threshold",
        "11 cases · 11 attempts · 0.0 s · no baseline",
        "- 🔻 1 worse, not blocking: slipped 1.00 → 0.90",
        "- 🎲 1 flaky: flaky 1.00 → 0.90",
        "- 🔇 1 already broken on main: broken 1.00 → 0.40",
        "- 🆕 1 new: new",
        "- ✏️ 1 changed definition: edited",
        "- 🗑️ 1 removed: gone",
        "- 🟢 1 better: better 0.50 → 1.00",
    ]
    assert text.count("<details open>") == 1
    assert "## ❌ Blocked: 2 of 11 cases got worse, 1 could not be measured" in text


def test_a_criterion_new_for_a_known_case_makes_no_new_case(build: Any) -> None:
    build.case("a", baseline=build.stat(1.0)).pair("a", ChangeKind.NEW, criterion="added", current=build.stat(1.0))
    assert "1 new" not in render(build.report())


def test_what_fell_under_a_criterion_that_blocks_by_its_mean_has_a_section(build: Any) -> None:
    build.case("a", ChangeKind.WORSE, 0.9, threshold=0.5, baseline=build.stat(1.0), change=-0.1)
    row = CriterionChange(criterion=build.criterion, status="fail")
    assert "<summary>🔻 <b><code>a</code></b> 1.00 → 0.90</summary>" in render(
        build.report(Verdict.FAIL, criteria=(row,))
    )
    assert "🔻 1 worse, not blocking" in render(build.report(Verdict.PASS))


def test_a_regression_shows_the_calls_of_all_three_sides(build: Any) -> None:
    want, then, now = (build.call("roll_die", sides=n) for n in (20, 12, 6))
    build.case(
        "a", ChangeKind.NEWLY_FAILING, 0.0, blocking=True, baseline=build.stat(1.0), reason="it is bad",
        expected=(build.turn(want, user="Roll!"),), attempt=build.attempt(0.0, turns=(build.turn(now),)),
    )  # fmt: skip
    before = BaselineTrajectory(agent="dice", eval_set="basics", case="a", turns=(build.turn(then),))
    text = render(build.report(Verdict.FAIL, baseline_trajectories=(before,)))
    assert "**Why:** The agent calls <code>roll_die</code> with another <code>sides</code> (<code>a</code>)." in text
    assert (
        "```diff\n@@ turn 1 · Roll! @@\n"
        "# tool calls: - expected, + this run\n- roll_die(sides=20)\n+ roll_die(sides=6)\n"
        "# tool calls: - baseline, + this run\n- roll_die(sides=12)\n+ roll_die(sides=6)\n```"
    ) in text


def test_the_worst_of_the_repeats_is_shown(build: Any) -> None:
    turns = [(build.turn(build.call("f", n=n)),) for n in range(3)]
    attempts = tuple(build.attempt(score, repeat=n, turns=turns[n]) for n, score in enumerate((1.0, 0.2, 0.5)))
    build.case("a", ChangeKind.FAILING, 0.5, blocking=True, attempt=attempts, expected=turns[0])
    assert "- f(n=0)\n+ f(n=1)\n```" in render(build.report(Verdict.FAIL))


def test_an_error_shows_the_end_of_its_traceback(build: Any) -> None:
    error = AttemptError(
        kind=ErrorKind.DIED, message="killed by signal 9", traceback="\n".join(f"l{n}" for n in range(50))
    )
    build.case("a", ChangeKind.ERROR, None, errors=1, attempt=build.attempt(None, error=error))
    text = render(build.report(Verdict.INCONCLUSIVE))
    assert "```text\ndied: killed by signal 9\nl38\n" in text
    assert "\nl49\n```" in text


def test_findings_about_the_run_and_notes_are_shown_once(build: Any) -> None:
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
    assert "accept everything that got worse" in text
    only = "agents/dice/basics.test.json:roll_then_prime,roll_two_dice,refuse_nonsense,ask_for_sides"
    assert f"Run these 4 cases:\n\n```sh\nagent-eval run {only}\n```" in text
    assert "Begin a baseline:" in render(ReportInput(golden_result("collecting")))


def test_several_agents_have_one_heading_and_a_row_each(golden_result: Golden) -> None:
    text = render(ReportInput(golden_result("several_agents")))
    assert "## ❌ Blocked: 1 of 2 agents misses its threshold" in text
    assert "| **search** | 1 of 1 case below a threshold: <code>look_up</code> |" in text
    assert "| ✅ | 1 other | 2 of 2 cases pass |" in text
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
        "facts": "docker run",
        "accept": "Is this change intended?",
        "last section": "<b><code>ask_for_sides</code></b>",
        "first section": "<details open>",
        "command": "agent-eval run",
        "table": "| Criterion |",
        "why": "**Why:**",
        "heading": "2 of 7 cases got worse",
        "marker": MARKER,
    }
    by_budget = {budget: render(report, budget) for budget in range(20, 9_500, 20)}
    needs = {name: min(budget for budget, text in by_budget.items() if mark in text) for name, mark in marks.items()}
    assert sorted(needs.values(), reverse=True) == list(needs.values())


def test_five_thousand_cases_make_a_short_comment_that_counts_all(large_result: Callable[[int], RunResult]) -> None:
    text = render(ReportInput(large_result(5_000)))
    assert len(text.encode()) < 20_000
    assert "## ❌ Blocked: 1,430 of 5,000 cases got worse, 714 could not be measured" in text
    assert "714 more with the same cause" in text
    assert "694 more cases, all of them are in the step's summary and in report.html" in text


def test_the_same_result_gives_the_same_text(golden_result: Golden) -> None:
    report = ReportInput(golden_result("regressed"))
    assert render(report) == render(report)


def test_nothing_measured_is_reported(build: Any) -> None:
    text = render(build.report(Verdict.INCONCLUSIVE, criteria=(), criteria_infos=()))
    assert "No criterion was measured." in text
    assert "0 cases · 0 attempts" in text
