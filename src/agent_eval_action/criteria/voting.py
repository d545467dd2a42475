"""Majorities of a judge's samples, asked only as long as the rest could still change one.

The verdict equals that of asking all of them: a sample is asked when the open ones cannot decide alone, so that
with 5 samples 3 are asked at once, and a fourth only when these do not agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agent_eval_action.criteria.asking import Judge, NoAnswer, Question, T
from agent_eval_action.llm.base import LlmErrorKind
from agent_eval_action.model.judged import Votes


@dataclass(frozen=True, slots=True)
class Verdict:
    """One yes or no of one sample, and why."""

    yes: bool
    rationale: str = ""


@dataclass(frozen=True, slots=True)
class Ballot:
    """How the samples fell. ``verdict`` is None when nothing was decided, and ``reason`` then says why.

    ``rationale`` is that of the first sample of the majority. A tie is negative.
    """

    votes: Votes
    verdict: bool | None
    rationale: str = ""
    reason: str = ""
    kind: LlmErrorKind | None = None


VERDICT_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "rationale": {"type": "string", "description": "Why, in one or two sentences."},
        "verdict": {"type": "string", "enum": ["yes", "no"]},
    },
    "required": ["rationale", "verdict"],
    "additionalProperties": False,
}
"""The answer to one yes/no question; the rationale first, so that the verdict follows from it."""


def read_verdict(answer: Mapping[str, Any]) -> Verdict:
    """``Question.read`` of a question with ``VERDICT_SCHEMA``."""
    return Verdict(answer["verdict"] == "yes", answer["rationale"].strip())


async def vote(judge: Judge, question: Question[Verdict]) -> Ballot:
    """The majority of ``num_samples`` verdicts."""
    counts = _Counts(judge.options.num_samples)
    await _poll(judge, question, [counts], counts.take)
    return counts.ballot()


async def vote_each(judge: Judge, question: Question[Mapping[str, Verdict]], keys: Iterable[str]) -> dict[str, Ballot]:
    """A majority per key; every sample answers all keys. A key that a sample does not answer is left out there."""
    counts = {key: _Counts(judge.options.num_samples) for key in keys}

    def take(sample: int, answer: Mapping[str, Verdict] | NoAnswer) -> None:
        for key, of_key in counts.items():
            of_key.take(sample, answer if isinstance(answer, NoAnswer) else answer.get(key, _NOT_ANSWERED))

    await _poll(judge, question, list(counts.values()), take)
    return {key: of_key.ballot() for key, of_key in counts.items()}


_NOT_ANSWERED = NoAnswer("the judge left it out of its answer")


@dataclass
class _Counts:
    """The votes on one thing so far, by sample."""

    samples: int
    said: dict[int, Verdict | NoAnswer] = field(default_factory=dict)
    yes: int = 0
    no: int = 0

    def take(self, sample: int, answer: Verdict | NoAnswer) -> None:
        self.said[sample] = answer
        if isinstance(answer, Verdict):
            self.yes, self.no = self.yes + answer.yes, self.no + (not answer.yes)

    @property
    def needed(self) -> int:
        """How many further answers can decide, if they agree; 0 when nothing can change the verdict any more."""
        left = self.samples - len(self.said)
        # yes + k > no + left - k: yes, whatever comes after. no + k >= yes + left - k: no, for a tie is no.
        for_yes = (self.no + left - self.yes) // 2 + 1
        for_no = (self.yes + left - self.no + 1) // 2
        return min(left, max(0, min(for_yes, for_no)))

    def ballot(self) -> Ballot:
        said = [self.said[sample] for sample in sorted(self.said)]
        votes = Votes(yes=self.yes, no=self.no, left_out=len(said) - self.yes - self.no)
        verdict = votes.verdict if self.needed == 0 else None
        if verdict is None:
            lost = [answer for answer in said if isinstance(answer, NoAnswer)]
            why = next((one for one in lost if one.final), lost[0])
            return Ballot(votes, None, reason=why.reason, kind=why.kind)
        first = next(one for one in said if isinstance(one, Verdict) and one.yes is verdict)
        return Ballot(votes, verdict, first.rationale)


async def _poll(
    judge: Judge, question: Question[T], counts: Sequence[_Counts], take: Callable[[int, T | NoAnswer], None]
) -> None:
    """Asks samples until all is decided, or until an answer says that asking is over.

    Never more are open than could decide if they agreed: none is asked in vain, and the samples that are asked
    are the first ones, whatever order they come back in.
    """
    limit = judge.options.parallelism_limit or judge.options.num_samples
    open_: dict[asyncio.Task[T | NoAnswer], int] = {}
    asked, over = 0, False
    try:
        while True:
            needed = max(one.needed for one in counts)
            while not over and len(open_) < min(limit, needed):
                asking = judge.ask(question, asked)
                open_[asyncio.create_task(asking)] = asked
                asked += 1
            if not open_:
                return
            done, _ = await asyncio.wait(open_, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                answer = task.result()
                take(open_.pop(task), answer)
                over = over or (isinstance(answer, NoAnswer) and answer.final)
    finally:
        for task in open_:
            task.cancel()
        await asyncio.gather(*open_, return_exceptions=True)
