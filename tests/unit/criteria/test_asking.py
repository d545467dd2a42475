"""One sample of a judge: what is sent, what is read, and what happens when it cannot be read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import RootModel

from agent_eval_action.config.criteria import CriterionSpec
from agent_eval_action.criteria import build, criterion_digest
from agent_eval_action.criteria.judge import (
    Judge,
    JudgeModelOptions,
    PartialAnswer,
    Question,
    VerdictAnswer,
    schema_of,
)
from agent_eval_action.errors import ConfigError
from agent_eval_action.llm.client import LlmError, LlmErrorKind, LlmRequest, Message
from support.judging import AWAY, said
from support.scripted_llm import ScriptedLlm
from support.turns import criterion

YES_NO = Question("Decide.", "Is it so?", VerdictAnswer, "match-3", lambda answer: answer)


def asked(*replies: str | LlmError, question: Question[Any] = YES_NO, **options: Any) -> tuple[Any, list[LlmRequest]]:
    llm = ScriptedLlm(lambda _: replies[len(llm.asked) - 1])
    judge = Judge(llm, JudgeModelOptions(**options), "final_response_match_v2", repeat=4)
    return asyncio.run(judge.ask(question, 2)), llm.asked


def test_the_request_says_all_that_tells_this_asking_from_another():
    config = {"temperature": 0.2, "thinkingConfig": {"thinking_budget": 0}}
    found, requests = asked(said("yes", " it is "), judge_model="openai/gpt-4.1", judge_model_config=config)
    assert found == VerdictAnswer(verdict="yes", rationale=" it is ")
    assert requests == [
        LlmRequest(
            model="openai/gpt-4.1",
            messages=(Message("user", "Is it so?"),),
            system="Decide.",
            schema=schema_of(VerdictAnswer),
            options={"temperature": 0.2, "thinking_config": {"thinking_budget": 0}},
            purpose="final_response_match_v2",
            prompt_version="match-3",
            sample=2,
            repeat=4,
        )
    ]


def test_an_unusable_answer_is_asked_for_again_with_what_was_wrong():
    found, (first, second) = asked(said("perhaps"), said("no"))
    assert found == VerdictAnswer(verdict="no", rationale="because")
    question, answer, note = second.messages
    assert (question,) == first.messages
    assert answer == Message("model", said("perhaps"))
    assert note.role == "user"
    assert "`verdict`: Input should be 'yes' or 'no', and is \"perhaps\"" in note.text
    assert (second.system, second.schema, second.sample) == (first.system, first.schema, first.sample)


def test_after_one_repair_the_sample_is_left_out():
    found, requests = asked("yes", "YES!")
    assert isinstance(found, LlmError)
    assert found.message.startswith("the judge's answer could not be used: it is not JSON")
    assert (found.kind, len(requests)) == (LlmErrorKind.EMPTY, 2)


@pytest.mark.parametrize("kind", LlmErrorKind)
def test_an_error_of_the_model_is_not_asked_about_again(kind):
    found, requests = asked(LlmError(kind, "the model says why"))
    assert (found.kind, found.message) == (kind, "the model says why")
    assert len(requests) == 1


def test_a_model_error_during_the_repair_is_reported():
    found, _ = asked("nonsense", AWAY)
    assert found == AWAY


def test_an_empty_or_huge_answer_can_be_shown_again():
    _, (_, second) = asked("", said("yes"))
    assert second.messages[1].text
    _, (_, second) = asked("x" * 1_000_000, said("yes"))
    assert len(second.messages[1].text) < 100_000


def keyed(read: RootModel[dict[str, int]]) -> dict[str, int]:
    answer = read.root
    if missing := {"a", "b", "c"} - answer.keys():
        raise PartialAnswer(f"there is nothing on {sorted(missing)}", answer)
    return dict(answer)


KEYED = Question("Decide.", "Which?", RootModel[dict[str, int]], "1", keyed)


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        (('{"a": 1}', '{"a": 2, "b": 2, "c": 2}'), {"a": 2, "b": 2, "c": 2}),
        (('{"a": 1, "b": 1}', '{"b": 2, "c": 2}'), {"a": 1, "b": 2, "c": 2}),
        (('{"a": 1}', '{"b": 2}'), {"a": 1, "b": 2}),
        (('{"a": 1}', "nonsense"), {"a": 1}),
        (("nonsense", '{"a": 1}'), {"a": 1}),
        (('{"a": 1}', AWAY), {"a": 1}),
    ],
)
def test_what_is_missing_is_asked_again_and_what_was_said_is_kept(replies, expected):
    found, requests = asked(*replies, question=KEYED)
    assert found == expected
    assert len(requests) == 2


def test_nothing_twice_is_nothing():
    assert isinstance(asked("{}", "{}", question=KEYED)[0], LlmError)


def test_lone_surrogates_do_not_reach_the_wire():
    question = Question("Decide \ud800.", "Is \udfff so?", VerdictAnswer, "1", lambda answer: answer)
    _, requests = asked("\ud800", said("yes"), question=question)
    for request in requests:
        assert request.system.encode()
        assert all(message.text.encode() for message in request.messages)


@pytest.mark.parametrize(
    ("config", "wrong"),
    [
        ({"temperature": 0, "systemInstruction": "Say yes."}, "`systemInstruction` cannot be set"),
        ({"response_schema": {}}, "`response_schema` cannot be set"),
        ({"candidateCount": 3}, "num_samples"),
        ({"httpOptions": {"base_url": "https://elsewhere"}}, "`httpOptions` cannot be set"),
        ({"topP": 1, "top_p": 0.5}, "is given in two spellings"),
    ],
)
def test_what_a_judge_is_set_up_with_cannot_be_set_again(config, wrong):
    options = {"threshold": 1, "judge_model_options": {"judge_model_config": config}}
    with pytest.raises(ConfigError) as raised:
        build([CriterionSpec("final_response_match_v2", options)])
    assert wrong in str(raised.value.problems)


def test_a_digest_is_of_what_decides_a_verdict():
    def digest(**options: Any) -> str:
        return criterion_digest(criterion("final_response_match_v2", threshold=1, **options))

    plain = digest()
    assert plain == digest(judgeModelOptions={"judgeModel": "gemini-2.5-flash", "numSamples": 5})
    assert plain == digest(judge_model_options={"parallelism_limit": 1}), "it changes no score"
    assert digest(judge_model_options={"judge_model_config": {"topP": 1}}) == digest(
        judge_model_options={"judge_model_config": {"top_p": 1}}
    )
    others = [{"judge_model": "other"}, {"num_samples": 3}, {"judge_model_config": {"temperature": 0}}]
    assert len({plain, *(digest(judge_model_options=one) for one in others)}) == 4
