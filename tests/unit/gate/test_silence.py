"""A model that answers nothing on either arm, where main's history has answers: inconclusive, and only then."""

from __future__ import annotations

import pytest

from agent_eval_action.baseline.records import from_result
from agent_eval_action.config.models import Policy
from agent_eval_action.gate import compare, decide
from agent_eval_action.results.decision import CallBrief, TurnBrief, Verdict
from agent_eval_action.results.run_result import AttemptSummary, Base, Durations, Totals, Usage
from support.messages import headline, sentence
from support.records import stored
from support.results import QUALITY, attempt, case, run, simple

EMPTY, ANSWER = TurnBrief(user="hi"), TurnBrief(user="hi", response="hello")
TOOL = TurnBrief(user="hi", calls=(CallBrief(name="roll", args={}),))
DUE = (TurnBrief(user="hi", response="hello"),)
ASKED = Usage(model_calls=1, input_tokens=9, output_tokens=0, total_tokens=9)


def said(*turns: TurnBrief, score: float = 0.0, usage: Usage = ASKED, seconds: float | None = None) -> AttemptSummary:
    made = attempt({QUALITY: score}, *turns)
    return made.model_copy(update={"usage": usage, "durations": Durations(model=seconds)})


def silences(here: list[AttemptSummary], there: list[AttemptSummary], expected: tuple[TurnBrief, ...] = DUE) -> int:
    """How many findings say that the model answers nothing; the verdict follows them."""
    again = [one.model_copy(update={"repeat": n, "purpose": "rerun"}) for n, one in enumerate(here)]
    again[0] = here[0]
    control = tuple(one.model_copy(update={"repeat": n}) for n, one in enumerate(there))
    asked = case("a", *again, expected=expected).model_copy(update={"control": control})
    rest = [simple(f"z{n:02}", 1.0) for n in range(12)]
    before = run(
        case("a", *(attempt({QUALITY: 1.0}, repeat=n) for n in range(14)), expected=expected),
        *(simple(f"z{n:02}", *[1.0] * 10) for n in range(12)),
    )
    result = run(asked, *rest).model_copy(
        update={"base": Base(commit="b"), "totals": Totals(extra=9, control=len(control))}
    )
    decision = decide(compare(stored(from_result(before)), result), result, Policy())
    found = [one for one in decision.findings if "the model answers nothing" in sentence(one)]
    assert bool(found) is (decision.outcome is Verdict.INCONCLUSIVE)
    return len(found)


ON_MAIN = [said(EMPTY)] * 10


def test_silence_of_both_arms_is_inconclusive() -> None:
    assert silences([said(EMPTY)] * 6, ON_MAIN) == 1


def test_wrong_answers_on_either_arm_are_none() -> None:
    assert silences([said(ANSWER)] * 6, ON_MAIN) == 0
    assert silences([said(EMPTY)] * 6, [said(ANSWER)] * 10) == 0


@pytest.mark.parametrize(("silent", "found"), [(3, 0), (4, 1)])
def test_most_attempts_must_be_silent(silent: int, found: int) -> None:
    here = [said(EMPTY)] * silent + [said(ANSWER)] * (6 - silent)
    assert silences(here, ON_MAIN) == found


def test_a_tool_call_is_an_answer_unless_a_text_is_due() -> None:
    assert silences([said(TOOL)] * 6, [said(TOOL)] * 10) == 1
    assert silences([said(TOOL)] * 6, [said(TOOL)] * 10, (TOOL,)) == 0


def test_an_agent_that_did_not_ask_its_model_is_not_the_models_silence() -> None:
    assert silences([said(EMPTY, usage=Usage())] * 6, [said(EMPTY, usage=Usage())] * 10) == 0
    assert silences([said(EMPTY, usage=Usage(), seconds=0.5)] * 6, ON_MAIN) == 1


def test_a_case_that_is_no_worse_than_in_its_history_is_not_asked_about() -> None:
    assert silences([said(EMPTY, score=1.0)] * 6, ON_MAIN) == 0


def test_where_the_whole_suite_is_silent_that_is_the_reason_and_not_that_main_fell() -> None:
    interleaved = said(EMPTY).model_copy(update={"repeat": 1, "purpose": "control"})
    cases = [
        case(f"c{n}", said(EMPTY), interleaved, expected=DUE).model_copy(update={"control": (said(EMPTY),)})
        for n in range(12)
    ]
    before = run(*(simple(f"c{n}", *[1.0] * 19, 0.0) for n in range(12)))
    result = run(*cases).model_copy(update={"base": Base(commit="b"), "totals": Totals(extra=12, control=12)})
    decision = decide(compare(stored(from_result(before)), result), result, Policy())
    assert decision.outcome is Verdict.INCONCLUSIVE
    assert "the model answers nothing" in headline(decision)
    assert "main's agent scores as low" not in headline(decision)
