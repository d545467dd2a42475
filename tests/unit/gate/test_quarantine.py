"""Quarantined pairs run and are shown, and decide nothing; overdue ones count again."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from agent_eval_action.baseline.accepted import parse
from agent_eval_action.baseline.history_session import regressed
from agent_eval_action.baseline.records import from_result, record_of
from agent_eval_action.config.models import CriterionPolicy, Policy
from agent_eval_action.gate import compare, decide
from agent_eval_action.gate.verdict import worse_pairs
from agent_eval_action.reports import REPORTS, ReportInput
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.decision import Verdict
from agent_eval_action.results.findings import FindingCode as C
from agent_eval_action.results.history import Quarantine
from agent_eval_action.results.run_result import ErrorKind
from support.messages import notes, states
from support.records import stored
from support.results import QUALITY, attempt, broken, case, eval_set, info, run, run_of, simple

POLICY = Policy(threshold_on="case")
NOW = dt.datetime(2026, 11, 20, 23, 59, 59, tzinfo=dt.UTC)
TODAY = "2026-11-20"


def quarantine(text="", until=TODAY, name="a"):
    (entry,) = parse(f"- case: {name}\n  reason: the sandbox is down\n  owner: jane\n  until: {until}\n{text}")
    assert isinstance(entry, Quarantine)
    return entry


def judged(result, *entries, before=None, policy=POLICY):
    overdue = tuple(entry for entry in entries if entry.is_overdue(NOW))
    history = stored(from_result(before) if before else None)
    history = replace(history, quarantines=tuple(set(entries) - set(overdue)), overdue=overdue)
    return decide(compare(history, result), result, policy)


def test_a_quarantined_case_below_its_threshold_does_not_block_and_is_said():
    result = run(simple("a", 0.0), simple("b", 1.0))
    assert judged(result).outcome is Verdict.FAIL
    decision = judged(result, quarantine())
    assert decision.outcome is Verdict.PASS
    assert decision.findings == ()
    assert states(decision.notes[0], C.QUARANTINED, owner="jane", until=TODAY, state="failing")
    assert [(pair.case, pair.quarantined) for pair in decision.pairs] == [("a", True), ("b", False)]


def test_from_the_day_after_its_last_one_it_blocks_again():
    result = run(simple("a", 0.0), simple("b", 1.0))
    decision = judged(result, quarantine(until="2026-11-19"))
    assert decision.outcome is Verdict.FAIL
    assert "the quarantine of `a` ran out on 2026-11-19 (owner jane), so it counts again" in notes(decision)[0]


def test_an_overdue_entry_of_no_case_of_this_run_is_not_said():
    assert notes(judged(run(simple("b", 1.0)), quarantine(until="2026-11-19"))) == notes(judged(run(simple("b", 1.0))))


def test_what_could_not_be_measured_leaves_nothing_open():
    result = run(case("a", broken()), simple("b", 1.0))
    assert judged(result).outcome is Verdict.INCONCLUSIVE
    decision = judged(result, quarantine())
    assert decision.outcome is Verdict.PASS
    assert states(decision.notes[0], C.QUARANTINED, state="unmeasured")


def test_only_the_criterion_it_names_is_set_aside():
    both = run(case("a", attempt({QUALITY: 0.0, "other": 0.0})), criteria=[info(), info("other")])
    decision = judged(both, quarantine("  criterion: other\n"))
    assert decision.outcome is Verdict.FAIL
    assert [(one.subject.case, one.subject.criterion) for one in decision.findings] == [("a", QUALITY)]
    held = quarantine("  agent: elsewhere\n")
    assert judged(run(simple("a", 0.0)), held).outcome is Verdict.FAIL


def test_it_is_in_no_mean():
    policy = Policy(criteria={QUALITY: CriterionPolicy(threshold_on="suite")})
    result = run(simple("a", 0.0), simple("b", 0.6))
    assert judged(result, policy=policy).outcome is Verdict.FAIL
    decision = judged(result, quarantine(), policy=policy)
    assert decision.outcome is Verdict.PASS
    assert [row.current for row in decision.criteria] == [0.6]


def test_a_suite_that_is_quarantined_as_a_whole_is_no_pass():
    decision = judged(run(simple("a", 1.0)), quarantine())
    assert decision.outcome is Verdict.INCONCLUSIVE
    assert [one.code for one in decision.findings] == [C.NOTHING_MEASURED]


def test_code_that_raises_in_a_quarantined_case_alone_does_not_block():
    errors = [broken(ErrorKind.EXCEPTION, "boom", repeat=n) for n in range(2)]
    raising = case("a", *errors).model_copy(update={"control": (attempt({QUALITY: 1.0}),)})
    result = run(raising, simple("b", 1.0))
    assert judged(result, quarantine()).outcome is Verdict.PASS


def test_a_case_worse_than_main_is_neither_accepted_nor_recorded():
    before, after = run(simple("a", *[1.0] * 9), simple("b", 1.0)), run(simple("a", *[0.0] * 9), simple("b", 1.0))
    decision = judged(after, quarantine(), before=before)
    assert decision.outcome is Verdict.PASS
    assert worse_pairs(decision) == ()
    record = record_of(after, regressed=regressed(decision))
    assert [kept.case for kept in record.cases if kept.criteria] == ["b"]
    assert CaseKey("bot", "set", "a") in {one.key for one in record.withheld}


def test_the_same_name_elsewhere_counts():
    result = run_of(eval_set(simple("a", 0.0), name="one"), eval_set(simple("a", 0.0), name="two"))
    decision = judged(result, quarantine("  eval_set: one\n"))
    assert [(pair.eval_set, pair.blocking) for pair in decision.pairs] == [("one", False), ("two", True)]


@pytest.mark.parametrize(
    "text", ["|", "<script>", "@everyone", "::set-output name=a::b", "\x1b[31m", "\u202e", "\ud800"]
)
def test_hostile_words_are_escaped_by_every_report(text):
    entry = quarantine().model_copy(update={"owner": text, "reason": text})
    result = run(simple("a", 0.0), simple("b", 1.0))
    decision = judged(result, entry)
    report = ReportInput(result.model_copy(update={"decision": decision}))
    for name, render in REPORTS.items():
        shown = render(report, None)
        assert not {"\x1b", "\u202e"} & set(shown), name
        shown.encode()
    comment = REPORTS["markdown"](report, None)
    assert "<script>" not in comment
    assert " @everyone" not in comment
