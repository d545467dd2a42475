"""Every option of ``gate``: a run that comes out one way without it and another way with it."""

from __future__ import annotations

import pytest

from agent_eval_action.baseline.records import from_result
from agent_eval_action.config.models import CriterionPolicy, Policy
from agent_eval_action.config.options import OPTIONS
from agent_eval_action.gate import compare, decide
from agent_eval_action.gate_changes.diff import apply_weakenings
from agent_eval_action.results.decision import Decision, Verdict
from support.messages import headline, text_finding
from support.records import stored
from support.results import QUALITY, info, run, simple

REPEATS = 6
TOKENS = info("tokens", goal="minimize", threshold=None)
ELSEWHERE = {
    "gate.fail_on": "the exit code: integration/cli",
    "gate.accept": "what is read: integration/cli",
    "gate.agents_see_evals": "what the agent finds: unit/interpreter, e2e",
}
"""Options that are no rule of the verdict; test_commands and test_weakened_change hold them."""


def suite(score, *others, name=QUALITY):
    """Twelve cases of which the first scores so, each six times."""
    cases = [simple("a", *[score] * REPEATS, criterion=name)]
    rest = others or (1.0,)
    return cases + [simple(f"z{n:02}", *[rest[n % len(rest)]] * REPEATS, criterion=name) for n in range(11)]


def outcome(policy, now, before=None, criteria=()):
    result = run(*now, criteria=criteria, repeats=REPEATS)
    baseline = from_result(run(*before, criteria=criteria, repeats=REPEATS)) if before else None
    return decide(compare(stored(baseline), result), result, policy).outcome


def of_a_fork(withheld, measured=True):
    """A run of which one criterion lacked its credentials, because GitHub gave none."""
    judged = info("judged", unmeasured="not measured: no credentials on this pull request")
    criteria = (info(), judged) if measured else (judged,)
    result = run(simple("a", 1.0), criteria=criteria, withheld="GitHub gives no secrets to a pull request from a fork")
    return decide(compare(stored(from_result(run(simple("a", 1.0)))), result), result, Policy(withheld=withheld))


def one(name=QUALITY, **rule):
    return Policy(criteria={name: CriterionPolicy(**rule)})


BROKEN, FINE = suite(0.0), suite(1.0)
LOWER = [simple(f"c{n:02}", *[0.9] * REPEATS) for n in range(12)]
ALL = [simple(f"c{n:02}", *[1.0] * REPEATS) for n in range(12)]
MORE, TOKENS_BEFORE = suite(130.0, 130.0, name="tokens"), suite(100.0, 100.0, name="tokens")
FLAKY = simple("z", 1.0, 0.0, 1.0, 0.0, 1.0, 1.0)
NOISY = [FLAKY, simple("a", *[1.0] * 14), *ALL], [FLAKY, simple("a", *[0.0] * REPEATS), *ALL]
"""Not a stable suite, in which no level counts; Fisher's p of ``a`` is 1 in 38,760."""
LOOSE = (info(threshold=None),)
PASS, FAIL = Verdict.PASS, Verdict.FAIL

CASES = {
    "gate.threshold_on": [
        (Policy(threshold_on="regression"), BROKEN, BROKEN, (), PASS),
        (Policy(threshold_on="regression"), BROKEN, None, (), FAIL),
        (Policy(threshold_on="case"), BROKEN, BROKEN, (), FAIL),
        (Policy(threshold_on="suite"), BROKEN, None, (), PASS),
        (Policy(threshold_on="suite"), suite(0.0, 0.0), None, (), FAIL),
        (Policy(threshold_on="off", max_drop=None), suite(0.0, 0.0), suite(0.0, 0.0), (), PASS),
    ],
    "gate.max_drop": [
        (Policy(max_drop=0.05), LOWER, ALL, LOOSE, FAIL),
        (Policy(max_drop=0.15, min_effect=0.2), LOWER, ALL, LOOSE, PASS),
    ],
    "gate.max_rise": [
        (Policy(), MORE, TOKENS_BEFORE, (TOKENS,), PASS),
        (Policy(max_rise=0.1), MORE, TOKENS_BEFORE, (TOKENS,), FAIL),
        (Policy(max_rise=0.4), MORE, TOKENS_BEFORE, (TOKENS,), PASS),
        (Policy(max_rise=0.1), TOKENS_BEFORE, MORE, (TOKENS,), PASS),
    ],
    "gate.min_effect": [
        (Policy(min_effect=0.5), suite(0.4), FINE, LOOSE, FAIL),
        (Policy(min_effect=0.7, max_drop=0.5), suite(0.4), FINE, LOOSE, PASS),
    ],
    "gate.confidence": [
        (Policy(confidence=0.99, max_drop=0.5), NOISY[1], NOISY[0], LOOSE, FAIL),
        (Policy(confidence=0.9999, max_drop=0.5), NOISY[1], NOISY[0], LOOSE, PASS),
    ],
    "gate.criteria": [
        (one(mode="blocking"), BROKEN, FINE, (), FAIL),
        (one(mode="advisory"), BROKEN, FINE, (), None),
        (one(mode="off"), BROKEN, FINE, (), None),
        (one(threshold_on="case"), BROKEN, BROKEN, (), FAIL),
        (one(max_drop=0.05), LOWER, ALL, LOOSE, FAIL),
        (one("tokens", max_rise=0.1), MORE, TOKENS_BEFORE, (TOKENS,), FAIL),
        (one("tokens", mode="advisory", max_rise=0.1), MORE, TOKENS_BEFORE, (TOKENS,), None),
    ],
    "gate.new_cases": [
        (Policy(new_cases="advise"), [*FINE, simple("new", 0.0)], FINE, (), PASS),
        (Policy(new_cases="block"), [*FINE, simple("new", 0.0)], FINE, (), FAIL),
        (Policy(new_cases="block"), [*FINE, simple("new", 1.0)], FINE, (), PASS),
        (Policy(new_cases="block", threshold_on="off"), [*FINE, simple("new", 0.0)], FINE, (), PASS),
        (Policy(new_cases="block", sets={"set": "advisory"}), [*FINE, simple("new", 0.0)], FINE, (), None),
    ],
    "gate.sets": [
        (Policy(), BROKEN, FINE, (), FAIL),
        (Policy(sets={"set": "advisory"}), BROKEN, FINE, (), None),
        (Policy(sets={"another": "advisory"}), BROKEN, FINE, (), FAIL),
    ],
}  # fmt: skip
ROWS = [(key, *row) for key, rows in CASES.items() for row in rows]


@pytest.mark.parametrize("row", ROWS, ids=[f"{n} {row[0]}" for n, row in enumerate(ROWS)])
def test_an_option_does_what_its_sentence_says(row):
    _, policy, now, before, criteria, expected = row
    found = outcome(policy, now, before, criteria)
    assert found is not FAIL if expected is None else found is expected


@pytest.mark.parametrize(("rule", "expected"), [("warn", PASS), ("fail", FAIL)])
def test_a_weakened_gate_blocks_where_the_rule_says_so(rule, expected):
    lost = text_finding("advisory", "a case was removed")
    assert apply_weakenings(Decision(outcome=PASS, reasons=()), [lost], rule).outcome is expected


@pytest.mark.parametrize(
    ("rule", "measured", "expected", "excused"),
    [
        ("pass", True, PASS, False),
        ("neutral", True, Verdict.INCONCLUSIVE, True),
        ("fail", True, FAIL, False),
        ("pass", False, Verdict.INCONCLUSIVE, True),
        ("fail", False, FAIL, False),
    ],
)
def test_a_partly_measured_pull_request_is_what_the_rule_says(rule, measured, expected, excused):
    decision = of_a_fork(rule, measured)
    assert (decision.outcome, decision.excused) == (expected, excused)
    assert "not measured: no credentials on this pull request: `judged`" in headline(decision)


@pytest.mark.parametrize("rule", ["pass", "neutral", "fail"])
def test_where_github_gave_its_secrets_no_rule_about_withheld_ones_counts(rule):
    judged = info("judged", unmeasured="not measured: no credentials on this pull request")
    result = run(simple("a", 1.0), criteria=(info(), judged), lacking=("set GOOGLE_API_KEY",))
    decision = decide(compare(stored(from_result(run(simple("a", 1.0)))), result), result, Policy(withheld=rule))
    assert (decision.outcome, decision.excused) == (Verdict.INCONCLUSIVE, False)


def test_no_option_of_the_gate_is_left_out():
    assert {one.key for one in OPTIONS if (one.key or "").startswith("gate.")} == {
        *CASES,
        *ELSEWHERE,
        "gate.on_weakened",
        "gate.withheld",
    }
