"""ADK-Rust's criteria, with the scores of version 3 of its crate ``adk-eval``.

They score trajectories, text similarity, and grades from 0 to 1 that a judge gives. A judge's verdict of no, and a
turn without text, score 0; an unusable judge's answer gives no score.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from agent_eval_action.criteria.answers import common_subsequence, edit_distance
from agent_eval_action.criteria.base import ExpectedCalls, Relaxed, Sample, TurnCriterion, becomes
from agent_eval_action.criteria.calls import json_fits
from agent_eval_action.criteria.judge import (
    Answer,
    JudgedCriterion,
    JudgeModelOptions,
    Question,
    as_json,
    ask_about,
)
from agent_eval_action.llm.client import LlmError
from agent_eval_action.results.base import AdkModel
from agent_eval_action.results.evalset import Invocation
from agent_eval_action.results.findings import excerpt
from agent_eval_action.results.run_result import RubricScore, ScoreStatus, TurnScore

Call = tuple[str | None, Any]
"""Name and arguments."""

Algorithm = Literal["exact", "contains", "levenshtein", "jaccard", "rouge1", "rouge2", "rouge_l"]

_SPACE: Final = re.compile("[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
"""Rust's whitespace; Python's has four more control characters."""
_EACH_A_TOKEN: Final = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uac00-\ud7af]"
    "|[^\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uac00-\ud7af]+"
)
_EXCERPT: Final = 160
_LARGE: Final = 10_000
_RATIONALE_CHARACTERS: Final = 200
_MOST_STEPS: Final = 4_000_000_000  # table cells for two texts: seconds of work


class WorstTurnCriterion(TurnCriterion):
    """Scores a case by its worst turn, because ADK-Rust holds every turn to the threshold."""

    def mean(self, scores: Sequence[float]) -> float:
        return min(scores)


class ToolTrajectoryScore(WorstTurnCriterion):
    """The number of matched calls divided by the length of the longer list; 1 if both lists are empty."""

    name: ClassVar[str] = "tool_trajectory_score"
    by_events: ClassVar[bool] = True
    needs_reference: ClassVar[bool] = True
    compared_calls: ClassVar[ExpectedCalls] = "exact"  # an extra call lowers the score
    relaxed_when: ClassVar[Mapping[str, Relaxed]] = {"strict_order": becomes(False), "strict_args": becomes(False)}

    strict_order: bool = True
    strict_args: bool = False

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        expected = [(call.name, call.args) for call in sample.case.turns[turn].tool_calls()]
        if sample.actual[turn].uncaptured and any(args is not None for _, args in expected):
            return self.unscored(turn, sample.actual[turn].uncaptured)
        # ADK-Rust's sessions record a call without arguments as {}, where providers may send null
        actual = [(call.name, call.args or {}) for call in sample.actual[turn].tool_calls()]
        try:
            matched, score = trajectory_score(expected, actual, in_order=self.strict_order, strict=self.strict_args)
        except RecursionError:
            return self.unscored(turn, "arguments of a call are nested too deeply to be compared")
        reason = f"{matched} of {len(expected)} expected calls matched, {len(actual)} made"
        return TurnScore(turn=turn, score=score, reason=reason)


def trajectory_score(
    expected: Sequence[Call], actual: Sequence[Call], *, in_order: bool, strict: bool
) -> tuple[int, float]:
    """The number of expected calls that are matched, each by the first unused call that fits, and the score.

    With ``in_order`` that call must follow the previous match. An expected call without arguments matches any
    arguments.
    """
    free = list(range(len(actual)))
    matched = 0
    for name, args in expected:
        named = ((n, actual[i][1]) for n, i in enumerate(free) if actual[i][0] == name)
        fits = (n for n, made in named if args is None or json_fits(args, made, strict=strict))
        if (found := next(fits, None)) is not None:
            matched += 1
            free = free[found + 1 :] if in_order else free[:found] + free[found + 1 :]
    longest = max(len(expected), len(actual))
    return matched, matched / longest if longest else 1.0


class ResponseSimilarity(WorstTurnCriterion):
    """The similarity of answer and reference by one of seven algorithms; skips turns without a reference."""

    name: ClassVar[str] = "response_similarity"
    needs_reference: ClassVar[bool] = True

    algorithm: Algorithm = "jaccard"
    normalize: bool = True
    ignore_case: bool = True
    ignore_punctuation: bool = False

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        expected, actual = reference_text(sample, turn), whole_answer(sample.actual[turn])
        if expected is None:
            return self.unscored(turn, "the case has no reference answer for this turn", ScoreStatus.NOT_APPLICABLE)
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


def reference_text(sample: Sample, turn: int) -> str | None:
    """The reference answer of a turn, or None."""
    reference = sample.case.turns[turn].final_response if turn < len(sample.case.turns) else None
    if reference is None:
        return None
    return "".join(part.text for part in reference.parts or () if part.text and not part.thought)


def whole_answer(turn: Invocation) -> str | None:
    """All texts of the agent in a turn, those before its tool calls included; None if there are none."""
    contents = [event.content for event in turn.events if event.content and event.author != "user"]
    if turn.final_response is not None and (not contents or contents[-1] != turn.final_response):
        contents.append(turn.final_response)
    texts = [part.text for content in contents for part in content.parts or () if part.text and not part.thought]
    return "".join(texts) if texts else None


def _tokens(text: str) -> list[str]:
    """Split at whitespace; each ideograph, kana and hangul syllable is a token."""
    return [match[0] for word in _SPACE.split(text) for match in _EACH_A_TOKEN.finditer(word)]


def _ngrams(tokens: Sequence[str], length: int) -> set[tuple[str, ...]]:
    return {tuple(tokens[start : start + length]) for start in range(len(tokens) - length + 1)}


def _rouge_l(want: Sequence[str], got: Sequence[str]) -> float:
    if not want or not got:
        return float(not want and not got)
    common = common_subsequence(want, got)
    precision, recall = common / len(got), common / len(want)
    return 2 * precision * recall / (precision + recall) if common else 0.0


class _Grade(Answer):
    rationale: str
    score: float


class _VerdictGrade(_Grade):
    verdict: Literal["yes", "no"]


class _MatchGrade(_Grade):
    verdict: Literal["yes", "partial", "no"]


class _AskedOnce(JudgeModelOptions):
    """One sample by default, like ADK-Rust; with more, their mean counts."""

    num_samples: int = Field(default=1, ge=1)


def _read(grade: _Grade) -> tuple[float, str]:
    """The score that counts, 0 if the verdict is no, and the rationale."""
    if not 0 <= grade.score <= 1:
        raise ValueError(f"`score` is {grade.score:g}, which is not from 0 to 1")
    return 0.0 if getattr(grade, "verdict", "") == "no" else grade.score, grade.rationale


class GradedCriterion(JudgedCriterion, WorstTurnCriterion):
    """Base of criteria whose turns a judge grades."""

    judge_model_options: JudgeModelOptions = _AskedOnce()

    async def grade(self, sample: Sample, question: Question[Any]) -> tuple[float, str] | LlmError:
        """The mean grade of all samples and the lowest grade's rationale; an error if a sample has no grade."""
        grades = await self.judge(sample).ask_all(question)
        if isinstance(grades, LlmError):
            return grades
        return math.fsum(score for score, _ in grades) / len(grades), min(grades, key=itemgetter(0))[1]

    def texts(self, sample: Sample, turn: int, answer: str) -> Mapping[str, str]:
        """What the judge sees of a turn, by label of the prompt."""
        return {"user_prompt": sample.actual[turn].user_content.text, "answer": answer}

    def question(self, texts: Mapping[str, str]) -> Question[Any]:
        return ask_about(self.prompt_names[0], texts, _VerdictGrade, _read)

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        answer = whole_answer(sample.actual[turn])
        if answer is None:
            return TurnScore(turn=turn, score=0.0, reason="the agent gave no text to judge")
        return await self.score_texts(sample, turn, self.texts(sample, turn, answer))

    async def score_texts(self, sample: Sample, turn: int, texts: Mapping[str, str]) -> TurnScore:
        """Score a turn by the judge's grade of these texts."""
        graded = await self.grade(sample, self.question(texts))
        if isinstance(graded, LlmError):
            return self.unscored(turn, graded.message)
        score, rationale = graded
        reason = f"{score:.2f}: {excerpt(rationale, _RATIONALE_CHARACTERS)}"
        return TurnScore(turn=turn, score=score, reason=reason, details={"rationale": rationale})


class SemanticMatch(GradedCriterion):
    """Whether the answer means the same as the reference; skips turns without a reference."""

    name: ClassVar[str] = "semantic_match_score"
    needs_reference: ClassVar[bool] = True
    prompt_names: ClassVar[tuple[str, ...]] = ("semantic_match", "semantic_match_template")

    custom_prompt: str | None = Field(default=None, min_length=1)

    def question(self, texts: Mapping[str, str]) -> Question[Any]:
        if self.custom_prompt is None:
            return ask_about("semantic_match", texts, _MatchGrade, _read)
        filled = {"expected": texts["reference"], "actual": texts["answer"]}
        return ask_about("semantic_match_template", filled, _MatchGrade, _read, self.custom_prompt)

    def texts(self, sample: Sample, turn: int, answer: str) -> Mapping[str, str]:
        return {"reference": reference_text(sample, turn) or "", "answer": answer}

    async def score_turn(self, sample: Sample, turn: int) -> TurnScore:
        if reference_text(sample, turn) is None:
            return self.unscored(turn, "the case has no reference answer for this turn", ScoreStatus.NOT_APPLICABLE)
        return await super().score_turn(sample, turn)


class SafetyScore(GradedCriterion):
    """Whether the answer is safe, judged by the answer alone."""

    name: ClassVar[str] = "safety_score"
    prompt_names: ClassVar[tuple[str, ...]] = ("safety",)

    def texts(self, _sample: Sample, _turn: int, answer: str) -> Mapping[str, str]:
        return {"answer": answer}


class HallucinationScore(GradedCriterion):
    """Whether the answer invents nothing, given the user's message and, if there is one, the reference."""

    name: ClassVar[str] = "hallucination_score"
    by_events: ClassVar[bool] = True
    prompt_names: ClassVar[tuple[str, ...]] = ("hallucination",)

    def texts(self, sample: Sample, turn: int, answer: str) -> Mapping[str, str]:
        texts, reference = super().texts(sample, turn, answer), reference_text(sample, turn)
        return texts if reference is None else {**texts, "reference": reference}


class RubricLevel(AdkModel):
    """A description of answers that deserve this score."""

    score: float = Field(allow_inf_nan=False)
    description: str


class GradedRubric(AdkModel):
    """A rubric that a judge grades from 0 to 1."""

    name: str = Field(min_length=1)
    description: str = Field(min_length=1)
    weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    levels: tuple[RubricLevel, ...] = ()


def _require_unique_names(rubrics: tuple[GradedRubric, ...]) -> tuple[GradedRubric, ...]:
    names = [rubric.name for rubric in rubrics]
    if twice := next((name for number, name in enumerate(names) if name in names[:number]), None):
        raise ValueError(f"rubric `{twice}` is there twice")
    return rubrics


class RubricQuality(GradedCriterion):
    """The weighted mean of rubrics, each graded in a separate question."""

    name: ClassVar[str] = "rubric_quality_score"
    prompt_names: ClassVar[tuple[str, ...]] = ("rubric_grade",)

    rubrics: Annotated[tuple[GradedRubric, ...], AfterValidator(_require_unique_names)] = Field(min_length=1)

    @property
    def calls(self) -> int:  # type: ignore[override]  # depends on the options here
        """Questions per turn."""
        return len(self.rubrics)

    @model_validator(mode="after")
    def _require_a_weight(self) -> Self:
        if not any(rubric.weight for rubric in self.rubrics):
            raise ValueError("all rubrics have the weight 0, so there is nothing to measure")
        return self

    async def score_texts(self, sample: Sample, turn: int, texts: Mapping[str, str]) -> TurnScore:
        asked = []
        for rubric in self.rubrics:
            shown = as_json(rubric.model_dump(exclude={"weight"} | (set() if rubric.levels else {"levels"})))
            question = ask_about("rubric_grade", {**texts, "rubric": shown}, _Grade, _read)
            asked.append(self.grade(sample, question))
        graded = await asyncio.gather(*asked)
        scores = []
        for rubric, grade in zip(self.rubrics, graded, strict=True):
            score, rationale = (None, grade.message) if isinstance(grade, LlmError) else grade
            fields = {"rubric_id": rubric.name, "text": rubric.description, "weight": rubric.weight}
            scores.append(RubricScore(**fields, score=score, rationale=rationale))
        if lost := next((grade for grade in graded if isinstance(grade, LlmError)), None):
            return self.unscored(turn, lost.message, rubrics=tuple(scores))
        weight = math.fsum(rubric.weight for rubric in self.rubrics)
        mean = math.fsum(rubric.weight * (rubric.score or 0.0) for rubric in scores) / weight
        reason = "; ".join(
            f"“{rubric.rubric_id}” {rubric.score:.2f}: {excerpt(rubric.rationale, _RATIONALE_CHARACTERS)}"
            for rubric in sorted(scores, key=lambda rubric: rubric.score or 0.0)[:3]
        )
        return TurnScore(turn=turn, score=min(mean, 1.0), reason=reason, rubrics=tuple(scores))
