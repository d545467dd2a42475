"""Backoff, deadline and what the server said about when, with waits that take no time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eval_action.llm.client import LlmError, LlmErrorKind, LlmReply, LlmRequest, LlmUsage, Message
from agent_eval_action.llm.retries import EMPTY_TRIES, LONGEST_WAIT, Retrying
from support.scripted_llm import ScriptedLlm

ASKED = LlmRequest("gemini-2.5-flash", (Message("user", "Is it so?"),))
BUSY = LlmError(LlmErrorKind.UNAVAILABLE, "busy")


def scripted(*answers: LlmReply | LlmError) -> ScriptedLlm:
    """The answers in turn, the last one again and again."""
    left = list(answers)
    return ScriptedLlm(lambda _: left.pop(0) if len(left) > 1 else left[0])


async def run(
    llm: ScriptedLlm, *, deadline: float = 120.0, jitter: float = 1.0
) -> tuple[LlmReply | LlmError, list[float]]:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    said = await Retrying(llm, deadline, sleep, lambda: jitter).generate(ASKED)
    return said, waits


async def test_a_first_answer_is_handed_on_as_it_is():
    reply = LlmReply("yes", LlmUsage(3, None, None))
    said, waits = await run(scripted(reply))
    assert said is reply
    assert waits == []


@pytest.mark.parametrize("kind", [LlmErrorKind.BLOCKED, LlmErrorKind.REFUSED, LlmErrorKind.BUDGET])
async def test_what_lasts_is_not_asked_again(kind):
    llm = scripted(LlmError(kind, "no"))
    said, _ = await run(llm)
    assert (said.kind, said.message, len(llm.asked)) == (kind, "no", 1)


async def test_the_jitter_is_full():
    _, none = await run(scripted(BUSY, BUSY, BUSY, LlmReply("yes")), jitter=0.0)
    _, half = await run(scripted(BUSY, BUSY, BUSY, LlmReply("yes")), jitter=0.5)
    assert none == [0.0, 0.0, 0.0]
    assert half == [0.5, 1.0, 2.0]


async def test_those_told_the_same_moment_do_not_all_come_back_at_it():
    told = LlmError(LlmErrorKind.RATE_LIMITED, "429", retry_after=8.0)
    _, first = await run(scripted(told, LlmReply("yes")), jitter=0.0)
    _, last = await run(scripted(told, LlmReply("yes")), jitter=1.0)
    assert first == [8.0]  # never before
    assert last == [9.0]


async def test_time_on_the_wire_counts_and_time_in_the_queue_does_not():
    hung = LlmError(LlmErrorKind.TIMEOUT, "no answer", seconds=50.0)
    llm = scripted(hung)
    said, waits = await run(llm, jitter=0.0)
    assert len(llm.asked) == 3  # 50, 100, then 150 s are past the deadline
    assert waits == [0.0, 0.0]
    assert said.seconds == 150.0
    assert "given up after 120 s (llm.retry_deadline)" in said.message
    # An error without seconds came at once, however long it had waited for its turn.
    said, waits = await run(scripted(BUSY), jitter=1.0)
    assert sum(waits) > 90


async def test_empty_answers_are_paid_for_so_few_are_asked():
    usage = LlmUsage(10, 5, None)
    llm = scripted(LlmError(LlmErrorKind.EMPTY, "cut", usage=usage))
    said, _ = await run(llm)
    assert len(llm.asked) == EMPTY_TRIES
    assert said.message == "cut (3 times)"
    assert (said.usage.input_tokens, said.usage.output_tokens) == (30, 15)


async def test_busy_tries_between_do_not_count_as_empty_ones():
    cut = LlmError(LlmErrorKind.EMPTY, "cut")
    llm = scripted(cut, BUSY, BUSY, BUSY, cut, LlmReply("yes"))
    said, _ = await run(llm)
    assert isinstance(said, LlmReply)
    assert len(llm.asked) == 6


async def test_unknown_usage_stays_unknown():
    cut = LlmError(LlmErrorKind.EMPTY, "cut", usage=LlmUsage(10, 5, 2))
    said, _ = await run(scripted(cut, LlmReply("yes", LlmUsage(None, 7, None))))
    assert said.usage == LlmUsage(None, 12, 2)
    said, _ = await run(
        scripted(LlmError(LlmErrorKind.EMPTY, "cut", usage=LlmUsage()), LlmReply("yes", LlmUsage(1, 1)))
    )
    assert (said.usage.input_tokens, said.usage.output_tokens) == (None, None)


@given(
    st.lists(st.tuples(st.sampled_from(list(LlmErrorKind)), st.none() | st.floats(0, 300)), min_size=1, max_size=40),
    st.floats(0, 200),
    st.floats(0, 1, exclude_max=True),
)
async def test_waits_never_pass_the_deadline_and_never_come_before_the_servers_word(errors, deadline, jitter):
    llm = scripted(*(LlmError(kind, "x", retry_after=after) for kind, after in errors), LlmReply("yes"))
    _, waits = await run(llm, deadline=deadline, jitter=jitter)
    assert sum(waits) <= deadline + 1e-9
    assert len(llm.asked) == len(waits) + 1
    for wait, (_, after) in zip(waits, errors, strict=False):
        assert wait >= after if after is not None else wait <= LONGEST_WAIT
