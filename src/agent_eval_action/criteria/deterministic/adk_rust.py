"""ADK-Rust's graded trajectory and similarities of texts, with the scores of version 3 of its crate ``adk-eval``."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

from agent_eval_action.criteria.base import ExpectedCalls, Relaxed, Sample, TurnCriterion, becomes
from agent_eval_action.results.evalset import Invocation, InvocationEvents
from agent_eval_action.results.findings import excerpt
from agent_eval_action.results.run_result import CriterionInfo, ScoreStatus, TurnScore

Call = tuple[str | None, Any]
"""Name and arguments."""

Algorithm = Literal["exact", "contains", "levenshtein", "jaccard", "rouge1", "rouge2", "rouge_l"]

_SPACE: Final = re.compile("[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
"""Rust's white space; Python's has four control characters more."""
_EACH_A_TOKEN: Final = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uac00-\ud7af]"
    "|[^\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uac00-\ud7af]+"
)
_EXCERPT: Final = 160
_LARGE: Final = 10_000
_MOST_STEPS: Final = 4_000_000_000  # of the tables of two texts; seconds of work


class ToolTrajectoryScore(TurnCriterion):
    """The share of calls that match: matched calls by the longer of both lists, 1 where both are empty."""

    name: ClassVar[str] = "tool_trajectory_score"
    needs_reference: ClassVar[bool] = True
    relaxed_when: ClassVar[Mapping[str, Relaxed]] = {"strict_order": becomes(False), "strict_args": becomes(False)}

    strict_order: bool = True
    strict_args: bool = False

    @classmethod
    def expected_calls(cls, _: CriterionInfo) -> ExpectedCalls:
        return "exact"  # one more call costs, too

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        expected = [(call.name, call.args) for call in sample.case.turns[turn].tool_calls()]
        # a provider's null is a call without arguments, which ADK-Rust's sessions hold as {}
        actual = [(call.name, call.args or {}) for call in sample.actual[turn].tool_calls()]
        try:
            matched = matched_calls(expected, actual, in_order=self.strict_order, strict=self.strict_args)
        except RecursionError:
            return self.unscored(turn, "arguments of a call are nested too deeply to be compared")
        reason = f"{matched} of {len(expected)} expected calls matched, {len(actual)} made"
        return TurnScore(turn=turn, score=trajectory_score(matched, expected, actual), reason=reason)


def trajectory_score(matched: int, expected: Sequence[Call], actual: Sequence[Call]) -> float:
    """Matched calls by the longer list; 1 where nothing was expected and nothing done."""
    longest = max(len(expected), len(actual))
    return matched / longest if longest else 1.0


def matched_calls(expected: Sequence[Call], actual: Sequence[Call], *, in_order: bool, strict: bool) -> int:
    """How many expected calls are met, each by the first call that fits: behind the last one, or any that is free."""
    free = list(range(len(actual)))
    matched = 0
    for name, args in expected:
        fits = (n for n, i in enumerate(free) if actual[i][0] == name and fits_args(args, actual[i][1], strict=strict))
        if (found := next(fits, None)) is not None:
            matched += 1
            free = free[found + 1 :] if in_order else free[:found] + free[found + 1 :]
    return matched


def fits_args(expected: Any, actual: Any, *, strict: bool) -> bool:
    """Whether the arguments of a call are those expected. Expectations without arguments fit every call."""
    return expected is None or _fits(expected, actual, strict=strict)


def _fits(expected: Any, actual: Any, *, strict: bool) -> bool:
    if isinstance(expected, dict) and isinstance(actual, dict):
        if strict and len(expected) != len(actual):
            return False
        return all(key in actual and _fits(item, actual[key], strict=strict) for key, item in expected.items())
    if isinstance(expected, list) and isinstance(actual, list):
        pairs = zip(expected, actual, strict=False)
        return len(expected) == len(actual) and all(_fits(item, other, strict=strict) for item, other in pairs)
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    return bool(expected == actual)


class ResponseSimilarity(TurnCriterion):
    """The likeness of answer and reference by one of seven algorithms; turns without a reference are left out."""

    name: ClassVar[str] = "response_similarity"
    needs_reference: ClassVar[bool] = True

    algorithm: Algorithm = "jaccard"
    normalize: bool = True
    ignore_case: bool = True
    ignore_punctuation: bool = False

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        reference = sample.case.turns[turn].final_response
        if reference is None:
            return self.unscored(turn, "the case has no reference answer for this turn", ScoreStatus.NOT_APPLICABLE)
        expected = "".join(part.text for part in reference.parts or () if part.text and not part.thought)
        actual = _whole_answer(sample.actual[turn])
        if actual is None:
            return TurnScore(turn=turn, score=0.0, reason=f"no answer; expected “{excerpt(expected, _EXCERPT)}”")
        if len(expected) * len(actual) > _MOST_STEPS and self.algorithm in ("levenshtein", "rouge_l"):
            return self.unscored(turn, f"the texts are too long for {self.algorithm}")
        if len(expected) + len(actual) > _LARGE:
            score = await asyncio.to_thread(self.similarity, expected, actual)
        else:
            score = self.similarity(expected, actual)
        shown = f"expected “{excerpt(expected, _EXCERPT)}”, got “{excerpt(actual, _EXCERPT)}”"
        return TurnScore(turn=turn, score=score, reason=f"{self.algorithm} {score:.2f}: {shown}")

    def similarity(self, expected: str, actual: str) -> float:
        """The score of two texts from 0 to 1."""
        expected, actual = self._normalized(expected), self._normalized(actual)
        if self.algorithm == "exact":
            return float(expected == actual)
        if self.algorithm == "contains":
            return float(expected in actual or actual in expected)
        if self.algorithm == "levenshtein":
            longest = max(len(expected), len(actual))
            return 1 - edit_distance(expected, actual) / longest if longest else 1.0
        want, got = _tokens(expected), _tokens(actual)
        if self.algorithm == "rouge_l":
            return _rouge_l(want, got)
        if self.algorithm == "jaccard":
            union = set(want) | set(got)
            return len(set(want) & set(got)) / len(union) if union else 1.0
        length = 1 if self.algorithm == "rouge1" else 2
        wanted, found = _ngrams(want, length), _ngrams(got, length)
        return len(wanted & found) / len(wanted) if wanted else float(not found)

    def _normalized(self, text: str) -> str:
        if not self.normalize:
            return text
        text = text.lower() if self.ignore_case else text
        if self.ignore_punctuation:
            text = "".join(char for char in text if char.isalnum() or _SPACE.match(char))
        return _SPACE.sub(" ", text).strip(" ")


def _whole_answer(turn: Invocation) -> str | None:
    """Every text of the turn, what the agent said before its calls included; None where it said nothing."""
    data = turn.intermediate_data
    events = data.invocation_events if isinstance(data, InvocationEvents) else ()
    contents = [event.content for event in events if event.content and event.author != "user"]
    if turn.final_response is not None and (not contents or contents[-1] != turn.final_response):
        contents.append(turn.final_response)
    texts = [part.text for content in contents for part in content.parts or () if part.text and not part.thought]
    return "".join(texts) if texts else None


def _tokens(text: str) -> list[str]:
    """Words between white space; each ideograph, kana and hangul syllable is one."""
    return [match[0] for word in _SPACE.split(text) for match in _EACH_A_TOKEN.finditer(word)]


def _ngrams(tokens: Sequence[str], length: int) -> set[tuple[str, ...]]:
    return {tuple(tokens[start : start + length]) for start in range(len(tokens) - length + 1)}


def _rouge_l(want: Sequence[str], got: Sequence[str]) -> float:
    if not want or not got:
        return float(not want and not got)
    common = common_subsequence(want, got)
    precision, recall = common / len(got), common / len(want)
    return 2 * precision * recall / (precision + recall) if common else 0.0


def _positions(sequence: Sequence[str]) -> dict[str, int]:
    """For each item the bits of the places where it stands."""
    places: dict[str, bytearray] = {}
    size = len(sequence) // 8 + 1
    for place, item in enumerate(sequence):
        places.setdefault(item, bytearray(size))[place // 8] |= 1 << place % 8
    return {item: int.from_bytes(bits, "little") for item, bits in places.items()}


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest common subsequence, a row of its table as one number (Hyyrö 2004)."""
    places, whole = _positions(first), (1 << len(first)) - 1
    row = whole
    for item in second:
        hits = row & places.get(item, 0)
        row = ((row + hits) | (row - hits)) & whole
    return len(first) - row.bit_count()


def edit_distance(first: str, second: str) -> int:
    """The Levenshtein distance of code points, a column of its table as two numbers (Myers 1999)."""
    if not first:
        return len(second)
    places, whole, last = _positions(first), (1 << len(first)) - 1, 1 << (len(first) - 1)
    up, down, distance = whole, 0, len(first)
    for char in second:
        equal = places.get(char, 0)
        vertical = equal | down
        horizontal = (((equal & up) + up) ^ up) | equal
        plus, minus = down | (whole & ~(horizontal | up)), up & horizontal
        distance += bool(plus & last) - bool(minus & last)
        plus, minus = ((plus << 1) | 1) & whole, (minus << 1) & whole
        up, down = minus | (whole & ~(vertical | plus)), plus & vertical
    return distance
