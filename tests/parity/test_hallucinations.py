"""hallucinations_v1: the same labels give google-adk's score; and each deliberate difference, beside ADK."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_eval_action.criteria.hallucinations import Hallucinations
from agent_eval_action.llm.client import LlmError, LlmRequest
from agent_eval_action.results.evalset import Invocation
from agent_eval_action.results.run_result import CriterionScore, ScoreStatus, SentenceKind
from support.fenced_texts import texts_in
from support.judging import AWAY, scored
from support.scripted_llm import ScriptedLlm

NAME = "hallucinations_v1"
KINDS = list(get_args(SentenceKind))
RANDOM = settings(
    max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)


@dataclass(frozen=True)
class Said:
    """A text of the agent by its sentences, each with the label a judge gives it. None: the judge is away."""

    labels: tuple[str, ...] | None
    number: int = 0

    @property
    def sentences(self) -> list[str]:
        return [f"Sentence {self.number} {index}." for index, _ in enumerate(self.labels or ("supported",))]

    @property
    def text(self) -> str:
        return " ".join(self.sentences)

    @property
    def for_adk(self) -> list[str | None]:
        """What ADK's judge answers on this text, in ADK's form: the sentences, then the labels."""
        if self.labels is None:
            return [None]
        blocks = [
            f"sentence: {sentence}\nlabel: {label}\nrationale: r\nsupporting_excerpt: null\ncontradicting_excerpt: null"
            for sentence, label in zip(self.sentences, self.labels, strict=True)
        ]
        return ["".join(f"<sentence>{one}</sentence>\n" for one in self.sentences), "\n\n".join(blocks)]


def event(*texts: Said) -> dict[str, Any]:
    return {"author": "root", "content": {"role": "model", "parts": [{"text": text.text} for text in texts]}}


def turn(final: Said | None, *events: Sequence[Said]) -> Invocation:
    data: dict[str, Any] = {
        "user_content": {"role": "user", "parts": [{"text": "hi"}]},
        "intermediate_data": {"invocation_events": [event(*one) for one in events]},
    }
    if final is not None:
        data["final_response"] = {"role": "model", "parts": [{"text": final.text}]}
    return Invocation.model_validate(data)


def our_judge(said: Sequence[Said]) -> ScriptedLlm:
    by_text = {one.text: one for one in said}
    by_first = {one.sentences[0]: one for one in said}

    def answer(request: LlmRequest) -> str | LlmError:
        texts = texts_in(request)
        if "answer" in texts:
            one = by_text[texts["answer"]]
            return AWAY if one.labels is None else json.dumps({"sentences": one.sentences})
        one = by_first[json.loads(texts["sentences"])[0]["sentence"]]
        labels = [{"index": index, "rationale": "r", "label": label} for index, label in enumerate(one.labels or (), 1)]
        return json.dumps({"labels": labels[::-1]})

    return ScriptedLlm(answer)


def ours(turns: Sequence[Invocation], said: Sequence[Said], threshold: float, *, intermediate: bool) -> CriterionScore:
    criterion = Hallucinations(threshold=threshold, evaluate_intermediate_nl_responses=intermediate)
    return scored(criterion, our_judge(said), turns)


def theirs(
    adk: Any, turns: Sequence[Invocation], said: Sequence[Said], threshold: float, *, intermediate: bool
) -> dict[str, Any]:
    options = {
        "threshold": threshold,
        "evaluate_intermediate_nl_responses": intermediate,
        "judge_model_options": {"judge_model": "scripted-judge", "num_samples": 3},
    }
    judge = [answer for one in said for answer in one.for_adk]
    found: dict[str, Any] = adk(NAME, options, None, turns, judge=judge)
    assert "error" not in found, found
    assert len(found["asked"]) == len(judge)
    return found


LABELS = st.lists(st.sampled_from(KINDS), min_size=1, max_size=6).map(tuple)
TURNS = st.lists(
    st.tuples(st.none() | LABELS, st.lists(st.lists(LABELS, max_size=2), max_size=3)), min_size=1, max_size=4
)
THRESHOLDS = st.sampled_from([0.0, 0.25, 0.5, 2 / 3, 0.75, 1.0])


@RANDOM
@given(TURNS, THRESHOLDS, st.booleans())
def test_the_same_labels_give_the_same_score(adk, drawn, threshold, intermediate):
    count = iter(range(10_000))
    turns: list[Invocation] = []
    judged: list[Said] = []
    for final, events in drawn:
        before = [[Said(labels, next(count)) for labels in one] for one in events]
        last = None if final is None else Said(final, next(count))
        turns.append(turn(last, *before))
        judged += [text for one in before for text in one] if intermediate else []
        judged += [last] if last else []
    found = theirs(adk, turns, judged, threshold, intermediate=intermediate)
    mine = ours(turns, judged, threshold, intermediate=intermediate)
    assert mine.score == pytest.approx(found["score"], abs=1e-9)
    assert [one.score for one in mine.turns] == pytest.approx([one["score"] for one in found["turns"]], abs=1e-9)
    if mine.score is None:
        assert mine.status is ScoreStatus.ERROR
        assert found["status"] == "NOT_EVALUATED"
    else:
        assert mine.passed is (found["status"] == "PASSED")


def test_a_text_the_judge_gives_no_labels_for_voids_the_case(adk):
    """ADK takes the mean of the others, so that an outage of the judge can pass a case."""
    said = [Said(("supported",), 1), Said(None, 2)]
    turns = [turn(one) for one in said]
    assert theirs(adk, turns, said, 0.5, intermediate=False)["status"] == "PASSED"
    assert ours(turns, said, 0.5, intermediate=False).status is ScoreStatus.ERROR


def test_a_sentence_the_judge_drops_or_makes_up_is_no_answer(adk):
    """ADK scores what the judge returned, so that a judge that leaves out the false half gives full marks."""
    text = Said(("supported", "unsupported"))
    kept = Said(("supported",))
    options = {"threshold": 0.9, "judge_model_options": {"judge_model": "scripted-judge"}}
    assert adk(NAME, options, None, [turn(text)], judge=kept.for_adk)["score"] == 1
    llm = ScriptedLlm(lambda _: json.dumps({"sentences": kept.sentences}))
    found = scored(Hallucinations(threshold=0.9), llm, [turn(text)])
    assert found.status is ScoreStatus.ERROR


def test_a_sentence_without_a_label_is_no_answer(adk):
    """ADK leaves it out of the share."""
    text = Said(("supported", "unsupported"))
    split, labels = text.for_adk
    assert labels is not None
    options = {"threshold": 0.9, "judge_model_options": {"judge_model": "scripted-judge"}}
    judge = [split, labels.split("\n\n", maxsplit=1)[0]]
    assert adk(NAME, options, None, [turn(text)], judge=judge)["score"] == 1

    def answer(request: LlmRequest) -> str:
        if "answer" in texts_in(request):
            return json.dumps({"sentences": text.sentences})
        return json.dumps({"labels": [{"index": 1, "rationale": "r", "label": "supported"}]})

    assert scored(Hallucinations(threshold=0.9), ScriptedLlm(answer), [turn(text)]).status is ScoreStatus.ERROR


def test_a_hand_written_turn_has_intermediate_texts_and_a_context(adk):
    """ADK knows recorded events only."""
    before, last = Said(("unsupported",), 1), Said(("supported",), 2)
    data = {
        "tool_uses": [{"name": "heat", "args": {"of": "Rome"}}],
        "intermediate_responses": [["root", [{"text": before.text}]]],
    }
    written = turn(last).model_dump(mode="json", exclude_none=True) | {"intermediate_data": data}
    turns = [Invocation.model_validate(written)]
    found = theirs(adk, turns, [last], 0.5, intermediate=True)
    assert found["score"] == 1
    assert "Rome" not in found["asked"][1]
    mine = ours(turns, [before, last], 0.5, intermediate=True)
    assert mine.score == 0.5


def test_thoughts_are_no_text_of_the_agent(adk):
    last = Said(("supported",), 1)
    thought = {"author": "root", "content": {"parts": [{"text": "Sentence 2 0.", "thought": True}]}}
    written = turn(last).model_dump(mode="json", exclude_none=True)
    turns = [Invocation.model_validate(written | {"intermediate_data": {"invocation_events": [thought]}})]
    assert theirs(adk, turns, [Said(("unsupported",), 2), last], 0.5, intermediate=True)["score"] == 0.5
    assert ours(turns, [last], 0.5, intermediate=True).score == 1
