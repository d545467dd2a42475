"""Early stopping: on every sequence of votes the verdict of asking all, with the fewest questions that can give it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import product

import pytest
from pydantic import RootModel

from agent_eval_action.criteria.judge import (
    Judge,
    JudgeModelOptions,
    Poll,
    Question,
    VerdictAnswer,
    vote,
    vote_each,
)
from agent_eval_action.llm.client import LlmError, LlmErrorKind, LlmReply, LlmRequest
from agent_eval_action.results.run_result import Votes
from support.judging import AWAY, Shuffled, said
from support.scripted_llm import ScriptedLlm

YES_NO = Question("Decide.", "Is it so?", VerdictAnswer, "1", lambda answer: answer)
OUTCOMES = ("yes", "no", "left out")


def majority(sequence: Sequence[str]) -> bool | None:
    """By asking all: the more, a tie is negative, None without a vote."""
    counted = Counter(sequence)
    return counted["yes"] > counted["no"] if counted["yes"] + counted["no"] else None


@cache
def fewest(returned: tuple[int, int, int], samples: int) -> int:
    """How many further answers can settle the majority at best, found by trying everything."""
    left = samples - sum(returned)

    def settled(yes: int, no: int, more: int) -> bool:
        ends = {majority(["yes"] * (yes + y) + ["no"] * (no + n)) for y in range(more + 1) for n in range(more + 1 - y)}
        return len(ends) == 1

    for count in range(left + 1):
        for yes, no in ((y, n) for y in range(count + 1) for n in range(count + 1 - y)):
            if settled(returned[0] + yes, returned[1] + no, left - count):
                return count
    raise AssertionError


class Watched:
    """Answers by sample, and checks at every question that the open ones could not have settled it alone."""

    def __init__(self, sequence: Sequence[str], seed: int) -> None:
        self.sequence = sequence
        self.returned = [0, 0, 0]
        self.open = 0
        self.inner = Shuffled(lambda request: self.reply(request.sample), seed)

    def reply(self, sample: int) -> str | LlmError:
        outcome = self.sequence[sample]
        return AWAY if outcome == "left out" else said(outcome, f"sample {sample}")

    async def generate(self, request: LlmRequest) -> LlmReply | LlmError:
        self.open += 1
        assert self.open <= fewest(tuple(self.returned), len(self.sequence))
        reply = await self.inner.generate(request)
        self.open -= 1
        self.returned[OUTCOMES.index(self.sequence[request.sample])] += 1
        return reply


def ballot(sequence: Sequence[str], seed: int = 0) -> tuple[Poll, int]:
    llm = Watched(sequence, seed)
    judge = Judge(llm, JudgeModelOptions(num_samples=len(sequence)), "test")
    found = asyncio.run(vote(judge, YES_NO))
    assert [request.sample for request in llm.inner.asked] == list(range(len(llm.inner.asked)))
    return found, len(llm.inner.asked)


@pytest.mark.parametrize("samples", range(1, 8))
def test_the_verdict_is_that_of_asking_all_on_every_sequence(samples):
    async def all_of_them() -> None:
        for number, sequence in enumerate(product(OUTCOMES, repeat=samples)):
            llm = Watched(sequence, number)
            found = await vote(Judge(llm, JudgeModelOptions(num_samples=samples), "test"), YES_NO)
            asked = sequence[: len(llm.inner.asked)]
            assert found.verdict is majority(sequence), sequence
            assert found.votes == Votes(
                yes=asked.count("yes"), no=asked.count("no"), left_out=asked.count("left out")
            ), sequence
            if found.verdict is not None:
                assert found.rationale == f"sample {sequence.index('yes' if found.verdict else 'no')}"
            else:
                assert found.undecided.endswith(AWAY.message)
            # Nothing shorter would have done: one answer less, and the rest could have changed the verdict.
            before = sequence[: len(asked) - 1]
            ends = {majority((*before, *rest)) for rest in product(OUTCOMES, repeat=samples - len(before))}
            assert len(ends) > 1, sequence

    asyncio.run(all_of_them())


@pytest.mark.parametrize(("samples", "rubrics"), [(1, 3), (2, 3), (3, 2), (4, 2), (5, 1)])
def test_per_rubric_the_verdict_is_that_of_asking_all_on_every_sequence(samples, rubrics):
    keys = [f"r{number}" for number in range(rubrics)]

    async def all_of_them() -> None:
        for table in product(product(OUTCOMES, repeat=rubrics), repeat=samples):
            await check(table, keys)

    asyncio.run(all_of_them())


def test_per_rubric_on_random_sequences_of_many_samples_and_rubrics():
    async def many() -> None:
        dice = random.Random(3)  # noqa: S311 - a test that can be repeated
        for _ in range(1_500):
            samples, rubrics = dice.randint(1, 7), dice.randint(1, 5)
            table = [[dice.choice(OUTCOMES) for _ in range(rubrics)] for _ in range(samples)]
            await check(table, [f"r{number}" for number in range(rubrics)])

    asyncio.run(many())


async def check(table: Sequence[Sequence[str]], keys: Sequence[str]) -> None:
    """``table`` has a row of outcomes per sample. A row that leaves all out is a call that failed."""

    def read(answer: RootModel[str]) -> dict[str, VerdictAnswer]:
        row = table[int(answer.root)]
        return {
            key: VerdictAnswer(rationale="", verdict=cell)
            for key, cell in zip(keys, row, strict=True)
            if cell != "left out"
        }

    def reply(request: LlmRequest) -> str | LlmError:
        return AWAY if set(table[request.sample]) == {"left out"} else f'"{request.sample}"'

    llm = Shuffled(reply)
    question = Question("Decide.", "Which?", RootModel[str], "1", read)
    found = await vote_each(Judge(llm, JudgeModelOptions(num_samples=len(table)), "test"), question, keys)
    asked = len(llm.asked)
    for column, key in enumerate(keys):
        cells = [row[column] for row in table]
        assert found[key].verdict is majority(cells), (table, key)
        votes = Counter(cells[:asked])
        assert found[key].votes == Votes(yes=votes["yes"], no=votes["no"], left_out=votes["left out"])
    if asked > 1:  # without the last sample some rubric was open
        before = [Counter(row[column] for row in table[: asked - 1]) for column in range(len(keys))]
        open_ = [fewest((one["yes"], one["no"], one["left out"]), len(table)) for one in before]
        assert max(open_) > 0


@pytest.mark.parametrize("verdict", ["yes", "no"])
def test_five_samples_that_agree_take_three_questions_all_at_once(verdict):
    llm = ScriptedLlm(lambda _: said(verdict), latency=0.001)
    found = asyncio.run(vote(Judge(llm, JudgeModelOptions(), "test"), YES_NO))
    assert found.verdict is (verdict == "yes")
    assert (len(llm.asked), llm.at_once) == (3, 3)
    assert (found.votes.yes, found.votes.no) == ((3, 0) if verdict == "yes" else (0, 3))


def test_three_then_one_then_one():
    found, asked = ballot(["yes", "no", "yes", "no", "no"])
    assert (found.verdict, asked) == (False, 5)
    assert found.votes == Votes(yes=2, no=3)
    found, asked = ballot(["yes", "no", "yes", "yes", "no"])
    assert (found.verdict, asked) == (True, 4)


def test_each_vote_keeps_its_words_where_not_all_said_yes():
    split, _ = ballot(["yes", "no", "yes", "no", "no"])
    assert [vote.yes for vote in split.cast] == [True, False, True, False, False]
    assert [vote.rationale for vote in split.cast] == [f"sample {number}" for number in range(5)]
    assert ballot(["yes"] * 5)[0].cast == ()
    assert ballot(["no"])[0].cast == (), "its words are the reason"


@pytest.mark.parametrize(("samples", "asked"), [(2, 1), (4, 2), (6, 3)])
def test_half_of_an_even_number_that_says_no_is_enough(samples, asked):
    """For a tie is negative."""
    assert ballot(["no"] * samples)[1] == asked
    assert ballot(["yes"] * samples)[1] == asked + 1


@pytest.mark.parametrize("limit", [1, 2])
def test_parallelism_limit_bounds_what_is_open_and_changes_no_verdict(limit):
    for sequence in product(OUTCOMES, repeat=5):
        llm = ScriptedLlm(
            lambda request, of=sequence: AWAY if of[request.sample] == "left out" else said(of[request.sample])
        )
        judge = Judge(llm, JudgeModelOptions(parallelism_limit=limit), "test")
        assert asyncio.run(vote(judge, YES_NO)).verdict is majority(sequence)
        assert llm.at_once <= limit


@pytest.mark.parametrize("kind", [LlmErrorKind.BUDGET, LlmErrorKind.REFUSED])
def test_when_asking_is_over_no_further_sample_is_asked(kind):
    over = LlmError(kind, "the run may spend 2.00 USD and has")
    llm = ScriptedLlm(lambda request: over if request.sample == 0 else said("yes"))
    found = asyncio.run(vote(Judge(llm, JudgeModelOptions(num_samples=7), "test"), YES_NO))
    assert len(llm.asked) == 4, "those that were open already"
    assert found.verdict is None
    assert found.undecided.endswith(f": {over.message}")
    assert found.votes == Votes(yes=3, left_out=1), "what was measured is kept"


def test_when_asking_is_over_a_verdict_that_nothing_can_change_stands():
    over = LlmError(LlmErrorKind.BUDGET, "spent")
    llm = ScriptedLlm(lambda request: said("no") if request.sample < 2 else over)
    found = asyncio.run(vote(Judge(llm, JudgeModelOptions(num_samples=4), "test"), YES_NO))
    assert (found.verdict, len(llm.asked)) == (False, 2)


def test_when_asking_is_over_for_one_rubric_the_decided_ones_stand():
    over = LlmError(LlmErrorKind.BUDGET, "spent")
    llm = ScriptedLlm(lambda request: over if request.sample == 2 else f'"{request.sample}"')

    def read(answer: RootModel[str]) -> dict[str, VerdictAnswer]:
        no, yes = (VerdictAnswer(rationale="", verdict=verdict) for verdict in ("no", "yes"))
        return {"a": no, "b": yes if answer.root == "1" else no}

    question = Question("Decide.", "Which?", RootModel[str], "1", read)
    judge = Judge(llm, JudgeModelOptions(num_samples=4), "test")
    found = asyncio.run(vote_each(judge, question, ["a", "b"]))
    assert found["a"].verdict is False
    assert found["b"].verdict is None
    assert found["b"].undecided.endswith(": spent")


def test_the_reason_that_ended_the_votes_comes_before_an_earlier_outage():
    over = LlmError(LlmErrorKind.BUDGET, "spent")
    llm = ScriptedLlm(lambda request: over if request.sample == 1 else AWAY)
    found = asyncio.run(vote(Judge(llm, JudgeModelOptions(), "test"), YES_NO))
    assert found.undecided.endswith(": spent")


def test_an_outage_of_some_samples_leaves_them_out():
    found, asked = ballot(["left out", "left out", "yes", "left out", "left out"])
    assert (found.verdict, asked) == (True, 5)
    assert found.votes == Votes(yes=1, left_out=4)


def test_a_given_up_vote_leaves_no_question_behind():
    ended = []
    started = asyncio.Semaphore(0)

    class Hanging:
        async def generate(self, request: LlmRequest) -> LlmReply:
            started.release()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(request.sample)
            raise AssertionError

    async def give_up() -> None:
        task = asyncio.create_task(vote(Judge(Hanging(), JudgeModelOptions(), "test"), YES_NO))
        for _ in range(3):
            await started.acquire()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sorted(ended) == [0, 1, 2]

    asyncio.run(give_up())


def test_a_defect_of_a_client_is_not_swallowed():
    def broken(_: LlmRequest) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(vote(Judge(ScriptedLlm(broken), JudgeModelOptions(), "test"), YES_NO))
