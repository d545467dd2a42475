"""What a change does to the gate itself: found, said, never unnoticed; what is only stricter is not."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_eval_action.baseline.records import from_result
from agent_eval_action.config.models import CriterionPolicy, Policy
from agent_eval_action.gate import compare, decide
from agent_eval_action.gate_changes.diff import apply_weakenings, weakenings
from agent_eval_action.gate_changes.snapshot import CaseSnapshot, SetSnapshot, Snapshot, TurnSnapshot, sets_of_result
from agent_eval_action.results.base import CaseKey
from agent_eval_action.results.decision import CallBrief, Verdict
from agent_eval_action.results.findings import FindingCode as C
from agent_eval_action.results.history import Accepted
from agent_eval_action.results.run_result import CriterionInfo
from support.messages import sentence, states
from support.records import stored
from support.results import attempt, case, eval_set, info, run_of

ROLL = CallBrief(name="roll_die", args={"sides": 6})
CHECK = CallBrief(name="check_prime", args={"nums": [2]})
SAID = "the die shows six and that is not a prime number"


def turn(*calls: CallBrief, asked: str = "roll", response: str = SAID, rubrics: tuple[str, ...] = ()) -> TurnSnapshot:
    return TurnSnapshot(asked, calls, response, frozenset(rubrics))


def measured(name: str, *turns: TurnSnapshot, agent: str = "bot", eval_set: str = "evals/dice") -> CaseSnapshot:
    """A case whose digest is of what it says, its name apart, as in eval files."""
    return CaseSnapshot(CaseKey(agent, eval_set, name), str((turns, "")), turns)


def trajectory(match_type: str = "EXACT", threshold: float | None = 1.0, **options: object) -> CriterionInfo:
    return info("tool_trajectory_avg_score", threshold, options={"match_type": match_type, **options})


def yard(*cases: CaseSnapshot, criteria: tuple[CriterionInfo, ...] = (), **fields: object) -> Snapshot:
    own = criteria or (trajectory(),)
    sets = SetSnapshot("bot", "evals/dice", "evals/dice.evalset.json", own, cases)
    return Snapshot((sets,), **{"policy": Policy(), **fields})  # type: ignore[arg-type]  # few words for tests


def said(base: Snapshot, head: Snapshot) -> list[str]:
    return [sentence(one) for one in weakenings(base, head)]


ONE, TWO = measured("one", turn(ROLL, asked="1")), measured("two", turn(CHECK, asked="2"))
THREE = measured("three", turn(asked="3"))


def test_nothing_changed_is_nothing_said():
    assert said(yard(ONE, TWO), yard(TWO, ONE)) == []


def test_a_removed_case_is_named_with_its_file():
    found = weakenings(yard(ONE, TWO), yard(TWO))
    assert [(one.code, one.data["path"]) for one in found] == [(C.CASE_REMOVED, "evals/dice.evalset.json")]
    assert (found[0].subject.agent, found[0].subject.eval_set, found[0].subject.case) == ("bot", "evals/dice", "one")


def test_many_removed_cases_are_one_sentence_with_their_number():
    cases = [measured(f"c{n:02}", turn(asked=str(n))) for n in range(30)]
    (found,) = weakenings(yard(ONE, *cases), yard(ONE))
    assert states(found, C.CASES_REMOVED, path="evals/dice.evalset.json", cases=30)
    assert [one["case"] for one in found.data["named"]] == [f"c{n:02}" for n in range(20)]


def test_a_file_that_is_no_longer_matched_is_one_sentence():
    gone = SetSnapshot("bot", "evals/old", "evals/old.evalset.json", (trajectory(),), (measured("x", turn(asked="x")),))
    base = yard(ONE)
    (found,) = weakenings(replace(base, sets=(*base.sets, gone)), base)
    assert states(found, C.SET_REMOVED, path="evals/old.evalset.json", cases=1)
    assert [one["case"] for one in found.data["named"]] == ["x"]


def test_a_renamed_or_moved_case_is_the_same_case():
    moved = CaseSnapshot(CaseKey("bot", "evals/new", "uno"), ONE.digest, ONE.turns)
    new = SetSnapshot("bot", "evals/new", "evals/new.evalset.json", (trajectory(),), (moved,))
    head = yard(TWO)
    assert said(yard(ONE, TWO), replace(head, sets=(*head.sets, new))) == []


def test_a_case_moved_to_where_less_is_asked_is_seen():
    moved = CaseSnapshot(CaseKey("bot", "evals/new", "one"), ONE.digest, ONE.turns)
    new = SetSnapshot("bot", "evals/new", "new.json", (trajectory(threshold=0.2),), (moved,))
    head = yard(TWO)
    (found,) = said(yard(ONE, TWO), replace(head, sets=(*head.sets, new)))
    assert "threshold lowered 1.00 → 0.20" in found


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (turn(ROLL, CHECK), turn(CHECK), 'expects less: turn 1 no longer expects `roll_die({"sides": 6})`'),
        (turn(ROLL), turn(ROLL, response=""), "turn 1 has no reference answer any more"),
        (turn(ROLL), turn(ROLL, response="six"), "the reference answer of turn 1 was cut from 11 words to 1"),
        (turn(rubrics=("polite", "short")), turn(rubrics=("short",)), "turn 1 lost 1 rubric (`polite`)"),
        (turn(ROLL), turn(ROLL, asked="something easier"), "was edited"),
        (turn(ROLL), turn(ROLL, response=SAID.replace("six", "two")), "the reference answer of turn 1 changed"),
        (turn(ROLL, CHECK), turn(CHECK, ROLL), "its calls in another order"),
        (
            turn(ROLL),
            turn(CallBrief(name="roll_die", args={"sides": 20})),
            'expects `roll_die({"sides": 20})` instead of `roll_die({"sides": 6})`',
        ),
    ],
)
def test_an_edit_that_is_not_only_stricter_is_reported(before, after, words):
    (found,) = said(yard(measured("one", before)), yard(measured("one", after)))
    assert found.startswith("case `one` in `evals/dice.evalset.json` ")
    assert words in found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (turn(ROLL), turn(ROLL, CHECK)),
        (turn(ROLL, response=""), turn(ROLL)),
        (turn(ROLL), turn(ROLL, response=SAID + ", sorry")),
        (turn(), turn(rubrics=("polite",))),
    ],
)
def test_an_edit_that_is_only_stricter_is_no_weakening(before, after):
    loose = (trajectory("ANY_ORDER"),)
    assert said(yard(measured("one", before), criteria=loose), yard(measured("one", after), criteria=loose)) == []


def test_where_calls_match_exactly_one_more_is_another_expectation():
    (found,) = said(yard(measured("one", turn(ROLL))), yard(measured("one", turn(ROLL, CHECK))))
    assert "was edited" in found


def test_a_turn_less_is_less_and_a_turn_more_is_not():
    both, single = measured("one", turn(ROLL), turn(CHECK)), measured("one", turn(ROLL))
    assert "turns 2 → 1" in said(yard(both), yard(single))[0]
    assert said(yard(single), yard(both)) == []


def test_an_edit_without_details_is_reported_too():
    before, after = (CaseSnapshot(CaseKey("bot", "evals/dice", "one"), digest) for digest in ("a", "b"))
    assert "its definition changed" in said(yard(before), yard(after))[0]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (trajectory(threshold=1.0), trajectory(threshold=0.9), "threshold lowered 1.00 → 0.90"),
        (trajectory(threshold=1.0), trajectory(threshold=None), "threshold 1 → none"),
        (trajectory(), trajectory("IN_ORDER"), "match_type EXACT → IN_ORDER"),
        (trajectory("IN_ORDER"), trajectory("ANY_ORDER"), "match_type IN_ORDER → ANY_ORDER"),
        (trajectory(ignore_args=False), trajectory(ignore_args=True), "ignore_args off → on"),
        (
            info("tokens", 100.0, goal="minimize"),
            info("tokens", 200.0, goal="minimize"),
            "threshold raised 100 → 200",
        ),
        (
            info("rubrics", options={"rubrics": [{"rubric_content": {"text_property": "polite"}}]}),
            info("rubrics", options={"rubrics": []}),
            "1 rubric removed (`polite`)",
        ),
    ],
)
def test_a_criterion_that_asks_less_is_reported_and_one_that_asks_more_is_not(before, after, words):
    (found,) = said(yard(ONE, criteria=(before,)), yard(ONE, criteria=(after,)))
    assert words in found
    assert "evals/test_config.json" in found
    assert said(yard(ONE, criteria=(after,)), yard(ONE, criteria=(before,))) == []


def elsewhere(eval_set: str, *cases: CaseSnapshot, criteria: tuple[CriterionInfo, ...] = ()) -> SetSnapshot:
    moved = tuple(replace(case, key=case.key._replace(eval_set=eval_set)) for case in cases)
    return SetSnapshot("bot", eval_set, f"{eval_set}.evalset.json", criteria or (trajectory(),), moved)


def test_a_case_moved_to_a_set_of_a_weaker_mode_is_reported_and_counts_as_such_already():
    policy = Policy(sets={"evals/new": "advisory"})
    base = replace(yard(ONE, TWO, policy=policy), sets=(*yard(ONE, TWO).sets, elsewhere("evals/new", THREE)))
    head = replace(base, sets=(*yard(TWO).sets, elsewhere("evals/new", ONE, THREE)))
    (found,) = weakenings(base, head, with_merge=True)
    expected = {"rule": "gate.mode", "old": "blocking", "new": "advisory", "eval_set": "evals/new", "cases": 1}
    assert states(found, C.RULE_LOOSENED, **expected, with_merge=False)
    assert [case["case"] for case in found.data["named"]] == ["one"]
    assert weakenings(head, base) == ()


def test_an_advisory_set_that_is_renamed_with_its_mode_is_no_weakening():
    base = replace(yard(policy=Policy(sets={"old": "advisory"})), sets=(elsewhere("old", ONE),))
    head = replace(yard(policy=Policy(sets={"new": "advisory"})), sets=(elsewhere("new", ONE),))
    assert weakenings(base, head) == ()
    (found,) = weakenings(replace(base, policy=Policy()), head, with_merge=True)
    assert states(found, C.RULE_LOOSENED, eval_set="new", with_merge=True)


def test_a_case_moved_to_where_the_base_asks_less_is_asked_less_already():
    lax = elsewhere("evals/new", THREE, criteria=(trajectory(threshold=0.2),))
    base = replace(yard(ONE, TWO), sets=(*yard(ONE, TWO).sets, lax))
    more = replace(lax, cases=(*lax.cases, *elsewhere("evals/new", ONE).cases))
    head = replace(base, sets=(*yard(TWO).sets, more))
    (found,) = weakenings(base, head, with_merge=True)
    assert states(found, C.CRITERION_LOOSENED, option="threshold", with_merge=False)


def test_a_dropped_criterion_is_said_unless_it_was_off():
    both, one = (trajectory(), info("other")), (trajectory(),)
    (found,) = weakenings(yard(ONE, criteria=both), yard(ONE, criteria=one))
    assert states(found, C.CRITERION_REMOVED, path="evals/dice.evalset.json", source="evals/test_config.json:3")
    assert found.subject.criterion == "other"
    off = Policy(criteria={"other": CriterionPolicy(mode="off")})
    assert said(yard(ONE, criteria=both, policy=off), yard(ONE, criteria=one, policy=off)) == []


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (Policy(max_drop=0.02), Policy(max_drop=0.2), "max_drop 0.02 → 0.2 for `tool_trajectory_avg_score`"),
        (Policy(max_drop=0.02), Policy(max_drop=None), "max_drop 0.02 → no limit"),
        (Policy(threshold_on="case"), Policy(threshold_on="regression"), "threshold_on case → regression"),
        (Policy(threshold_on="regression"), Policy(threshold_on="off"), "threshold_on regression → off"),
        (Policy(confidence=0.99), Policy(confidence=0.999), "confidence 0.99 → 0.999"),
        (Policy(min_effect=0.1), Policy(min_effect=0.5), "min_effect 0.1 → 0.5"),
        (Policy(on_weakened="fail"), Policy(on_weakened="warn"), "on_weakened fail → warn"),
        (Policy(), Policy(sets={"evals/dice": "off"}), "mode blocking → off for the eval set `evals/dice`"),
        (
            Policy(),
            Policy(criteria={"tool_trajectory_avg_score": CriterionPolicy(mode="advisory")}),
            "mode blocking → advisory for `tool_trajectory_avg_score`",
        ),
    ],
)
def test_a_weaker_rule_is_reported_with_its_file_and_a_stricter_one_is_not(before, after, words):
    (found,) = said(yard(ONE, policy=before), yard(ONE, policy=after))
    assert words in found
    assert found.endswith("(agent-eval.yaml)")
    assert said(yard(ONE, policy=after), yard(ONE, policy=before)) == []


def test_fewer_repeats_a_milder_fail_on_and_an_acceptance_are_reported():
    entry = Accepted(id="1", case="one", criterion="tool_trajectory_avg_score", reason="shorter answers wanted")
    head = yard(ONE, repeats=1, fail_on="fail", accepted=(entry,))
    repeats, milder, accepts = weakenings(yard(ONE, repeats=5), head)
    assert states(repeats, C.RULE_LOOSENED, old="5", new="1", file="agent-eval.yaml")
    assert states(milder, C.RULE_LOOSENED, rule="gate.fail_on", old="inconclusive", new="fail")
    assert states(accepts, C.ACCEPTANCE_ADDED, text="shorter answers wanted")
    assert (accepts.subject.case, accepts.subject.criterion) == ("one", "tool_trajectory_avg_score")
    assert said(head, head) == []


def test_what_takes_the_most_away_comes_first():
    head = yard(measured("two", turn(asked="2")), criteria=(trajectory(threshold=0.5),), repeats=1)
    order = ["removed", "threshold", "repeats", "expects less"]
    found = said(yard(ONE, TWO, repeats=3), head)
    assert [next(word for word in order if word in text) for text in found] == order


def test_names_are_cut_and_kept_on_one_line():
    wild = measured("x\n" + "y" * 5_000, turn(ROLL))
    (found,) = said(yard(ONE, wild), yard(ONE))
    assert "\n" not in found
    assert len(found) <= 700


# ── the decision ──────────────────────────────────────────────────────────────────────────────────────────────────


def judged(result, base, on_weakened="warn"):
    policy = Policy(on_weakened=on_weakened, threshold_on="case")
    decision = decide(compare(stored(from_result(base)), result), result, policy)
    found = weakenings(Snapshot(sets_of_result(base)), Snapshot(sets_of_result(result)))
    return apply_weakenings(decision, found, on_weakened)


def good_or_bad(name: str, good: bool, repeats: int = 3):
    return case(name, *(attempt({"quality": float(good)}, repeat=n) for n in range(repeats)))


def suite(*cases):
    return run_of(eval_set(*cases))


def test_on_weakened_fail_blocks_and_says_why():
    base = suite(good_or_bad("a", True), good_or_bad("b", True))
    decision = judged(suite(good_or_bad("a", True)), base, "fail")
    assert decision.outcome is Verdict.FAIL
    assert [finding.code for finding in decision.reasons] == [C.GATE_WEAKENED, C.CASE_REMOVED]
    assert decision.findings[0].severity == "blocks"
    assert judged(suite(good_or_bad("a", True)), base, "warn").outcome is Verdict.PASS


def test_a_failure_keeps_its_own_reason():
    base = suite(*(good_or_bad(name, True) for name in "abc"))
    worse = suite(good_or_bad("a", False), good_or_bad("b", True))
    assert C.GATE_WEAKENED not in {finding.code for finding in judged(worse, base, "fail").reasons}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_removed_failing_case_never_turns_fail_into_pass_unnoticed(data):
    """Whatever is removed: a verdict that was a failure and is none any more names every case that is gone."""
    names = [f"case_{n}" for n in range(data.draw(st.integers(1, 6)))]
    bad = data.draw(st.sets(st.sampled_from(names), min_size=1))
    base = suite(*(good_or_bad(name, True) for name in names))
    head = suite(*(good_or_bad(name, name not in bad) for name in names))
    assert judged(head, base).outcome is Verdict.FAIL
    removed = data.draw(st.sets(st.sampled_from(sorted(bad)), min_size=1))
    left = suite(*(good_or_bad(name, name not in bad) for name in names if name not in removed))
    after = judged(left, base)
    if after.outcome is not Verdict.FAIL:
        reasons = json.dumps([sentence(one) for one in after.weakenings], ensure_ascii=False)
        assert after.weakenings
        assert all(f"`{name}`" in reasons for name in removed)
    assert judged(left, base, "fail").outcome is Verdict.FAIL


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b", "c", "d"]), unique=True, min_size=1),
    st.lists(st.sampled_from(["a", "b", "c", "d"]), unique=True),
)
def test_a_case_is_missed_exactly_when_it_is_gone(before, after):
    cases = {name: measured(name, turn(asked=name)) for name in "abcd"}
    found = weakenings(yard(*(cases[name] for name in before)), yard(*(cases[name] for name in after)))
    assert {one.subject.case for one in found} == set(before) - set(after)
