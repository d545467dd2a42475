"""Criteria about the text of an answer: equal, close, containing, or of a pattern."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from agent_eval_action.criteria.base import RegexPattern, Relaxed, Sample, TurnCriterion, becomes, matches
from agent_eval_action.results.findings import excerpt
from agent_eval_action.results.run_result import TurnScore

_SPACES = re.compile(r"\s+")
_LONGEST = 10_000


class AnswerCriterion(TurnCriterion):
    """Base of criteria that compare texts. ``ignore_case`` and ``ignore_whitespace`` make more texts equal."""

    relaxed_when: ClassVar[Mapping[str, Relaxed]] = {"ignore_case": becomes(True), "ignore_whitespace": becomes(True)}

    ignore_case: bool = False
    ignore_whitespace: bool = False

    def plain(self, text: str) -> str:
        """The text as it is compared."""
        text = _SPACES.sub(" ", text).strip() if self.ignore_whitespace else text
        return text.casefold() if self.ignore_case else text


class AnswerExactMatch(AnswerCriterion):
    """1 where the answer is the reference."""

    name: ClassVar[str] = "answer_exact_match"
    needs_reference: ClassVar[bool] = True

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        want, got = sample.case.turns[turn].response_text, sample.actual[turn].response_text
        same = self.plain(want) == self.plain(got)
        reason = "as the reference" if same else f"“{excerpt(got, 100)}”, expected “{excerpt(want, 100)}”"
        return TurnScore(turn=turn, score=float(same), reason=reason)


class AnswerSimilarity(AnswerCriterion):
    """1 minus the edit distance of answer and reference in characters, by the longer of the two."""

    name: ClassVar[str] = "answer_similarity"
    needs_reference: ClassVar[bool] = True

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        want, got = (self.plain(made.response_text) for made in (sample.case.turns[turn], sample.actual[turn]))
        longest = max(len(want), len(got))
        if longest > _LONGEST:
            return self.unscored(turn, f"a text of more than {_LONGEST} characters is not compared by character")
        score = 1 - _edit_distance(want, got) / longest if longest else 1.0
        return TurnScore(turn=turn, score=score, reason=f"“{excerpt(got, 100)}”")


class AnswerContains(AnswerCriterion):
    """The share of ``texts`` that occur in the answer."""

    name: ClassVar[str] = "answer_contains"

    texts: tuple[str, ...] = Field(min_length=1)

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        answer = self.plain(sample.actual[turn].response_text)
        missing = [text for text in self.texts if self.plain(text) not in answer]
        reason = "; ".join(f"“{excerpt(text, 80)}” is missing" for text in missing[:4]) or "all texts occur"
        return TurnScore(turn=turn, score=1 - len(missing) / len(self.texts), reason=reason)


class AnswerPattern(TurnCriterion):
    """1 where the pattern (RE2) occurs in the answer."""

    name: ClassVar[str] = "answer_pattern"

    pattern: RegexPattern = Field(min_length=1)

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        answer = sample.actual[turn].response_text
        found = matches(self.pattern, answer)
        reason = "the pattern occurs" if found else f"the pattern does not occur in “{excerpt(answer, 100)}”"
        return TurnScore(turn=turn, score=float(found), reason=reason)


def _edit_distance(first: str, second: str) -> int:
    """Levenshtein's, a row of the table at a time, by numpy: a character of the shorter text a step."""
    import numpy as np  # noqa: PLC0415 - for one criterion

    short, long = sorted((first, second), key=len)
    codes = np.frombuffer(long.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    steps = np.arange(len(long) + 1)
    row = steps.copy()
    for number, char in enumerate(short, 1):
        changed = np.minimum(row[1:] + 1, row[:-1] + (codes != ord(char)))
        new = np.concatenate(([number], changed))
        # what is left out of the longer text adds one a step: the least so far, seen from each place
        row = np.minimum.accumulate(new - steps) + steps
    return int(row[-1])
