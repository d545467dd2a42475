"""What holds for every run: order does not matter, a worse score never helps, nothing disappears unnoticed."""

from __future__ import annotations

import itertools

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agent_eval_action.baseline.records import from_result
from agent_eval_action.config.models import CriterionPolicy, Policy
from agent_eval_action.gate import compare, decide
from agent_eval_action.results.decision import ChangeKind, Verdict
from support.messages import headline, notes, sentence
from support.records import stored
from support.results import attempt, broken, case, info, run

MANY = settings(max_examples=80, deadline=None)
WORST_FIRST = [Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.COLLECTING, Verdict.PASS]

HIGH = st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.5, 0.75, 0.8, 1.0]) | st.floats(0, 1)
LOW = st.floats(0, 1e6, allow_subnormal=False)
MEASURED = st.fixed_dictionaries({"quality": HIGH, "tokens": LOW})
NO_SCORE = st.sampled_from(["quality", "tokens"])
ATTEMPT = st.one_of(MEASURED, st.just("broken"))
SUITE = st.dictionaries(st.sampled_from("abcdef"), st.lists(MEASURED, min_size=1, max_size=4), min_size=1)
ROUGH = st.dictionaries(st.sampled_from("abcdef"), st.lists(ATTEMPT, min_size=1, max_size=4), min_size=1)
LIMIT = st.none() | st.floats(0, 1)
RULE = st.builds(
    CriterionPolicy,
    mode=st.sampled_from(["blocking", "blocking", "advisory", "off"]),
    threshold_on=st.sampled_from(["regression", "case", "suite", "off"]),
    max_drop=LIMIT,
    max_rise=LIMIT,
)
POLICY = st.builds(
    Policy,
    threshold_on=st.sampled_from(["regression", "case", "suite", "off"]),
    max_drop=LIMIT,
    max_rise=LIMIT,
    criteria=st.dictionaries(NO_SCORE, RULE),
)
CRITERIA = st.tuples(
    st.builds(info, name=st.just("quality"), threshold=HIGH, source=st.sampled_from(["default", "own.json:1"])),
    st.builds(info, name=st.just("tokens"), threshold=st.none() | LOW, goal=st.just("minimize")),
)


def made(suite, criteria):
    cases = [
        case(name, *(broken() if one == "broken" else attempt(one) for one in attempts))
        for name, attempts in suite.items()
    ]
    return run(*cases, criteria=criteria)


def verdict(before, suite, criteria, policy):
    result = made(suite, criteria)
    baseline = from_result(made(before, criteria)) if before else None
    return decide(compare(stored(baseline), result), result, policy)


def badness(decision):
    return WORST_FIRST.index(decision.outcome)


@MANY
@given(SUITE | st.none(), ROUGH, CRITERIA, POLICY, st.randoms(use_true_random=False))
def test_the_order_of_cases_and_repeats_does_not_matter(before, suite, criteria, policy, random):
    names = list(suite)
    random.shuffle(names)
    shuffled = {name: random.sample(suite[name], len(suite[name])) for name in names}
    assert verdict(before, shuffled, criteria, policy) == verdict(before, suite, criteria, policy)


@MANY
@given(SUITE | st.none(), ROUGH, CRITERIA, POLICY, st.data())
def test_a_worse_score_never_helps(before, suite, criteria, policy, data):
    scored = [(name, n) for name in suite for n, one in enumerate(suite[name]) if one != "broken"]
    assume(scored)
    name, n = data.draw(st.sampled_from(sorted(scored)))
    one = suite[name][n]
    if data.draw(st.booleans()):
        worse = one | {"quality": data.draw(st.floats(0, one["quality"]))}
    else:
        worse = one | {"tokens": one["tokens"] + data.draw(LOW)}
    spoilt = suite | {name: [*suite[name][:n], worse, *suite[name][n + 1 :]]}
    was, now = (verdict(before, one_suite, criteria, policy) for one_suite in (suite, spoilt))
    assert badness(now) <= badness(was), f"{was.outcome} became {now.outcome}"
    if was.outcome is Verdict.FAIL:
        blocked = {(pair.case, pair.criterion) for pair in was.pairs if pair.blocking}
        assert blocked <= {(pair.case, pair.criterion) for pair in now.pairs if pair.blocking}


@MANY
@given(SUITE, SUITE, CRITERIA, POLICY)
def test_a_removed_case_never_turns_fail_into_pass_unnoticed(before, suite, criteria, policy):
    was = verdict(before, suite, criteria, policy)
    for gone in suite.keys() & before.keys():
        rest = {name: attempts for name, attempts in suite.items() if name != gone}
        now = verdict(before, rest, criteria, policy)
        assert [pair for pair in now.pairs if pair.case == gone and pair.kind is ChangeKind.REMOVED]
        if (was.outcome, now.outcome) == (Verdict.FAIL, Verdict.PASS):
            note = next(note for note in notes(now) if "on main but not in this run" in note)
            assert f"`{gone}`" in note
            assert "of the baseline gone" in headline(now)


@MANY
@given(SUITE | st.none(), ROUGH, CRITERIA, POLICY)
def test_an_error_never_passes_where_a_criterion_decides_and_never_fails(before, suite, criteria, policy):
    decision = verdict(before, suite, criteria, policy)
    errored = {name for name, attempts in suite.items() if "broken" in attempts}
    rows = {row.criterion: row for row in decision.criteria}
    gating = [row for row in rows.values() if row.status in {"fail", "error", "pass"}]
    if errored and gating:
        assert decision.outcome in {Verdict.FAIL, Verdict.INCONCLUSIVE}
    for pair in decision.pairs:
        assert not (pair.blocking and pair.current is None)
    measured = {name: [one for one in attempts if one != "broken"] for name, attempts in suite.items()}
    clean = {name: attempts for name, attempts in measured.items() if attempts}
    if decision.outcome is Verdict.FAIL and clean:
        assert verdict(before, clean, criteria, policy).outcome is Verdict.FAIL


@MANY
@given(SUITE, CRITERIA, POLICY)
def test_the_run_that_made_the_baseline_has_changed_nothing(suite, criteria, policy):
    decision = verdict(suite, suite, criteria, policy)
    kinds = {pair.kind for pair in decision.pairs}
    assert kinds <= {ChangeKind.SAME, ChangeKind.STILL_FAILING}
    assert not [finding for finding in decision.findings if "fell" in sentence(finding) or "rose" in sentence(finding)]


@MANY
@given(SUITE | st.none(), ROUGH, CRITERIA, POLICY)
def test_the_verdict_follows_from_its_findings_and_a_blocking_pair_from_a_finding(before, suite, criteria, policy):
    decision = verdict(before, suite, criteria, policy)
    effects = {finding.severity for finding in decision.findings}
    assert (decision.outcome is Verdict.FAIL) == ("blocks" in effects)
    assert (decision.outcome is Verdict.INCONCLUSIVE) == ("inconclusive" in effects and "blocks" not in effects)
    blocking = {(pair.case, pair.criterion) for pair in decision.pairs if pair.blocking}
    assert blocking == {
        (f.subject.case, f.subject.criterion) for f in decision.findings if f.severity == "blocks" and f.subject.case
    }
    assert headline(decision)
    assert all(map(sentence, decision.findings))
    keys = [(*pair.key, pair.criterion) for pair in decision.pairs]
    assert keys == sorted(keys)
    for one, other in itertools.pairwise(decision.findings):
        assert ["blocks", "inconclusive", "advisory"].index(one.severity) <= (
            ["blocks", "inconclusive", "advisory"].index(other.severity)
        )
